# SPDX-License-Identifier: Apache-2.0
"""How does the fake API server misbehave when a test asks for it?

A test queues faults; each answers the next `times` requests that fit its verb and resource, then is used up. Verbs are the
API's words (get, list, watch, create, update, patch, delete, deletecollection); the resource of a discovery request is
"discovery". "*" fits everything.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """One request that arrived; `client` is its connection's address on the other side."""

    verb: str
    resource: str
    path: str
    user_agent: str = ""
    client: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this status, headers and body instead of doing the request."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reset:
    """Close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until the event is set (or the server stops), then do the request."""

    until: threading.Event


@dataclass(frozen=True, slots=True)
class CutWatch:
    """Send half a line of an event, then end the watch: as a clean end of the stream, or by a reset."""

    clean: bool = True


@dataclass(frozen=True, slots=True)
class WatchLine:
    """Send this line as a watch event, in pieces of `piece` bytes, then go on."""

    line: bytes
    piece: int = 0


Misbehaviour = Answer | Reset | Hold | CutWatch | WatchLine


def refusal(code: int, *, retry_after: int | None = None) -> Answer:
    """A Status object of this code, as the real server words it."""
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


@dataclass(slots=True)
class _Queued:
    what: Misbehaviour
    verb: str
    resource: str
    left: int
    passes: int


@dataclass(slots=True)
class Faults:
    """The faults that wait for their request. All methods may be called from any thread."""

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
        """Do this to the next `times` requests that fit, once `after` of them have passed unharmed."""
        with self._lock:
            self._queued.append(_Queued(what, verb, resource, times, after))

    def pending(self) -> bool:
        """Whether something is still to come."""
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
        """Refuse the next requests that fit with this code."""
        self.add(refusal(code, retry_after=retry_after), verb=verb, resource=resource, times=times)

    def take(self, verb: str, resource: str) -> Misbehaviour | None:
        """The fault for this request, used up by one."""
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
