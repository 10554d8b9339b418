# SPDX-License-Identifier: Apache-2.0
"""Metrics and checks over a real port."""

import http.client
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from dra_driver.daemon.http_endpoint import (
    CONNECTION_LIMIT,
    HEADER_BYTES,
    METRICS_SECONDS,
    REQUEST_SECONDS,
    TICK_SECONDS,
    Check,
    HttpEndpoint,
)
from dra_driver.errors import Fatal

DEADLINE = 300  # seconds, against hanging only


@contextmanager
def serving(
    checks: Mapping[str, Check], *, host: str = "127.0.0.1", registry=None, clock=time.monotonic
) -> Iterator[HttpEndpoint]:
    endpoint = HttpEndpoint((host, 0), registry or CollectorRegistry(), checks, clock=clock)
    thread = Thread(target=endpoint.serve, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.close()
        thread.join(DEADLINE)
        assert not thread.is_alive()


def get(endpoint: HttpEndpoint, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(host, endpoint.port, timeout=DEADLINE)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("Content-Type", ""), text


def test_a_check_answers_what_is_wrong_now(capsys) -> None:
    wrong: list[str] = []
    with serving({"/readyz": lambda: tuple(wrong)}) as endpoint:
        assert get(endpoint, "/readyz?verbose") == (200, "text/plain; charset=utf-8", "ok\n")
        wrong += ["not registered", "no slices"]
        assert get(endpoint, "/readyz") == (
            503,
            "text/plain; charset=utf-8",
            "not registered\nno slices\n",
        )
    assert capsys.readouterr().err == ""  # probes make no noise


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("spoons", "Spoons", registry=registry).inc(3)
    with serving({}, registry=registry) as endpoint:
        status, kind, text = get(endpoint, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "spoons_total 3.0" in text.splitlines()


class Slow(Collector):
    """A metric that takes seconds of the test's clock, and counts how often it is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 100.0
        self.made = 0

    def collect(self) -> Iterator[Metric]:
        self.now += self.seconds
        self.made += 1
        yield CounterMetricFamily("made", "How often", self.made)


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, METRICS_SECONDS), (3.0, 3.0)])
def test_metrics_are_made_once_in_a_while_however_many_ask(seconds: float, pause: float) -> None:
    slow, registry = Slow(seconds), CollectorRegistry()
    registry.register(slow)
    slow.made, slow.now = 0, 100.0  # registering asks for the names
    with serving({"/livez": tuple}, registry=registry, clock=lambda: slow.now) as endpoint:
        texts = {get(endpoint, "/metrics")[2] for _ in range(5)}
        assert len(texts) == slow.made == 1
        assert get(endpoint, "/livez")[2] == "ok\n"
        slow.now += pause
        assert "made_total 2.0" in get(endpoint, "/metrics")[2]


def test_another_path_says_what_is_served() -> None:
    with serving({}) as endpoint:
        assert get(endpoint, "/")[::2] == (404, "/metrics, /livez and /readyz are served here\n")


def test_an_empty_host_answers_on_all_addresses() -> None:
    with serving({"/livez": tuple}, host="") as endpoint:
        assert get(endpoint, "/livez")[0] == 200
        if socket.has_dualstack_ipv6():
            assert get(endpoint, "/livez", "::1")[0] == 200


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Fatal) as caught:
            HttpEndpoint(("127.0.0.1", port), CollectorRegistry(), {})
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1 port {port}: [Errno 98] Address already in use "
        f"(while attempting to bind on address ('127.0.0.1', {port})); choose another --http-address"
    )


def test_closing_before_serving_hangs_nobody() -> None:
    endpoint = HttpEndpoint(("127.0.0.1", 0), CollectorRegistry(), {})
    endpoint.close()
    endpoint.serve()


def test_an_idle_client_does_not_keep_the_others_out() -> None:
    with (
        serving({"/livez": tuple}) as endpoint,
        socket.create_connection(("127.0.0.1", endpoint.port)),
    ):
        assert get(endpoint, "/livez")[0] == 200


def say(endpoint: HttpEndpoint, *pieces: bytes, source: str = "127.0.0.1") -> socket.socket:
    """A connection that says this, piece by piece, and leaves it at that."""
    to, by = ("127.0.0.1", endpoint.port), (source, 0)
    made = socket.create_connection(to, timeout=DEADLINE, source_address=by)
    for piece in pieces:
        made.sendall(piece)
    return made


def heard(connection: socket.socket) -> bytes:
    """Everything until the end; nothing where it was cut off."""
    text = b""
    try:
        while piece := connection.recv(65536):
            text += piece
    except ConnectionResetError:
        return text
    return text


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /livez HTTP/1.0\n\n", b"200 OK"),
        (b"GET /livez?x=1 HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n", b"200 OK"),
        (b"POST /livez HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00\n\n", b"400 Bad Request"),
        (b"GET /livez\r\n\r\n", b"400 Bad Request"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
        (b"GET /livez HTTP/1.1\r\nA: " + b"x" * HEADER_BYTES, b"431 "),
        (
            b"GET /livez HTTP/1.1\r\nA: " + b"x" * HEADER_BYTES + b"\r\n\r\n" + b"y" * 100_000,
            b"431 ",
        ),
    ],
)
def test_each_request_has_its_answer_and_the_connection_ends(
    request_text: bytes, status: bytes
) -> None:
    def broken() -> tuple[str, ...]:
        raise KeyError("secret")

    with serving({"/livez": tuple, "/broken": broken}) as endpoint:
        with say(endpoint, request_text) as connection:
            answer = heard(connection)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"secret" not in answer
        assert get(endpoint, "/livez")[0] == 200


def test_a_request_may_come_in_pieces() -> None:
    with (
        serving({"/livez": tuple}) as endpoint,
        say(endpoint, b"GET /li", b"vez HTTP/1.1\r", b"\n\r", b"\n") as connection,
    ):
        assert heard(connection).endswith(b"\r\n\r\nok\n")


def test_a_long_answer_reaches_a_client_that_takes_its_time() -> None:
    registry = CollectorRegistry()
    many = Counter("spoons", "Spoons", ["name"], registry=registry)
    for number in range(6000):  # more than a connection takes for a client that does not read
        many.labels(f"spoon-{number:01500}").inc()
    with (
        serving({"/livez": tuple}, registry=registry) as endpoint,
        say(endpoint, b"GET /metrics HTTP/1.1\r\n\r\n") as connection,
    ):
        assert get(endpoint, "/livez")[0] == 200
        head, _, body = heard(connection).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert len(body) > 5_000_000


def test_a_thousand_connections_that_never_end_their_request_delay_no_probe_and_cost_little() -> (
    None
):
    # Time stands still: who is closed is closed for its age among the others.
    with serving({"/livez": tuple}, clock=lambda: 100.0) as endpoint:
        get(endpoint, "/livez")
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            slow = []
            for number in range(1000):
                slow.append(say(endpoint, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 7000))
                if number % 100 == 99:
                    assert get(endpoint, "/livez") == (200, "text/plain; charset=utf-8", "ok\n")
            cost = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert len(endpoint._connections) <= CONNECTION_LIMIT
        slow[0].settimeout(DEADLINE)
        assert heard(slow[0]) == b""  # the oldest went first
        for connection in slow:
            connection.close()
    assert cost < 10 * 2**20


@pytest.mark.parametrize("said", [b"", b"GET /livez ", b"GET /metrics HTTP/1.1\r\n\r\n"])
def test_who_hammers_takes_the_place_of_his_own_connections_and_not_of_a_probe_that_is_slow(
    said: bytes,
) -> None:
    with serving({"/livez": tuple}) as endpoint, say(endpoint, b"GET /livez ") as probe:
        get(endpoint, "/livez")
        hammered = [say(endpoint, said, source="127.0.0.2") for _ in range(CONNECTION_LIMIT * 3)]
        get(endpoint, "/livez")  # all of them are accepted
        assert len(endpoint._connections) <= CONNECTION_LIMIT
        probe.sendall(b"HTTP/1.1\r\n\r\n")
        assert heard(probe).endswith(b"\r\n\r\nok\n")
        for connection in hammered:
            connection.close()


def test_who_has_its_answer_and_stays_is_closed_before_who_still_asks() -> None:
    with serving({"/livez": tuple}) as endpoint, say(endpoint, b"GET /livez ") as asking:
        told = [say(endpoint, b"GET /livez HTTP/1.1\r\n\r\n") for _ in range(CONNECTION_LIMIT * 2)]
        assert get(endpoint, "/livez")[0] == 200
        asking.sendall(b"HTTP/1.1\r\n\r\n")
        assert heard(asking).endswith(b"ok\n")
        for connection in told:
            connection.close()


@pytest.mark.parametrize("said", [b"", b"GET /livez", b"GET /livez HTTP/1.1\r\n\r\n"])
def test_a_connection_has_so_many_seconds_in_all(said: bytes) -> None:
    now = [100.0]
    with (
        serving({"/livez": tuple}, clock=lambda: now[0]) as endpoint,
        say(endpoint, said) as slow,
    ):
        wait_until(lambda: len(endpoint._connections) == 1)
        now[0] += REQUEST_SECONDS - 0.1
        slow.sendall(b"x")  # saying a little now and then does not help
        assert get(endpoint, "/livez")[0] == 200
        assert len(endpoint._connections) >= 1
        now[0] += 0.2
        wait_until(lambda: not endpoint._connections)
        heard(slow)


def test_while_nobody_is_connected_it_waits_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = HttpEndpoint(("127.0.0.1", 0), CollectorRegistry(), {"/livez": tuple})
    waits: list[float | None] = []
    real = endpoint._selector.select

    def select(seconds: float | None) -> object:
        waits.append(seconds)
        return real(DEADLINE)  # there is always something to read here

    monkeypatch.setattr(endpoint._selector, "select", select)
    with say(endpoint, b"GET /livez HTTP/1.1\r\n") as slow:
        endpoint._poll()
        slow.sendall(b"x")
        endpoint._poll()
    assert waits == [None, TICK_SECONDS]
    endpoint.close()


def test_without_descriptors_it_rests_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    class Exhausted:
        """The listening socket of a process without descriptors, for a while."""

        def __init__(self, real: socket.socket) -> None:
            self.real = real

        def accept(self) -> tuple[socket.socket, object]:
            tries.append(1)
            if len(tries) < 3:
                raise OSError(24, "Too many open files")
            return self.real.accept()

        def fileno(self) -> int:
            return self.real.fileno()

        def close(self) -> None:
            self.real.close()

    endpoint = HttpEndpoint(("127.0.0.1", 0), CollectorRegistry(), {"/livez": tuple})
    endpoint._selector.unregister(endpoint._listening)
    monkeypatch.setattr(endpoint, "_listening", Exhausted(endpoint._listening))
    endpoint._selector.register(endpoint._listening, 1)
    thread = Thread(target=endpoint.serve, daemon=True)
    thread.start()
    assert get(endpoint, "/livez")[0] == 200
    assert len(tries) <= 6  # not once for each turn of a loop
    endpoint.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
