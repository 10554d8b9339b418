# SPDX-License-Identifier: Apache-2.0
"""What does a request to the API server need? Its address, credentials, a TLS context, and perhaps a proxy.

The token and the certificates can change while the process runs, so each request asks for them: `TokenFile` reads its file
again after a minute or when the server refused the token, and `TlsContext` makes a new context when a file changed.
"""

import ipaddress
import re
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Protocol
from urllib.parse import urlsplit

from dra_driver import PROJECT
from dra_driver.errors import Temporary

TOKEN_LIFE_SECONDS = 60.0


class Credentials(Protocol):
    """How the driver proves its identity to the API server."""

    def headers(self) -> Mapping[str, str]:
        """Headers for the next request. Raises Temporary."""

    def forget(self) -> None:
        """Called after a 401: the next `headers` must not come from a cache."""


@dataclass(frozen=True, slots=True)
class FixedHeaders:
    """Credentials that never change. The default is no header: a client certificate needs none."""

    fixed: Mapping[str, str] = field(default_factory=dict, repr=False)

    def headers(self) -> Mapping[str, str]:
        return self.fixed

    def forget(self) -> None:
        """Does nothing: there is no newer value."""


class TokenFile:
    """A bearer token from a file that somebody else renews. For a service account the kubelet does."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = Lock()
        self._token = ""
        self._read_at = float("-inf")

    def headers(self) -> Mapping[str, str]:
        with self._lock:
            if self._clock() - self._read_at >= TOKEN_LIFE_SECONDS:
                self._read()
            return {"Authorization": f"Bearer {self._token}"}

    def forget(self) -> None:
        with self._lock:
            self._read_at = float("-inf")

    def _read(self) -> None:
        try:
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Temporary(
                f"cannot read the service account token {self._path}: {error}; check that the volume with the token is mounted"
            ) from error
        if not token:
            raise Temporary(
                f"the token file {self._path} is empty; whoever writes it (the kubelet, for a pod) must fill it"
            )
        self._token, self._read_at = token, self._clock()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The parts of a TLS context. Each is a PEM file, or a PEM text from the kubeconfig; the text has precedence."""

    ca_file: Path | None = None
    ca_text: str = ""
    certificate_file: Path | None = None
    certificate_text: str = ""
    key_file: Path | None = None
    key_text: str = field(default="", repr=False)
    verify: bool = True

    @property
    def watched(self) -> tuple[Path, ...]:
        """The files to look at: if one changes, a new context is needed."""
        return tuple(path for path in (self.ca_file, self.certificate_file, self.key_file) if path)


class TlsContext:
    """Makes the TLS context, and a new one when one of its files changed (certificates are rotated)."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = Lock()
        self._seen: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """The context to use now; the same object as long as no file changes. Raises Temporary."""
        with self._lock:
            seen = tuple(_identity(path) for path in self._files.watched)
            if self._context is None or seen != self._seen:
                self._context, self._seen = _make_context(self._files), seen
            return self._context


def _make_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if files.ca_text:
            context.load_verify_locations(cadata=files.ca_text)
        elif files.ca_file:
            context.load_verify_locations(cafile=files.ca_file)
        elif files.verify:
            context.load_default_certs()
        _load_key_pair(context, files)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        names = ", ".join(map(str, files.watched)) or "the certificates in the kubeconfig"
        raise Temporary(
            f"cannot make a TLS context from {names}: {error}; they must be PEM files that this process may read, and a key "
            "must fit its certificate"
        ) from error
    return context


def _load_key_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Load the client certificate. `ssl` accepts only files, so texts are written to a private directory for this call."""
    if not files.certificate_file and not files.certificate_text:
        return
    with tempfile.TemporaryDirectory(prefix=f"{PROJECT}-tls-") as private:
        certificate, key = Path(private, "tls.crt"), Path(private, "tls.key")
        certificate.write_text(files.certificate_text)
        key.write_text(files.key_text)
        context.load_cert_chain(files.certificate_file or certificate, files.key_file or key)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one API server.

    `proxy` is a URL, empty for none. If `tls_server_name` is set, the certificate must be valid for it instead of the host.
    `source` is where all this comes from, for messages.
    """

    server: str
    credentials: Credentials = field(default_factory=FixedHeaders)
    tls: TlsContext = field(default_factory=lambda: TlsContext(TlsFiles()))
    tls_server_name: str = ""
    proxy: str = field(default="", repr=False)
    source: str = ""

    @property
    def shown_server(self) -> str:
        """The address for messages: a URL may contain a password, which is left out."""
        return without_userinfo(self.server)


def without_userinfo(url: str) -> str:
    """A URL without user name, password and query, so that it may be logged, even if it is none that can be parsed."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{mark}{re.split('[?#]', rest.rpartition('@')[2])[0]}"


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """The proxy of the environment (HTTPS_PROXY, NO_PROXY, …) for this server, by the rules of curl and Go; empty for none."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if is_loopback(server):
        return ""
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    excluded = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not proxy or any(
        _excludes(rule.strip().lower(), host, port) for rule in excluded.split(",")
    ):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _excludes(rule: str, host: str, port: int) -> bool:
    """Whether one entry of NO_PROXY covers the host. An entry is "*", an address, a CIDR or a domain, with or without a port."""
    if rule == "*":
        return True
    if _in_network(host, rule):
        return True
    name, colon, number = rule.rpartition(":")
    if colon and number.isdigit() and ("]" in name or ":" not in name):
        if int(number) != port:
            return False
        rule = name
    rule = rule.strip("[]")
    if _in_network(host, rule):
        return True
    if rule.startswith((".", "*.")):
        return host.endswith("." + rule.removeprefix("*").removeprefix("."))
    return bool(rule) and (host == rule or host.endswith("." + rule))


def _in_network(host: str, rule: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False


def is_loopback(server: str) -> bool:
    """Whether requests to this URL stay on this machine."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _identity(path: Path) -> tuple[object, ...]:
    """A value that differs if the file changed. A volume replaces a symbolic link above the file, which changes the inode."""
    try:
        found = path.stat()
    except OSError:
        return (path, None)
    return (path, found.st_ino, found.st_dev, found.st_mtime_ns, found.st_size)
