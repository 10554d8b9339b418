# SPDX-License-Identifier: Apache-2.0
"""How does the driver log in if the kubeconfig starts a program (`exec`), as those of most managed clusters do?

The program gets `KUBERNETES_EXEC_INFO` and prints an ExecCredential with a bearer token and perhaps the time when it ends. It runs
again one minute before this time, and after the API server has refused the token. Client certificates from programs are not supported.
Source: client.authentication.k8s.io/v1 and v1beta1; k8s.io/client-go plugin/pkg/client/auth/exec.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from dra_driver.errors import Temporary
from dra_driver.kube import login_program
from dra_driver.kube.failures import excerpt

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INTERACTIVE_MODES = ("IfAvailable", "Never", "Always")
EARLY_SECONDS = 60.0
TRACEBACK = b"Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The `exec` of a user. `cluster` is what the program is told about the cluster; None if it is not told."""

    path: Path
    context: str
    version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    install_hint: str = ""
    interactive: str = "IfAvailable"
    cluster: Mapping[str, Any] | None = None


class ExecLogin:
    """Bearer tokens from the program. `now` is the time in seconds since 1970."""

    def __init__(self, plugin: ExecPlugin, *, now: Callable[[], float] = time.time) -> None:
        self._plugin = plugin
        self._now = now
        self._lock = Lock()
        self._token = ""
        self._ends = float("inf")

    def headers(self) -> Mapping[str, str]:
        with self._lock:
            if not self._token or self._now() >= self._ends - EARLY_SECONDS:
                self._token, self._ends = self._log_in()
            return {"Authorization": f"Bearer {self._token}"}

    def forget(self) -> None:
        with self._lock:
            self._token = ""

    def _log_in(self) -> tuple[str, float]:
        plugin, person = self._plugin, sys.stdin is not None and sys.stdin.isatty()
        if plugin.interactive == "Always" and not person:
            raise self._failed("it wants to ask a person, and standard input is no terminal")
        person = person and plugin.interactive != "Never"
        spec = {"interactive": person, **({"cluster": plugin.cluster} if plugin.cluster else {})}
        asked = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
        variables = {"KUBERNETES_EXEC_INFO": json.dumps(asked)}
        program = self._program()
        try:
            ended = login_program.run(
                [program, *plugin.arguments],
                {**plugin.environment, **variables},
                person=person,
            )
        except FileNotFoundError as error:
            raise self._missing() from error
        except login_program.Stopped as stopped:
            raise self._failed(
                f"{stopped} and was stopped{_said(stopped.said)}; run it by hand and see what it waits for or prints"
            ) from stopped
        except (OSError, ValueError) as error:
            raise self._failed(f"it cannot be started: {error}") from error
        if ended.code != 0:
            said = _said(ended.said) or ": it said nothing"
            raise self._failed(f"it ended with {ended.code}{said}")
        return self._read(ended.answer)

    def _program(self) -> str:
        """The program's file. A name is looked up in PATH, but not in the current folder: that may be somebody else's."""
        command = self._plugin.command
        if "/" in command:
            return command
        found = shutil.which(command)
        if found is None:
            raise self._missing()
        if not os.path.isabs(found):  # noqa: PTH117 - as PATH has it
            raise self._failed(
                f"PATH finds {found} by the current folder, where anybody may have put it; take . and empty entries out of PATH"
            )
        return found

    def _missing(self) -> Temporary:
        plugin = self._plugin
        hint = f"; {excerpt(plugin.install_hint.encode())}" if plugin.install_hint else ""
        return self._failed(f"there is no program {plugin.command}{hint}")

    def _read(self, answer: bytes) -> tuple[str, float]:
        """The token, and when it ends. What the program printed may be a secret, so no message has it."""
        try:
            document = json.loads(answer)
            version, status = document["apiVersion"], document["status"]
            token, ends = status.get("token", ""), status.get("expirationTimestamp")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._failed(
                f"it printed no ExecCredential with a status ({type(error).__name__})"
            ) from error
        if version != self._plugin.version:
            raise self._failed(
                f"it answered in apiVersion {excerpt(str(version).encode())}, and the kubeconfig wants {self._plugin.version}"
            )
        if (
            not isinstance(token, str)
            or not token.isascii()
            or not token.isprintable()
            or not token
        ):
            raise self._failed(
                "it printed no token (client certificates from programs are not supported); try kubectl proxy"
            )
        return token, self._end_of(ends)

    def _end_of(self, written: object) -> float:
        """In seconds since 1970. A time without its zone is refused, as kubectl does: it would be another time on each machine."""
        if written is None:
            return float("inf")
        try:
            time_of_end = datetime.fromisoformat(str(written))
            if time_of_end.tzinfo is not None:
                return time_of_end.timestamp()
        except ValueError:
            pass
        raise self._failed(
            "its status.expirationTimestamp is no time with a zone, such as 2026-01-31T12:00:00Z; update the program, or let it leave "
            "this field out"
        )

    def _failed(self, found: str) -> Temporary:
        plugin = self._plugin
        return Temporary(
            f"kubeconfig {plugin.path}, context {plugin.context!r}: logging in with {plugin.command} failed: {found}; try "
            f"kubectl --kubeconfig {plugin.path} auth whoami"
        )


def _said(stderr: bytes | None) -> str:
    """What a message has of it. None means that a person has read it already, and a traceback says in its last line what is wrong."""
    if stderr is None:
        return ": see above what it said"
    if TRACEBACK in stderr:
        *_, last = stderr.strip().splitlines()
        return f": it broke with {excerpt(last)}; install or update the program and the Python that it runs in"
    return f": {text}" if (text := excerpt(stderr)) else ""
