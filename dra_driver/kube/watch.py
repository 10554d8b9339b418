# SPDX-License-Identifier: Apache-2.0
"""How is the stream of a watch read?

The server sends one JSON event per line, and lines arrive in pieces of any size. If the stream ends inside a line, this part is
dropped: the next watch starts at the last version that was seen and reports the event again. An ERROR event contains a Status
object and ends the watch. If an object cannot be read, or its line is too long, `read_event` raises Malformed. The caller may
then go on with the next line.

A thread that waits for bytes cannot notice that `stop` is set. So a second thread looks at `stop`, and breaks the connection.
"""

from collections.abc import Iterator, Mapping
from threading import Event, Thread
from typing import Any

import msgspec
import urllib3

from dra_driver.kube.base import Malformed
from dra_driver.kube.decode import Found, identity, read_object
from dra_driver.kube.failures import ApiCall, garbage, malformed, read_answer, refused
from dra_driver.kube.strict import Undecodable

PIECE_BYTES = 64 * 1024
LARGEST_LINE_BYTES = 4 * 1024 * 1024
KEPT_BYTES = 4 * 1024
"""The driver keeps only this much of a line that is too long. The object's name and version are at its beginning."""
STOP_LOOK_SECONDS = 0.2
SILENT_WATCH_SECONDS = 30.0
"""The driver asks the API server to end a watch after some time. If no byte comes for that time plus these seconds, the driver
closes the connection."""


class CutLine(bytes):
    """The beginning of a line that is too long, as `read_lines` yields it."""


def read_lines(
    response: urllib3.BaseHTTPResponse, stop: Event, *, largest_bytes: int = LARGEST_LINE_BYTES
) -> Iterator[bytes]:
    """Whole lines until the stream ends, breaks (urllib3's HTTPError) or `stop` is set; closes the response.

    Instead of a line that is longer than `largest_bytes`, it yields a CutLine.
    """
    done = Event()
    Thread(
        target=_break_on_stop, args=(response, stop, done), name="watch-stopper", daemon=True
    ).start()
    begun = bytearray()
    size = 0  # bytes of the current line so far; `begun` has fewer if the line is too long
    try:
        while piece := response.read1(PIECE_BYTES, decode_content=False):
            *ends, rest = piece.split(b"\n")
            for end in ends:
                size += len(end)
                begun += end
                if size > largest_bytes:
                    yield CutLine(begun[:KEPT_BYTES])
                elif begun.strip():
                    yield bytes(begun)
                begun.clear()
                size = 0
            size += len(rest)
            begun += rest
            if size > largest_bytes:
                del begun[KEPT_BYTES:]
    except urllib3.exceptions.HTTPError:
        if not stop.is_set():
            raise
    finally:
        done.set()
        response.close()


def read_event(call: ApiCall, line: bytes) -> tuple[str, Mapping[str, Any]]:
    """The type and the object of an event; opaque content that cannot be read is None.

    Raises Malformed for an object that cannot be read, and another DriverError for an ERROR event or a line that is no event.
    """
    if isinstance(line, CutLine):
        raise _malformed(call, line, f"the event is longer than {LARGEST_LINE_BYTES:,} bytes")
    found = _read(call, line)
    kind, obj = found.content.get("type"), found.content.get("object")
    for defect in found.defects:
        if not defect.is_opaque:
            raise _malformed(call, line, str(defect))
    if not isinstance(obj, Mapping):
        raise garbage(call, line)
    if kind == "ERROR":
        code = obj.get("code")
        raise refused(
            call, read_answer(code if isinstance(code, int) else 500, {}, msgspec.json.encode(obj))
        )
    return str(kind), obj


def _read(call: ApiCall, line: bytes) -> Found:
    try:
        return read_object(line)
    except Undecodable as error:
        raise garbage(call, line) from error


def _malformed(call: ApiCall, line: bytes, what: str) -> Malformed:
    who = identity(line, b"object")
    return malformed(call, f"{who}: {what}", resource_version=who.resource_version)


def _break_on_stop(response: urllib3.BaseHTTPResponse, stop: Event, done: Event) -> None:
    while not done.is_set():
        if stop.wait(STOP_LOOK_SECONDS):
            try:
                response.shutdown()
            except (OSError, RuntimeError, ValueError):
                return  # the stream ended in the meantime
            return
