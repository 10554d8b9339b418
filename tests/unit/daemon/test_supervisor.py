# SPDX-License-Identifier: Apache-2.0
"""No thread dies silently, and none starts in a hot loop."""

import sys
from collections.abc import MutableMapping
from threading import Event, current_thread
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from dra_driver.daemon.supervisor import Supervisor
from dra_driver.model.events import DriverEvent, ThreadFailed

DEADLINE = 300  # seconds, against hanging only


class Told:
    """Collects events and sets an event at each."""

    def __init__(self) -> None:
        self.events: list[DriverEvent] = []

    def __call__(self, event: DriverEvent) -> None:
        self.events.append(event)


@pytest.fixture
def captured() -> CapturingLogger:
    return CapturingLogger()


def a_supervisor(captured: CapturingLogger, told: Told, pauses: list[float]) -> Supervisor:
    def wait(stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        return stop.is_set()

    log = structlog.wrap_logger(captured, processors=[])
    return Supervisor(log, told, wait=wait)


def test_a_thread_runs_under_its_name_until_it_is_asked_to_stop(captured: CapturingLogger) -> None:
    told, names, running = Told(), [], Event()
    supervisor = a_supervisor(captured, told, [])

    def run(stop: Event) -> None:
        names.append(current_thread().name)
        running.set()
        stop.wait(DEADLINE)

    supervisor.start("publish", run)
    assert running.wait(DEADLINE)
    assert supervisor.end(seconds=DEADLINE) == ()
    assert (names, told.events, captured.calls) == (["publish"], [], [])


def test_a_thread_that_fails_is_told_and_starts_again_later_and_later(
    captured: CapturingLogger,
) -> None:
    told, pauses, tries, recovered = Told(), [], [], Event()
    supervisor = a_supervisor(captured, told, pauses)

    def run(stop: Event) -> None:
        tries.append(len(tries))
        if len(tries) <= 8:
            raise KeyError(len(tries))
        recovered.set()
        stop.wait(DEADLINE)

    supervisor.start("publish", run)
    assert recovered.wait(DEADLINE)
    supervisor.end(seconds=DEADLINE)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert told.events == [
        ThreadFailed("publish", f"KeyError: {number}", delay)
        for number, delay in enumerate(pauses, start=1)
    ]
    assert len(captured.calls) == 8


def test_an_exit_ends_no_thread_and_is_told(captured: CapturingLogger) -> None:
    """The main function of a vendor's tool may call sys.exit, and Python ends a thread with it without a word."""
    told, recovered, tries = Told(), Event(), []
    supervisor = a_supervisor(captured, told, [])

    def run(_stop: Event) -> None:
        tries.append(1)
        if len(tries) == 1:
            sys.exit("nvmlInit failed")
        recovered.set()

    supervisor.start("inventory-acme", run)
    assert recovered.wait(DEADLINE)
    supervisor.end(seconds=DEADLINE)
    assert told.events == [ThreadFailed("inventory-acme", "SystemExit: nvmlInit failed", 1.0)]
    assert captured.calls[0].kwargs["event"] == "thread_error"


def test_a_failure_after_a_long_good_run_is_the_first_again(captured: CapturingLogger) -> None:
    now, pauses, tries, done = [0.0], [], [], Event()

    def wait(stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        return stop.is_set()

    log = structlog.wrap_logger(captured, processors=[])
    supervisor = Supervisor(log, Told(), wait=wait, clock=lambda: now[0])

    def run(stop: Event) -> None:
        tries.append(1)
        if len(tries) == 5:
            done.set()
            stop.wait(DEADLINE)
            return
        now[0] += 600.0 if len(tries) == 4 else 599.0
        raise ValueError

    supervisor.start("publish", run)
    assert done.wait(DEADLINE)
    supervisor.end(seconds=DEADLINE)
    assert pauses == [1.0, 2.0, 4.0, 1.0]


@pytest.mark.parametrize("deaf", ["log", "observer"])
def test_a_failure_that_cannot_be_told_ends_no_thread(captured: CapturingLogger, deaf: str) -> None:
    told, tries, recovered = Told(), [], Event()

    def fail(*_arguments: object) -> None:
        raise OSError("no space left on device")

    def processor(_log: object, _method: str, event: MutableMapping[str, Any]) -> Any:
        fail() if deaf == "log" else None
        return event

    log = structlog.wrap_logger(captured, processors=[processor])
    supervisor = Supervisor(log, fail if deaf == "observer" else told, wait=lambda *_: False)

    def run(stop: Event) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise RecursionError("maximum recursion depth exceeded")
        recovered.set()
        stop.wait(DEADLINE)

    supervisor.start("watch", run)
    assert recovered.wait(DEADLINE)
    assert supervisor.end(seconds=DEADLINE) == ()
    assert len(captured.calls if deaf == "observer" else told.events) == 2


def test_a_thread_that_fails_while_the_process_ends_does_not_start_again(
    captured: CapturingLogger,
) -> None:
    told, tries = Told(), []
    supervisor = a_supervisor(captured, told, [])
    begun = Event()

    def run(stop: Event) -> None:
        tries.append(1)
        begun.set()
        stop.wait(DEADLINE)
        raise OSError("the connection closed")

    supervisor.start("watch", run)
    assert begun.wait(DEADLINE)
    assert supervisor.end(seconds=DEADLINE) == ()
    assert tries == [1]


def test_a_thread_that_has_nothing_more_to_do_ends(captured: CapturingLogger) -> None:
    told, done = Told(), Event()
    supervisor = a_supervisor(captured, told, [])
    supervisor.start("once", lambda stop: done.set())
    assert done.wait(DEADLINE)
    supervisor._threads[0].join(DEADLINE)
    assert supervisor.end(seconds=DEADLINE) == ()
    assert [(call.method_name, call.kwargs) for call in captured.calls] == [
        ("info", {"thread": "once", "event": "thread_ended"})
    ]
    assert told.events == []


def test_a_thread_that_does_not_stop_is_named(captured: CapturingLogger) -> None:
    supervisor = a_supervisor(captured, Told(), [])
    go_on = Event()
    supervisor.start("stuck", lambda stop: go_on.wait(DEADLINE) and None)
    assert supervisor.end(seconds=0.0) == ("stuck",)
    go_on.set()
    assert supervisor.end(seconds=DEADLINE) == ()
