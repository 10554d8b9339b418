# SPDX-License-Identifier: Apache-2.0
"""Each thing is said once on the Node, and not lost when the API server does not take it the first time."""

from math import inf

import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.services.node_events import KEPT_EVENTS, NodeEvents


class Said:
    """An API server that takes Events, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.tried = 0
        self.events: list[NodeEvent] = []
        self.errors: list[Exception] = []
        self.node = NodeEvents(self._emit, log=structlog.get_logger(), clock=lambda: self.now)

    def _emit(self, event: NodeEvent) -> None:
        self.tried += 1
        if self.errors:
            raise self.errors.pop()
        self.events.append(event)


@pytest.fixture
def said() -> Said:
    return Said()


def test_each_thing_is_said_once(said: Said) -> None:
    assert said.node.flush() == inf
    assert said.node.say(("a", "1"), "Lost", "gpu-0 is gone")
    assert not said.node.say(("a", "1"), "Lost", "gpu-0 is gone")
    assert said.node.flush() == inf
    assert not said.node.say(("a", "1"), "Lost", "gpu-0 is gone")
    assert said.node.say(("a", "2"), "Lost", "gpu-1 is gone")
    assert said.node.flush() == inf
    assert said.events == [
        NodeEvent("Warning", "Lost", "gpu-0 is gone"),
        NodeEvent("Warning", "Lost", "gpu-1 is gone"),
    ]


def test_what_could_not_be_written_is_written_later_in_its_order(said: Said) -> None:
    said.errors = [Temporary("down")] * 3
    said.node.say(("a", ""), "A", "first")
    said.node.say(("b", ""), "B", "second")
    pauses = []
    with capture_logs() as logs:
        while (seconds := said.node.flush()) != inf:
            pauses.append(seconds)
            said.now += seconds - 0.1
            assert said.node.flush() == pytest.approx(0.1)
            said.now += 0.1
    assert pauses == [1.0, 2.0, 5.0]
    assert [event.reason for event in said.events] == ["A", "B"]
    assert said.tried == 5
    assert [(line["event"], line["reason"], line["error"]) for line in logs] == [
        ("event_not_written", "A", "down")
    ] * 3


def test_an_error_that_nobody_foresaw_is_one_like_any_other(said: Said) -> None:
    said.errors = [ZeroDivisionError("by chance")]
    said.node.say(("a", ""), "A", "first")
    with capture_logs() as logs:
        assert said.node.flush() == 1.0
    assert [line["error"] for line in logs] == ["ZeroDivisionError('by chance')"]
    said.now += 1
    assert said.node.flush() == inf
    assert len(said.events) == 1


def test_what_cannot_be_written_for_long_fills_no_memory(said: Said) -> None:
    said.errors = [Temporary("down")]
    for number in range(KEPT_EVENTS + 5):
        said.node.say(("a", str(number)), "A", str(number))
    with capture_logs():
        said.node.flush()
    said.now += 1
    assert said.node.flush() == inf
    assert [event.message for event in said.events] == [
        str(number) for number in range(5, KEPT_EVENTS + 5)
    ]
    said.node.say(("b", ""), "B", "one more")
    said.node.flush()
    assert said.node.say(("a", "5"), "A", "5")  # forgotten, so it is said again
