# SPDX-License-Identifier: Apache-2.0
"""The messages between the driver and the hardware process: frames of JSON on a stream socket.

A frame is four bytes with the length, in network order, and so many bytes of JSON. A connection carries one request and its answer.
After the answer to `events` follow frames of `Happened` until one side closes the connection.

Neither side trusts the other's bytes: a frame that is too long, cut short or no such value costs this connection.
"""

import select
import socket
import struct
import time
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from dra_driver.backends.nvidia.facts import HardwareEvent, Installation, PciGpu, System

LARGEST = 16 * 1024 * 1024
"""Bytes of a frame. The facts of 16 GPUs with all their MIG devices need a hundredth of it."""

DEADLINES: Mapping[str, float] = {
    # The first call opens the library; without nvidia-persistenced each GPU then needs one to three seconds.
    "node": 30.0,
    "gpu": 10.0,
    "mig_profiles": 10.0,
    "processes": 10.0,
    "usage": 10.0,
    "set_compute_mode": 10.0,
    "set_time_slice": 15.0,
    "let_go": 10.0,
    "events": 30.0,  # until the stream begins; it has no end
    "ping": 2.0,
}
"""The verbs, and the seconds after which the hardware process ends itself because a call of this verb has not returned."""

MOST_GPUS = 1024
"""No machine has a tenth of it. The driver asks for each GPU, so a wrong number here would cost its time and memory."""

_LENGTH = struct.Struct("!I")
_T = TypeVar("_T")


class Broken(Exception):
    """The other side closed the connection, or sent something that is no message."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the driver asks: a verb of `DEADLINES` and its arguments."""

    verb: str
    index: int = -1
    uuid: str = ""
    value: int = 0


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why there is no result. `code` is the number of the library's error, if it was one; `retry`: a later attempt may succeed."""

    message: str
    code: int | None = None
    retry: bool = False


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result, still encoded, or the failure."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None


class Listing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to `node`: everything but the facts of each GPU. The indices of GPUs are 0 to `count` - 1; to open one of them may
    hang, so `gpu` does it. `problem` as in `facts.Node`.
    """

    system: System = System()
    count: Annotated[int, Meta(ge=0, le=MOST_GPUS)] = 0
    pci: tuple[PciGpu, ...] = ()
    installation: Installation = Installation()
    problem: str = ""


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of the stream: an event of the library, or without one: `look` would show something else now."""

    event: HardwareEvent | None = None


def send(connection: socket.socket, value: object, *, seconds: float) -> None:
    """Send one frame. Raises Broken, and TimeoutError if the other side does not read it within `seconds`."""
    text = msgspec.json.encode(value)
    if len(text) > LARGEST:
        raise Broken(f"the message has {len(text)} bytes, more than {LARGEST}")
    connection.settimeout(seconds)
    try:
        connection.sendall(_LENGTH.pack(len(text)) + text)
    except TimeoutError:
        raise
    except OSError as error:
        raise Broken(f"the connection broke: {error}") from error


def receive(connection: socket.socket, kind: type[_T], *, seconds: float) -> _T:
    """Receive one frame of this kind. Raises Broken, and TimeoutError if it is not complete after `seconds`."""
    until = time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size, until))
    if length > LARGEST:
        raise Broken(f"a message of {length} bytes was announced, more than {LARGEST}")
    text = _read(connection, length, until)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"the message is no {kind.__name__}: {error}") from error


def arrives(connection: socket.socket, *, seconds: float) -> bool:
    """Wait until there is something to receive, or the other side has closed. Returns whether that came within `seconds`."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _read(connection: socket.socket, length: int, until: float) -> bytes:
    parts: list[bytes] = []
    while length:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        try:
            part = connection.recv(min(length, 65536))
        except TimeoutError:
            raise
        except OSError as error:
            raise Broken(f"the connection broke: {error}") from error
        if not part:
            raise Broken("the connection was closed before the message was complete")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
