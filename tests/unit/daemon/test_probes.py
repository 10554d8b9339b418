# SPDX-License-Identifier: Apache-2.0
"""What a running driver says of itself, asked over HTTP of the real endpoint and of strangers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry, Gauge

from dra_driver.daemon import probes
from dra_driver.daemon.http_endpoint import HttpEndpoint
from dra_driver.daemon.probes import own_word
from dra_driver.model.host import OwnWord


@contextmanager
def driver(readyz: tuple[str, ...] = ()) -> Iterator[int]:
    registry = CollectorRegistry()
    age = Gauge("dra_driver_device_sample_age_seconds", "x", ["device"], registry=registry)
    age.labels("gpu-0").set(3)
    age.labels('odd "} 7').set(5)
    age.labels("gpu-1").set(61.5)
    gone = Gauge("dra_driver_device_vanished", "x", ["device"], registry=registry)
    for name, value in (("gpu-0", 0), ("gpu-7", 1), ("gpu-3", 1)):
        gone.labels(name).set(value)
    Gauge("dra_driver_device_healthy", "x", ["device"], registry=registry).labels("gpu-2").set(1)
    checks = {"/livez": lambda: (), "/readyz": lambda: readyz}
    served = HttpEndpoint(("127.0.0.1", 0), registry, checks)
    thread = Thread(target=served.serve)
    thread.start()
    try:
        yield served.port
    finally:
        served.close()
        thread.join()


def test_a_driver_that_is_well() -> None:
    with driver() as port:
        word = own_word(("", port))
    assert (word.address, word.unanswered) == (f"127.0.0.1:{port}", "")
    assert (word.livez, word.readyz) == ((), ())
    assert (word.sample_ages["gpu-0"], word.sample_ages["gpu-1"]) == (3.0, 61.5)
    assert "gpu-2" not in word.sample_ages
    assert word.vanished == ("gpu-3", "gpu-7")


def test_a_driver_that_is_not_ready_says_why() -> None:
    with driver(("no scan has succeeded for 23 s", "not registered")) as port:
        word = own_word(("127.0.0.1", port))
    assert word.readyz == ("no scan has succeeded for 23 s", "not registered")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert own_word(("0.0.0.0", port)) == OwnWord(
        f"127.0.0.1:{port}", unanswered=f"cannot ask 127.0.0.1:{port}: Connection refused"
    )
    shown = own_word(("::", port))
    assert shown.address == f"[::1]:{port}"
    assert shown.unanswered.startswith(f"cannot ask [::1]:{port}: ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nok", "/livez has status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "/livez has status 200"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH-2.0-OpenSSH"),
    ],
)
def test_a_stranger_is_not_taken_for_the_driver(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def reply() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(9999)
                peer.sendall(answer)

        thread = Thread(target=reply)
        thread.start()
        word = own_word(("127.0.0.1", port))
        thread.join()
    assert word.unanswered.startswith(f"127.0.0.1:{port} gives no answer of a driver: {said}")


def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        word = own_word(("127.0.0.1", listening.getsockname()[1]))
    assert word.unanswered.endswith(": timed out")
