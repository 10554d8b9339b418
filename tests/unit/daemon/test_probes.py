# SPDX-License-Identifier: Apache-2.0
"""What a running driver says of itself, asked over HTTP of the real endpoint and of strangers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import process_time

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
    assert word.sample_ages == {"gpu-0": 3.0, r"odd \"} 7": 5.0, "gpu-1": 61.5}
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
        (b"SSH-2.0-OpenSSH\r\n", "“SSH-2.0-OpenSSH"),
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


AGE = b"dra_driver_device_sample_age_seconds"


@pytest.mark.parametrize(
    ("line", "ages"),
    [
        (b'{device="a"} 1e+02\n', {"a": 100.0}),
        (b'{x="1",device="a",y="b,} 1"} 5', {"a": 5.0}),
        (b'{x="1"} 5\n', {}),
        (b'{device="a"} old\n', {}),
        (b'{device="a", 5\n', {}),
        (b'{device="a",} 5\n', {}),
        (b'{device="a 5\n', {}),
        (b"{} 5\n", {}),
        (b'{device="' + b"a" * probes.LONGEST_LINE + b'"} 5\n', {}),
    ],
)
def test_a_line_of_a_scrape(line: bytes, ages: dict[str, float]) -> None:
    assert probes._by_device(b"# HELP x\n" + AGE + line).get(AGE, {}) == ages


@pytest.mark.parametrize(
    "unit",
    [b',device="a"', b'device="a",', b'd="', b"a", b'\\"', b"\n", b"{", AGE + b'{device="', AGE + b'{a="",'],
)  # fmt: skip
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_largest_answer_is_read_in_seconds(unit: bytes, end: bytes) -> None:
    """Whoever listens may answer anything, and while a pattern is looked for no deadline counts."""
    hostile = AGE + b"{" + unit * (probes.LARGEST_SCRAPE // len(unit)) + end
    lines = (AGE + b"{" + unit * (4000 // len(unit)) + b"\n") * 1000
    begin = process_time()
    probes._by_device(hostile)
    probes._by_device(lines)
    assert process_time() - begin < 100  # hours, if it is not linear
