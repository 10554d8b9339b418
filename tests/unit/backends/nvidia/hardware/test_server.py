# SPDX-License-Identifier: Apache-2.0
import socket
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from queue import Queue
from threading import Event

import msgspec
import pytest

from dra_driver.backends.nvidia.facts import HardwareEvent
from dra_driver.backends.nvidia.hardware import server as server_module
from dra_driver.backends.nvidia.hardware.nvml import Failed, Replaced
from dra_driver.backends.nvidia.hardware.server import MOST_REQUESTS, Server, Watchdog
from dra_driver.backends.nvidia.hardware.wire import (
    Answer,
    Broken,
    Happened,
    Request,
    receive,
    send,
)
from tests.support.nvml_link import Patient

HAPPENED = Happened(HardwareEvent(uuid="GPU-1", type=8, data=79))


class Answers:
    """What a test wants to be answered."""

    def __init__(self) -> None:
        self.ends: int | None = None
        self.go = Event()
        self.stream: list[Happened | Exception | None] = []
        self.closed = Event()

    def table(self) -> Mapping[str, Callable[[Request], object]]:
        return {"gpu": self.gpu, "node": self.node, "ping": lambda _: None, "let_go": self.let_go}

    def gpu(self, request: Request) -> object:
        if request.index == 1:
            raise Failed("GPU 1 is lost", code=15, retry=True)
        if request.index == 2:
            raise KeyError("a fault")
        return {"index": request.index}

    def node(self, _: Request) -> object:
        raise Replaced

    def let_go(self, _: Request) -> object:
        self.ends = 75
        return None

    def events(self) -> Generator[Happened | None, None, None]:
        try:
            for one in self.stream:
                if isinstance(one, Exception):
                    raise one
                yield one
            while True:
                yield None
        finally:
            self.closed.set()


class Served:
    def __init__(self) -> None:
        self.answers = Answers()
        self.ended = Event()
        self.codes: list[int] = []
        self.server = Server(self.answers, Patient(), self.end)

    def end(self, code: int) -> None:
        self.codes.append(code)
        self.ended.set()

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.server.take(theirs)
        return ours

    def ask(self, request: Request) -> Answer:
        with closing(self.connect()) as connection:
            send(connection, request, seconds=5)
            return receive(connection, Answer, seconds=5)


@pytest.fixture
def served() -> Served:
    return Served()


def test_a_request_is_answered_once(served: Served) -> None:
    answer = served.ask(Request("gpu", index=0))
    assert msgspec.json.decode(answer.result) == {"index": 0}
    assert not served.ended.is_set()


def test_a_failure_is_answered_with_its_number(served: Served) -> None:
    error = served.ask(Request("gpu", index=1)).error
    assert error is not None
    assert (error.message, error.code, error.retry) == ("GPU 1 is lost", 15, True)


def test_a_fault_of_the_process_costs_one_request(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    error = served.ask(Request("gpu", index=2)).error
    assert error is not None
    assert "KeyError" in error.message
    assert "Traceback" in capsys.readouterr().err
    assert served.ask(Request("gpu", index=0)).error is None


def test_an_unknown_verb_is_told(served: Served) -> None:
    error = served.ask(Request("dance")).error
    assert error is not None
    assert "same image" in error.message


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02{}"])
def test_garbage_costs_its_connection(sent: bytes, served: Served) -> None:
    with closing(served.connect()) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with pytest.raises(Broken):
            receive(connection, Answer, seconds=5)
    assert served.ask(Request("ping")).error is None


def test_a_request_that_never_comes_does_not_hold_a_thread(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SECONDS", 0.05)
    with closing(served.connect()) as connection, pytest.raises(Broken):
        receive(connection, Answer, seconds=5)


def test_too_many_requests_are_closed_and_later_ones_are_answered(served: Served) -> None:
    waiting = [served.connect() for _ in range(MOST_REQUESTS)]
    with closing(served.connect()) as one_more, pytest.raises(Broken):
        receive(one_more, Answer, seconds=5)
    for connection in waiting:
        connection.close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            assert served.ask(Request("ping")).error is None
        except Broken:
            continue
        return
    pytest.fail("no request is answered any more")


def test_a_process_that_has_to_end_answers_first(served: Served) -> None:
    assert served.ask(Request("let_go")).error is None
    assert served.ended.wait(5)
    assert served.codes == [75]


def test_a_replaced_library_ends_the_process_without_an_answer(served: Served) -> None:
    with pytest.raises(Broken):
        served.ask(Request("node"))
    assert served.ended.wait(5)


def test_events_are_sent_until_the_other_side_closes(served: Served) -> None:
    served.answers.stream = [None, HAPPENED, None, HAPPENED]
    connection = served.connect()
    send(connection, Request("events"), seconds=5)
    assert receive(connection, Answer, seconds=5) == Answer()
    assert [receive(connection, Happened, seconds=5) for _ in range(2)] == [HAPPENED, HAPPENED]
    connection.close()
    assert served.answers.closed.wait(5)


def test_a_stream_that_cannot_begin_says_why(served: Served) -> None:
    served.answers.stream = [Failed("no GPU has events", code=3)]
    error = served.ask(Request("events")).error
    assert error is not None
    assert error.code == 3


def test_a_stream_that_fails_later_is_closed(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.answers.stream = [None, HAPPENED, Failed("a GPU is lost", code=15)]
    with closing(served.connect()) as connection:
        send(connection, Request("events"), seconds=5)
        receive(connection, Answer, seconds=5)
        receive(connection, Happened, seconds=5)
        with pytest.raises(Broken):
            receive(connection, Happened, seconds=5)
    assert "a GPU is lost" in capsys.readouterr().err


def test_the_watchdog_runs_to_the_earliest_deadline_and_stops_when_nothing_is_asked() -> None:
    told: list[float] = []
    watchdog = Watchdog(told.append, lambda: told.append(0))
    with watchdog.within(10, "node"):
        with watchdog.within(5, "gpu"):
            assert 4 < told[-1] <= 5
        assert 9 < told[-1] <= 10
    assert told[-1] == 0


def test_a_hang_is_told_in_words_before_the_process_ends() -> None:
    told = Queue[str]()
    words: list[str] = []
    watchdog = Watchdog(lambda _: None, lambda: None, told.put)
    with watchdog.within(0.01, "gpu"):
        words.append(told.get(timeout=10))
    assert words[0].startswith("hardware process: the request `gpu` has not returned within 0 s, ")
    assert "this process ends now, and the next request gets another one" in words[0]
    with watchdog.within(0.3, "gpu"):
        pass
    time.sleep(0.5)
    assert told.empty()
