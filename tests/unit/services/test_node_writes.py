# SPDX-License-Identifier: Apache-2.0
"""When does the driver look at its Node: after a change, at rest, after a failure?"""

from threading import Event

import pytest
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import Conflict, Forbidden
from dra_driver.model.events import DriverEvent, NodeWriteForbidden
from dra_driver.services.node_writes import FORBIDDEN_SECONDS, NodeWrites
from tests.support.local_node import ManualClock


class Place:
    """Something that is looked at, and a clock that moves only while somebody waits."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.errors: list[DriverError] = []
        self.looked: list[float] = []
        self.events: list[DriverEvent] = []
        self.rest = 60.0
        self.loop = NodeWrites("labels", self.look, observe=self.events.append, clock=self.clock)

    def look(self) -> float:
        self.looked.append(self.clock() - 1000.0)
        if self.errors:
            raise self.errors.pop(0)
        return self.rest

    def run(self, seconds: float, *, wake_at: float = -1.0) -> list[float]:
        """When it was looked at, in seconds since the start."""
        stop, end = Event(), self.clock() + seconds
        self.looked.clear()

        def wait(waited: Event, timeout: float) -> bool:
            if waited is not stop and waited.is_set():
                return True
            self.clock.sleep(timeout)
            if self.clock() - 1000.0 == wake_at:
                self.loop.wake()
            if self.clock() >= end:
                stop.set()
            return waited.is_set()

        self.loop.run(stop, wait=wait)
        return self.looked


@pytest.fixture
def place() -> Place:
    return Place()


def test_at_rest_it_looks_as_rarely_as_it_is_told(place: Place) -> None:
    assert place.run(150.0) == [0.0, 60.0, 120.0]


def test_a_change_is_looked_at_at_once_and_once(place: Place) -> None:
    assert place.run(90.0, wake_at=7.0) == [0.0, 7.0, 67.0]


def test_each_failure_makes_the_pause_longer_and_a_change_does_not_end_it(place: Place) -> None:
    place.errors = [Temporary("no answer"), Conflict("somebody else"), Temporary("no answer")]
    with capture_logs() as logs:
        assert place.run(30.0, wake_at=4.0) == [0.0, 1.0, 3.0, 8.0]
    assert [(line["event"], line["what"], line["again_in_seconds"]) for line in logs] == [
        ("node_not_written", "labels", 1.0),
        ("node_not_written", "labels", 2.0),
        ("node_not_written", "labels", 5.0),
    ]


def test_a_missing_right_is_told_once_and_asked_for_again(place: Place) -> None:
    place.errors = [Forbidden("no right"), Forbidden("no right")]
    assert place.run(2 * FORBIDDEN_SECONDS + 1) == [0.0, FORBIDDEN_SECONDS, 2 * FORBIDDEN_SECONDS]
    assert place.events == [NodeWriteForbidden("labels", "no right")]
    place.errors = [Forbidden("again")]
    place.run(120.0)
    assert place.events[1:] == [NodeWriteForbidden("labels", "again")]


def test_nothing_is_looked_at_after_the_end(place: Place) -> None:
    stop = Event()
    stop.set()
    place.loop.run(stop)
    assert place.looked == []
