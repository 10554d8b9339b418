# SPDX-License-Identifier: Apache-2.0
"""Processes that do not end: what they were asked is asked again rarely.

A process that the kernel driver holds in a call stays there after a SIGKILL too, with its memory, and each further attempt may add
another one. Its end of the connection stays open as long, whichever container it runs in. So the connection of the request that hung is
kept, and tells when the process has ended.
"""

import socket
from collections.abc import Callable
from threading import Lock

from msgspec import Struct

from dra_driver.backends.nvidia.hardware.wire import Request, arrives

UNENDED_SECONDS = (30.0, 600.0, 7200.0, 86400.0)
"""How long the same is not asked, after the first, second, … such process. The first is short: it may have waited for another request."""
_Question = tuple[str, int, str]


class _Held(Struct, frozen=True):
    connection: socket.socket
    times: int
    until: float

    def ended(self) -> bool:
        return arrives(self.connection, seconds=0)


class Unended:
    """Remembers by question which process has not ended. Threads may use it at the same time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._mutex = Lock()
        self._held: dict[_Question, _Held] = {}

    def keep(self, request: Request, connection: socket.socket) -> None:
        """This request was not answered. The connection is closed here, later."""
        with self._mutex:
            for question in [one for one, held in self._held.items() if held.ended()]:
                self._forget(question)
            before = self._held.get(_question(request))
            times = 1 if before is None else before.times + 1
            seconds = UNENDED_SECONDS[min(times, len(UNENDED_SECONDS)) - 1]
            if before is not None:
                before.connection.close()
            held = _Held(connection, times, self._clock() + seconds)
            self._held[_question(request)] = held

    def forget(self, request: Request) -> None:
        """This request was answered."""
        with self._mutex:
            self._forget(_question(request))

    def blocks(self, request: Request) -> str:
        """Why this is not to be asked now; empty if it may be."""
        with self._mutex:
            held = self._held.get(_question(request))
            if held is None:
                return ""
            if held.ended():
                self._forget(_question(request))
                return ""
            left = held.until - self._clock()
        if left <= 0:
            return ""
        return f"a process that hung in `{request.verb}` does not end, so this is asked again when it has ended, or in {left:.0f} s"

    def close(self) -> None:
        """Forget all."""
        with self._mutex:
            for question in tuple(self._held):
                self._forget(question)

    def _forget(self, question: _Question) -> None:
        held = self._held.pop(question, None)
        if held is not None:
            held.connection.close()


def _question(request: Request) -> _Question:
    return request.verb, request.index, request.uuid
