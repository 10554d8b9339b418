# SPDX-License-Identifier: Apache-2.0
"""What does a watch report? A stream of JSON lines taken apart.

The server sends one event a line; lines arrive in pieces of any size. A stream that ends inside a line ended early: the
half line is dropped, and the next watch, from the last version that was seen, brings the event again. An ERROR event is
the server's Status object and ends the watch.

A reader that waits for bytes cannot look at an Event, so a small thread does, and breaks the connection when `stop` is
set.
"""

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import msgspec
import urllib3

from dra_driver.kube.failures import Call, garbage, read_answer, refused

PIECE_BYTES = 64 * 1024
STOP_LOOK_SECONDS = 0.2


def read_lines(response: urllib3.BaseHTTPResponse, stop: Event) -> Iterator[bytes]:
    """Whole lines until the stream ends, breaks (urllib3's HTTPError) or `stop` is set; closes the response."""
    done = Event()
    Thread(
        target=_break_on_stop, args=(response, stop, done), name="watch-stopper", daemon=True
    ).start()
    rest = b""
    try:
        while piece := response.read1(PIECE_BYTES, decode_content=False):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line for line in lines if line.strip())
    except urllib3.exceptions.HTTPError:
        if not stop.is_set():
            raise
    finally:
        done.set()
        response.close()


def read_event(call: Call, line: bytes) -> tuple[str, dict[str, Any]]:
    """An event's type and object. Raises DriverError for an ERROR event and for what is no event."""
    try:
        event = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise garbage(call, line) from error
    obj = event.get("object") if isinstance(event, dict) else None
    if not isinstance(obj, dict):
        raise garbage(call, line)
    if event.get("type") == "ERROR":
        code = obj.get("code")
        raise refused(
            call, read_answer(code if isinstance(code, int) else 500, {}, msgspec.json.encode(obj))
        )
    return str(event.get("type")), obj


def _break_on_stop(response: urllib3.BaseHTTPResponse, stop: Event, done: Event) -> None:
    while not done.is_set():
        if stop.wait(STOP_LOOK_SECONDS):
            try:
                response.shutdown()
            except (OSError, RuntimeError, ValueError):
                return  # the stream ended by itself in the meantime
            return
