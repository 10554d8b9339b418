# SPDX-License-Identifier: Apache-2.0
import socket
from collections.abc import Iterator

import pytest

from dra_driver.backends.nvidia.hardware import wire
from dra_driver.backends.nvidia.hardware.wire import (
    Answer,
    Broken,
    Listing,
    Request,
    arrives,
    receive,
    send,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


def test_a_message_arrives_as_it_was_sent(pair: Pair) -> None:
    request = Request("gpu", index=3, uuid="GPU-1", value=2)
    send(pair[0], request, seconds=1)
    assert receive(pair[1], Request, seconds=1) == request


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x02{]",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x04\xff\xfe\xfd\xfc",
        b"\x00\x00\x00\x12" + b'{"verb": "a\xff\xff\xff"',
        b"\x00\x01\x00\x00" + b"[" * 0x10000,
        b'\x00\x00\x00\x14{"verb":1,"index":2}',
        b"\xff\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n",
    ],
)
def test_garbage_is_broken_whatever_it_is(sent: bytes, pair: Pair) -> None:
    pair[0].sendall(sent)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(Broken):
        receive(pair[1], Request, seconds=1)


def test_a_message_that_is_cut_short_is_broken(pair: Pair) -> None:
    pair[0].sendall(b"\x00\x00\x00\x09{")
    pair[0].close()
    with pytest.raises(Broken, match="closed before the message was complete"):
        receive(pair[1], Request, seconds=1)


def test_a_message_that_comes_byte_by_byte_does_not_outlast_the_deadline(pair: Pair) -> None:
    pair[0].sendall(b"\x00\x00\x00\x09{")
    with pytest.raises(TimeoutError):
        receive(pair[1], Request, seconds=0.05)


def test_a_message_that_nobody_reads_does_not_outlast_the_deadline(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TimeoutError):
        send(pair[0], "x" * 4_000_000, seconds=0.05)


def test_a_message_that_is_too_long_is_not_sent(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LARGEST", 5)
    with pytest.raises(Broken, match="more than 5"):
        send(pair[0], "123456", seconds=1)
    assert not arrives(pair[1], seconds=0)


def test_a_message_to_nobody_is_broken(pair: Pair) -> None:
    pair[1].close()
    with pytest.raises(Broken):
        send(pair[0], Answer(), seconds=1)


def test_a_value_of_a_later_version_with_more_fields_is_read(pair: Pair) -> None:
    send(pair[0], {"count": 2, "later": True}, seconds=1)
    assert receive(pair[1], Listing, seconds=1) == Listing(count=2)
