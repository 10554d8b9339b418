# SPDX-License-Identifier: Apache-2.0
"""How does the driver log in if the kubeconfig uses an auth provider (`oidc`), which kubectl has not known since 1.26?

The `kubernetes` package does it. This package has 126 MB and is slow to import. So it is an optional dependency, imported only
here and only for such a kubeconfig. The driver takes only the bearer token from it. If a login fails, the package writes
the reason to the root logger and does not always put it into its exception. So this module listens to the root logger during the
login, and puts the reason into the error.
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
    """The `kubernetes` package. Raises ImportError if it is not installed."""
    return import_module("kubernetes")


def login(
    path: Path, context: str, kind: str, *, package: Callable[[], ModuleType] = import_kubernetes
) -> Credentials:
    """Credentials of a user whose kubeconfig entry has `kind` ("auth-provider"). Raises Fatal."""
    try:
        kubernetes = package()
    except ImportError as error:
        raise Fatal(
            f"kubeconfig {path}, context {context!r}: its user logs in by {kind!r}, which needs the kubernetes package; "
            "install the driver's package with its extra [cli], or give a kubeconfig with a token, a client certificate, or a login program (exec)"
        ) from error
    return _Login(kubernetes, path, context)


_DEFECTS = (AttributeError, TypeError, KeyError)
"""What the package raises where it does not look whether there is a value: the text of such an error says nothing by itself."""


class _Login:
    """Bearer tokens from the package, which renews them itself when they expire; after `forget` it logs in again."""

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
                    "authorization",  # the first name since release 36 of the package, the second before
                )
            except _DEFECTS as error:
                found = f"the kubernetes package ended with {type(error).__name__} ({_excerpt(str(error))}), as it does for an auth-provider that it does not know"
                raise self._failed(*map(_excerpt, said), found) from error
            except Exception as error:
                raise self._failed(*map(_excerpt, (*said, str(error)))) from error
        if not value:
            raise self._failed(*(map(_excerpt, said) if said else ("it produced no token",)))
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

    def _failed(self, *found: str) -> Temporary:
        return Temporary(
            f"kubeconfig {self._path}, context {self._context!r}: logging in failed: {'; '.join(found)}; try kubectl --kubeconfig {self._path} auth whoami"
        )


def _excerpt(said: str) -> str:
    return excerpt(said.encode(errors="replace"))


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect what is logged as an error. The handler also keeps the message off standard error, where Python writes it without one."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    root, collector = logging.getLogger(), Collector(logging.ERROR)
    root.addHandler(collector)
    try:
        yield messages
    finally:
        root.removeHandler(collector)
