# SPDX-License-Identifier: Apache-2.0
"""What does a watch report? A stream of JSON lines taken apart.

The server sends one event a line; lines arrive in pieces of any size. A stream that ends inside a line ended early: the
half line is dropped, and the next watch, from the last version that was seen, brings the event again. An ERROR event is
the server's Status object and ends the watch. An event whose object cannot be read, or whose line is longer than anybody
needs, is Malformed: it costs itself, and the stream goes on behind it.

A reader that waits for bytes cannot look at an Event, so a small thread does, and breaks the connection when `stop` is
set.
"""

from collections.abc import Iterator, Mapping
from threading import Event, Thread
from typing import Any

import msgspec
import urllib3

from dra_driver.kube.base import Malformed
from dra_driver.kube.decode import Found, identity, read_object
from dra_driver.kube.failures import Call, garbage, malformed, read_answer, refused
from dra_driver.kube.strict import Undecodable

PIECE_BYTES = 64 * 1024
LARGEST_LINE_BYTES = 4 * 1024 * 1024
KEPT_BYTES = 4 * 1024
"""So much is kept of a longer line: its object's name and version stand at the beginning."""
STOP_LOOK_SECONDS = 0.2


class CutLine(bytes):
    """The beginning of a line that is too long."""


def read_lines(
    response: urllib3.BaseHTTPResponse, stop: Event, *, largest_bytes: int = LARGEST_LINE_BYTES
) -> Iterator[bytes]:
    """Whole lines until the stream ends, breaks (urllib3's HTTPError) or `stop` is set; closes the response.

    Of a line that is longer than `largest_bytes` comes a CutLine.
    """
    done = Event()
    Thread(
        target=_break_on_stop, args=(response, stop, done), name="watch-stopper", daemon=True
    ).start()
    begun = bytearray()
    size = 0  # of the line that has begun; its bytes are kept up to the limit
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


def read_event(call: Call, line: bytes) -> tuple[str, Mapping[str, Any]]:
    """An event's type and object; opaque content that cannot be read is None.

    Raises Malformed for an object that cannot be read, DriverError for an ERROR event and for what is no event.
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


def _read(call: Call, line: bytes) -> Found:
    try:
        return read_object(line)
    except Undecodable as error:
        raise garbage(call, line) from error


def _malformed(call: Call, line: bytes, what: str) -> Malformed:
    who = identity(line, b"object")
    return malformed(call, f"{who}: {what}", resource_version=who.resource_version)


def _break_on_stop(response: urllib3.BaseHTTPResponse, stop: Event, done: Event) -> None:
    while not done.is_set():
        if stop.wait(STOP_LOOK_SECONDS):
            try:
                response.shutdown()
            except (OSError, RuntimeError, ValueError):
                return  # the stream ended by itself in the meantime
            return
