# SPDX-License-Identifier: Apache-2.0
"""Calls are done in the order of arrival by so many workers, and answered before their callers give up."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Event, Thread

import pytest

from dra_driver.errors import Temporary
from dra_driver.kubelet import calls
from dra_driver.kubelet.calls import CallCounts, Calls

HANG_SECONDS = 60


class Clock:
    """Seconds that pass by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bed:
    """Calls with few workers, callers of them, and work that goes on until the test says so."""

    def __init__(self, workers: int = 2) -> None:
        self.clock = Clock()
        self.calls = Calls("prepare", workers=workers, clock=self.clock)
        self.callers = ThreadPoolExecutor(16)
        self.go_on = Event()
        self.begun: list[float] = []
        self.inside = Event()

    def blocks(self, until: float) -> str:
        self.begun.append(until)
        if len(self.begun) == self.calls.counts().workers:
            self.inside.set()
        assert self.go_on.wait(HANG_SECONDS)
        return "done"

    def call(
        self, seconds: float | None = 45.0, work: Callable[[float], str] | None = None
    ) -> Future[str]:
        return self.callers.submit(self.calls.do, work or self.blocks, seconds_left=seconds)

    def until_one_waits(self) -> None:
        end = time.monotonic() + HANG_SECONDS
        while self.calls.counts().waiting != 1:
            assert time.monotonic() < end
            time.sleep(0.001)

    def fill(self) -> list[Future[str]]:
        """Give each worker a call."""
        filled = [self.call() for _ in range(self.calls.counts().workers)]
        assert self.inside.wait(HANG_SECONDS)
        return filled


@pytest.fixture
def bed() -> Iterator[Bed]:
    found = Bed()
    yield found
    found.go_on.set()
    found.calls.close()
    found.callers.shutdown()


def test_the_answer_of_the_work_is_the_calls_and_its_error_too(bed: Bed) -> None:
    def fails(_until: float) -> str:
        raise ZeroDivisionError

    assert bed.calls.do(lambda until: f"until {until:.0f}", seconds_left=45.0) == "until 1035"
    with pytest.raises(ZeroDivisionError):
        bed.calls.do(fails, seconds_left=45.0)


def test_a_time_out_inside_the_work_is_not_taken_for_the_calls(bed: Bed) -> None:
    def times_out(_until: float) -> str:
        raise FutureTimeoutError("a lock")

    with pytest.raises(FutureTimeoutError, match="a lock"):
        bed.calls.do(times_out, seconds_left=45.0)


def test_a_call_that_waits_is_begun_when_a_worker_is_free(bed: Bed) -> None:
    filled = bed.fill()
    third = bed.call()
    bed.until_one_waits()
    assert bed.calls.counts() == CallCounts("prepare", 2, working=2, waiting=1, moved_at=1000.0)
    bed.clock.now += 3.0
    bed.go_on.set()
    assert [call.result(HANG_SECONDS) for call in (*filled, third)] == ["done"] * 3
    assert bed.calls.counts() == CallCounts("prepare", 2, working=0, waiting=0, moved_at=1003.0)
    assert bed.begun == [1035.0] * 3  # counted from arrival


def test_a_call_whose_deadline_passed_while_it_waited_does_no_work(bed: Bed) -> None:
    bed.fill()
    late = bed.call(20.0)
    bed.until_one_waits()
    bed.clock.now += 15.0
    bed.go_on.set()
    with pytest.raises(Temporary, match=r"not begun: all 2 workers were busy .* tries again"):
        late.result(HANG_SECONDS)
    assert bed.begun == [1035.0] * 2


def test_a_call_that_nobody_begins_is_answered_before_its_caller_gives_up(bed: Bed) -> None:
    bed.fill()
    with pytest.raises(Temporary, match="the prepare call was not begun: all 2 workers were busy"):
        bed.calls.do(bed.blocks, seconds_left=0.2)
    assert bed.calls.counts().waiting == 0
    bed.go_on.set()
    assert bed.calls.do(bed.blocks, seconds_left=45.0) == "done"
    assert len(bed.begun) == 3  # the one that was given up is not among them


def test_work_that_no_deadline_reaches_is_answered_and_goes_on(bed: Bed) -> None:
    with pytest.raises(
        Temporary, match=r"the prepare call is not done after 0 s and goes on; the kubelet tries"
    ):
        bed.calls.do(bed.blocks, seconds_left=0.2)
    assert bed.calls.counts().working == 1


def test_more_calls_than_anybody_makes_are_sent_away(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "OPEN_LIMIT", 2)
    bed.fill()
    with pytest.raises(Temporary, match=r"^2 prepare calls are under way and no more are taken"):
        bed.calls.do(bed.blocks, seconds_left=45.0)
    assert bed.calls.counts().waiting == 0


def test_a_call_that_cannot_be_begun_is_not_waited_for(bed: Bed) -> None:
    bed.calls.close()
    with pytest.raises(Temporary, match="the prepare call was not begun: cannot schedule new"):
        bed.calls.do(bed.blocks, seconds_left=45.0)
    assert bed.calls.counts().waiting == 0


def test_a_call_that_waits_when_the_driver_ends_is_answered_at_once(bed: Bed) -> None:
    bed.fill()
    waiting = bed.call()
    bed.until_one_waits()
    bed.calls.close()
    with pytest.raises(Temporary, match="not begun: the driver ends; the kubelet tries again"):
        waiting.result(HANG_SECONDS)


def test_a_call_whose_worker_cannot_be_started_is_done_by_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool queues the work before it starts a thread for it, so a worker finds it later."""
    calls, begun, go_on, done = Calls("prepare", workers=2), Event(), Event(), []

    def blocks(_until: float) -> str:
        begun.set()
        assert go_on.wait(HANG_SECONDS)
        return "first"

    def refuse(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ThreadPoolExecutor(1) as caller:
        first = caller.submit(calls.do, blocks, seconds_left=None)
        assert begun.wait(HANG_SECONDS)
        monkeypatch.setattr(Thread, "start", refuse)
        with pytest.raises(Temporary, match="was not begun: can't start new thread"):
            calls.do(lambda _until: done.append("second"), seconds_left=None)
        go_on.set()
        assert first.result(HANG_SECONDS) == "first"
        assert calls.do(lambda _until: "third", seconds_left=None) == "third"
    assert done == []
    assert (calls.counts().waiting, calls.counts().working) == (0, 0)
    calls.close()
