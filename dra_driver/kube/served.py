# SPDX-License-Identifier: Apache-2.0
"""Which version of resource.k8s.io does this client use now? Found once, and again when the cluster was upgraded."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import TypeVar

from dra_driver.kube.base import NotFound, NotServed
from dra_driver.kube.discovery import DISCOVERY_PATH, Wire, choose, not_served
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.model.api.resource_claim import GROUP

_Answer = TypeVar("_Answer")


class ServedVersion:
    """The version in use; safe to use from several threads."""

    def __init__(self, transport: Transport, server: str) -> None:
        self._transport = transport
        self._server = server
        self._wire: Wire | None = None
        self._lock = Lock()  # never held during a request
        self._asked: Future[Wire] | None = None  # the request for the version that runs now

    def __str__(self) -> str:
        return self._wire.version if self._wire else "version not asked yet"

    def get(self) -> Wire:
        """The version. If several threads need it at once, one asks the server, and all get its answer or its error."""
        with self._lock:
            if self._wire is not None:
                return self._wire
            asked, ours = self._asked, self._asked is None
            if asked is None:
                asked = self._asked = Future()
        if ours:
            self._ask(asked)
        return asked.result()

    def call(self, do: Callable[[Wire], _Answer]) -> _Answer:
        """Call `do` with the version. If the server does not serve it any more, once more with the version that it serves now."""
        wire = self.get()
        try:
            return do(wire)
        except NotServed:
            self.forget()
            return do(self.get())

    def forget(self) -> None:
        """The server does not serve this version any more: the next call asks again."""
        with self._lock:
            self._wire = None

    def _ask(self, asked: "Future[Wire]") -> None:
        # Without the lock: a thread that comes now waits for this one request. With the lock, each waiting thread would make
        # its own failing request, one after the other.
        try:
            wire = self._discover()
        except BaseException as error:
            with self._lock:
                self._asked = None
            asked.set_exception(error)
            raise
        with self._lock:
            self._wire, self._asked = wire, None
        asked.set_result(wire)

    def _discover(self) -> Wire:
        call = ApiCall("get", f"group {GROUP}")
        try:
            group = self._transport.request(Exchange(call, "GET", DISCOVERY_PATH))
        except (NotServed, NotFound) as error:
            raise not_served(self._server, "it does not know the group") from error
        return choose(group, self._server)
