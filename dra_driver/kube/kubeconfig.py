# SPDX-License-Identifier: Apache-2.0
"""What does one context of a kubeconfig contain? Usually it is the current one. A field of the wrong type is an error that names it.

This module handles tokens, token files, client certificates and proxies itself, and `exec` with `dra_driver.kube.exec_login`. A user entry with
`auth-provider` needs the `kubernetes` package (`dra_driver.kube.login`).
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from dra_driver.errors import Fatal
from dra_driver.kube.connection import (
    Credentials,
    FixedHeaders,
    TlsFiles,
    TokenFile,
    is_loopback,
    without_userinfo,
)
from dra_driver.kube.exec_login import INTERACTIVE_MODES, VERSIONS, ExecLogin, ExecPlugin
from dra_driver.kube.login import login

PROXY_SCHEMES = ("http", "https")


class Kubeconfig(Struct, frozen=True):
    """One context of one file. `namespace` is its default namespace, or empty. `credentials` makes them, given a clock.

    `program` is what they start to log in (`exec`); "" for all other credentials.
    """

    path: Path
    server: str
    tls: TlsFiles
    credentials: Callable[[Callable[[], float]], Credentials]
    tls_server_name: str = ""
    proxy: str = ""
    namespace: str = ""
    program: str = ""


def load_kubeconfig(path: Path, *, context: str = "") -> Kubeconfig:
    """Read the context of this name, or the current one if the name is empty. Raises Fatal."""
    content = _content(path)
    whole = _Section(path, "", content)
    name = context or whole.text("current-context")
    if not name:
        raise whole.wrong("current-context is not set; choose one with kubectl config use-context")
    asked_by = "the command line" if context else "current-context"
    chosen = whole.entry("contexts", name, "context", asked_by=asked_by)
    cluster = whole.entry(
        "clusters", chosen.text("cluster"), "cluster", asked_by=f"context {name!r}"
    )
    user_name = chosen.text("user")
    user = (
        whole.entry("users", user_name, "user", asked_by=f"context {name!r}")
        if user_name
        else _Section(path, "", {})
    )
    server, proxy = _server(cluster), _proxy(cluster)
    _refuse_plain_text(server, proxy, user)
    return Kubeconfig(
        path=path,
        server=server,
        tls=_tls(cluster, user),
        credentials=_credentials(user, cluster, name),
        tls_server_name=cluster.text("tls-server-name"),
        proxy=proxy,
        namespace=chosen.text("namespace"),
        program=_program(user),
    )


def context_names(path: Path) -> list[str]:
    """Return the names of all contexts of the file, sorted. Raises Fatal."""
    content = _content(path)
    listed = content.get("contexts") if isinstance(content, dict) else None
    found = listed if isinstance(listed, list) else []
    return sorted(str(one["name"]) for one in found if isinstance(one, dict) and one.get("name"))


def _content(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        # An OSError names the path once more.
        found = (isinstance(error, OSError) and error.strerror) or str(error)
        raise Fatal(
            f"cannot read kubeconfig {path}: {' '.join(found.split())}; give a file that kubectl --kubeconfig {path} can use"
        ) from error


class _Section:
    """A YAML mapping of the file, and its place in the file for messages."""

    def __init__(self, path: Path, where: str, content: object) -> None:
        self.path = path
        self._where = where
        if content is None:
            content = {}
        if not isinstance(content, Mapping):
            raise self.wrong(f"it must be a YAML mapping, not {type(content).__name__}")
        self._content: Mapping[Any, Any] = content

    def wrong(self, what: str) -> Fatal:
        """An error that names the file and this section."""
        place = f", {self._where}" if self._where else ""
        return Fatal(f"kubeconfig {self.path}{place}: {what}")

    def has(self, key: str) -> bool:
        return bool(self._content.get(key))

    def text(self, key: str) -> str:
        """The text of a field; empty if it is missing. Raises Fatal for another type."""
        value = self._content.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(f"{key} must be text, not {type(value).__name__}; put it in quotes")
        return value

    def section(self, key: str) -> "_Section":
        """A mapping inside; empty if it is missing. Raises Fatal for another type."""
        return _Section(self.path, f"{self._where}, {key}", self._content.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty if it is missing. Raises Fatal for another type."""
        values = self._content.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self.wrong(f"{key} must be a list of texts; put each in quotes")
        return tuple(values)

    def variables(self, key: str) -> dict[str, str]:
        """A list of `name` and `value`; empty if it is missing. Raises Fatal for another type."""
        entries = self._content.get(key) or []
        if not isinstance(entries, list):
            raise self.wrong(f"{key} must be a list of name and value")
        parts = [_Section(self.path, f"{self._where}, {key}", entry) for entry in entries]
        return {part.text("name"): part.text("value") for part in parts}

    def extension(self, name: str) -> object:
        """The content of a named extension, whatever it is; None if it is missing."""
        entries = self._content.get("extensions")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                return entry.get("extension")
        return None

    def flag(self, key: str) -> bool:
        value = self._content.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(f"{key} must be true or false, not {value!r}")
        return value

    def file(self, key: str) -> Path | None:
        """A path, relative to the kubeconfig's directory; None if the field is missing. Raises Fatal if no file is there."""
        text = self.text(key)
        if not text:
            return None
        path = self.path.parent / text
        if not path.is_file():
            raise self.wrong(
                f"{key} names {path}, which does not exist; correct the path or put the file there"
            )
        return path

    def data(self, key: str) -> str:
        """The text of a base64 field; empty if it is missing. Raises Fatal."""
        try:
            return base64.b64decode(self.text(key), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise self.wrong(
                f"{key} is no base64 of a PEM text ({error}); copy the field again"
            ) from error

    def entry(self, plural: str, name: str, singular: str, *, asked_by: str) -> "_Section":
        """The entry of this name in the list `plural`. Raises Fatal, naming who refers to the entry (`asked_by`) and which names exist."""
        entries = self._content.get(plural)
        entries = (
            [entry for entry in entries if isinstance(entry, Mapping)]
            if isinstance(entries, list)
            else []
        )
        for entry in entries:
            if entry.get("name") == name:
                return _Section(self.path, f"{singular} {name!r}", entry.get(singular))
        known = ", ".join(sorted(str(entry.get("name")) for entry in entries)) or "none"
        raise self.wrong(
            f"{asked_by} asks for {singular} {name!r}, but {plural} has {known}; correct one of the two"
        )


def _server(cluster: _Section) -> str:
    """Return the address without a query or fragment, which kubectl leaves out too: they may have credentials, and paths are put behind it."""
    server = re.split("[?#]", cluster.text("server"))[0]
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise cluster.wrong(
            f"server is {without_userinfo(server)!r}; it must be a URL such as https://10.0.0.1:6443"
        )
    return server


def _tls(cluster: _Section, user: _Section) -> TlsFiles:
    ca_text = cluster.data("certificate-authority-data")
    certificate_text, key_text = user.data("client-certificate-data"), user.data("client-key-data")
    files = TlsFiles(
        ca_file=None if ca_text else cluster.file("certificate-authority"),
        ca_text=ca_text,
        certificate_file=None if certificate_text else user.file("client-certificate"),
        certificate_text=certificate_text,
        key_file=None if key_text else user.file("client-key"),
        key_text=key_text,
        verify=not cluster.flag("insecure-skip-tls-verify"),
    )
    has_certificate = bool(files.certificate_file or certificate_text)
    if has_certificate != bool(files.key_file or key_text):
        present, missing = (
            ("client-certificate", "client-key")
            if has_certificate
            else ("client-key", "client-certificate")
        )
        raise user.wrong(
            f"it has a {present} but no {missing}; both are needed to log in by certificate"
        )
    return files


def _credentials(
    user: _Section, cluster: _Section, context: str
) -> Callable[[Callable[[], float]], Credentials]:
    token_file = user.file("tokenFile")
    token = user.text("token")
    if token_file:
        return lambda clock: TokenFile(token_file, clock=clock)
    if token:
        return lambda _clock: FixedHeaders({"Authorization": f"Bearer {token}"})
    if _program(user):
        plugin = _exec_plugin(user.section("exec"), cluster, context)
        return lambda _clock: ExecLogin(plugin)
    if user.has("auth-provider"):
        return lambda _clock: login(user.path, context, "auth-provider")
    if user.has("username") or user.has("password"):
        raise user.wrong(
            "it logs in by name and password, which API servers do not take since 1.19; use a token or a client certificate"
        )
    return lambda _clock: FixedHeaders()


def _program(user: _Section) -> str:
    """What the user's credentials start; a token goes before it, as in kubectl."""
    by_token = user.has("tokenFile") or user.has("token")
    return (
        user.section("exec").text("command") or "exec" if user.has("exec") and not by_token else ""
    )


def _exec_plugin(entry: _Section, cluster: _Section, context: str) -> ExecPlugin:
    version, command = entry.text("apiVersion"), entry.text("command")
    mode = entry.text("interactiveMode") or INTERACTIVE_MODES[0]
    if version not in VERSIONS:
        raise entry.wrong(
            f"apiVersion is {version!r}; it must be {' or '.join(VERSIONS)}: renew the entry with the tool of the cluster's provider"
        )
    if not command:
        raise entry.wrong("command is missing; it must name the program that logs in")
    if mode not in INTERACTIVE_MODES:
        raise entry.wrong(f"interactiveMode is {mode!r}; it must be {', '.join(INTERACTIVE_MODES)}")
    if "/" in command:
        # Absolute, for a file that is named without a folder: a bare name would be looked up in PATH.
        command = str(entry.path.parent.absolute() / command)
    return ExecPlugin(
        path=entry.path,
        context=context,
        version=version,
        command=command,
        arguments=entry.texts("args"),
        environment=entry.variables("env"),
        install_hint=entry.text("installHint"),
        interactive=mode,
        cluster=_told(cluster) if entry.flag("provideClusterInfo") else None,
    )


def _told(cluster: _Section) -> dict[str, object]:
    """What a login program is told about the cluster."""
    authority, file = (
        cluster.text("certificate-authority-data"),
        cluster.file("certificate-authority"),
    )
    if file and not authority:
        authority = base64.b64encode(file.read_bytes()).decode()
    told: dict[str, object] = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": cluster.flag("insecure-skip-tls-verify"),
        "certificate-authority-data": authority,
        "proxy-url": cluster.text("proxy-url"),
        "config": cluster.extension("client.authentication.k8s.io/exec"),
    }
    return {key: value for key, value in told.items() if value}


def _refuse_plain_text(server: str, proxy: str, user: _Section) -> None:
    """Raise Fatal if a bearer token would be sent in plain text. It may be sent over TLS, or to this machine without a proxy."""
    if urlsplit(server).scheme == "https" or (is_loopback(server) and not proxy):
        return
    for key in ("tokenFile", "token", "exec", "auth-provider"):
        if user.has(key):
            raise user.wrong(
                f"its {key} would be sent to {without_userinfo(server)} in plain text, where everybody on the way can read it; give "
                "the cluster an https:// server, or leave the credentials out if it takes anybody"
            )


def _proxy(cluster: _Section) -> str:
    proxy = cluster.text("proxy-url")
    try:
        usable = not proxy or urlsplit(proxy).scheme in PROXY_SCHEMES
    except ValueError:
        usable = False
    if not usable:
        raise cluster.wrong(
            f"proxy-url is {without_userinfo(proxy)!r}; only http:// and https:// proxies are supported"
        )
    return proxy
