# SPDX-License-Identifier: Apache-2.0
"""How does a kubeconfig log in that starts a program, or uses an auth provider (OIDC)?

The `kubernetes` package can do it; it is 126 MB and slow to import, so it is an extra, imported here alone and only when
a kubeconfig needs it. Only the bearer token that it produces is taken over. What a login program says when it fails the
package writes to the log of the whole process and keeps to itself; it is taken from there, into the error.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from dra_driver.errors import Fatal, Temporary
from dra_driver.kube.connection import Credentials
from dra_driver.kube.failures import excerpt


def import_kubernetes() -> ModuleType:
    """The package that can log in. Raises ImportError."""
    return import_module("kubernetes")


def login(
    path: Path, context: str, kind: str, *, package: Callable[[], ModuleType] = import_kubernetes
) -> Credentials:
    """Credentials of a user whose kubeconfig entry has `kind` ("exec" or "auth-provider"). Raises Fatal."""
    try:
        kubernetes = package()
    except ImportError as error:
        raise Fatal(
            f"kubeconfig {path}, context {context!r}: its user logs in by {kind!r}, which needs the kubernetes package; "
            "install dra-driver[cli], or give a kubeconfig with a token or a client certificate"
        ) from error
    return _Login(kubernetes, path, context)


class _Login:
    """Tokens from the package, which refreshes them itself when they expire; `forget` logs in anew."""

    def __init__(self, kubernetes: ModuleType, path: Path, context: str) -> None:
        self._kubernetes: Any = kubernetes
        self._path = path
        self._context = context
        self._lock = Lock()
        self._configuration: Any = None

    def headers(self) -> Mapping[str, str]:
        with self._lock, _listening() as said:
            try:
                if self._configuration is None:
                    self._configuration = self._load()
                value = self._configuration.get_api_key_with_prefix(
                    "BearerToken",
                    "authorization",  # the name since 36, and before
                )
            except Exception as error:
                raise self._failed("; ".join([*said, str(error)])) from error
        if not value:
            raise self._failed(
                "; ".join(said)
                or "it produced no token (client certificates from programs are not supported)"
            )
        return {"Authorization": value}

    def forget(self) -> None:
        with self._lock:
            self._configuration = None

    def _load(self) -> Any:
        configuration = self._kubernetes.client.Configuration()
        self._kubernetes.config.load_kube_config(
            config_file=str(self._path),
            context=self._context,
            client_configuration=configuration,
            persist_config=False,
        )
        return configuration

    def _failed(self, found: str) -> Temporary:
        return Temporary(
            f"kubeconfig {self._path}, context {self._context!r}: logging in failed: {excerpt(found.encode())}; try kubectl --kubeconfig {self._path} auth whoami"
        )


@contextmanager
def _listening() -> Iterator[list[str]]:
    """What is logged meanwhile. Without a handler of its own the root logger would write it to standard error."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    root, ear = logging.getLogger(), Ear(logging.ERROR)
    root.addHandler(ear)
    try:
        yield heard
    finally:
        root.removeHandler(ear)
