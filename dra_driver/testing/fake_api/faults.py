# SPDX-License-Identifier: Apache-2.0
"""The faults that a test can give to the fake API server.

A test adds a fault for a verb and a resource. The next `times` matching requests get the fault. Verbs are those of the API (get,
list, watch, create, update, patch, delete, deletecollection). The resource of a discovery request is "discovery". "*" matches
every verb or resource.
"""

import json
import threading
from collections.abc import Mapping

from msgspec import Struct, field


class Request(Struct, frozen=True):
    """One request that arrived; `client` is the address of the client's end of the connection."""

    verb: str
    resource: str
    path: str
    user_agent: str = ""
    client: tuple[str, int] = ("", 0)


class Answer(Struct, frozen=True):
    """Send this status, headers and body, and do not carry out the request."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Reset(Struct, frozen=True):
    """Close the connection without an answer."""


class Hold(Struct, frozen=True):
    """Wait until the event is set or the server stops, then carry out the request."""

    until: threading.Event


class CutWatch(Struct, frozen=True):
    """Send half of an event's line, then end the watch: normally, or by a reset of the connection."""

    clean: bool = True


class WatchLine(Struct, frozen=True):
    """Send this line as a watch event, in pieces of `piece` bytes, then go on."""

    line: bytes
    piece: int = 0


Misbehaviour = Answer | Reset | Hold | CutWatch | WatchLine


def refusal(code: int, *, retry_after: int | None = None) -> Answer:
    """Return a Status object with this code, with the texts of the real server."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    reason, message = REASONS.get(code, ("InternalError", f"injected fault {code}"))
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
    return Answer(code, headers, json.dumps(body).encode())


class _Queued(Struct):
    what: Misbehaviour
    verb: str
    resource: str
    left: int
    passes: int


class Faults(Struct):
    """The faults that no request got yet. Safe to use from several threads."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _queued: list[_Queued] = field(default_factory=list)

    def add(
        self,
        what: Misbehaviour,
        *,
        verb: str = "*",
        resource: str = "*",
        times: int = 1,
        after: int = 0,
    ) -> None:
        """Let `after` matching requests pass. Then the next `times` matching requests get this fault."""
        with self._lock:
            self._queued.append(_Queued(what, verb, resource, times, after))

    def pending(self) -> bool:
        """Return whether a fault is left."""
        with self._lock:
            return any(queued.left for queued in self._queued)

    def status(
        self,
        code: int,
        *,
        verb: str = "*",
        resource: str = "*",
        times: int = 1,
        retry_after: int | None = None,
    ) -> None:
        """Refuse the next matching requests with this code."""
        self.add(refusal(code, retry_after=retry_after), verb=verb, resource=resource, times=times)

    def take(self, verb: str, resource: str) -> Misbehaviour | None:
        """Return the fault for this request, or None. This uses the fault once."""
        with self._lock:
            for queued in self._queued:
                if queued.verb in ("*", verb) and queued.resource in ("*", resource):
                    if queued.passes:
                        queued.passes -= 1
                        continue
                    queued.left -= 1
                    if not queued.left:
                        self._queued.remove(queued)
                    return queued.what
        return None

    def clear(self) -> None:
        with self._lock:
            self._queued.clear()


REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", 'User "fake" cannot do this'),
    409: (
        "Conflict",
        "the object has been modified; please apply your changes to the latest version and try again",
    ),
    410: ("Expired", "too old resource version"),
    422: ("Invalid", "the object is invalid"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}
