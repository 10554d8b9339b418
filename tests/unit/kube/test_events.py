# SPDX-License-Identifier: Apache-2.0
"""Events on the Node: their form, and how repetitions are kept back."""

from datetime import UTC, datetime
from typing import Protocol

from dra_driver.kube.base import NodeEvent
from dra_driver.kube.events import Repeats, Reporter, dump_event
from dra_driver.model.ids import DriverName, NodeName

LOST = NodeEvent("Warning", "DeviceLost", "gpu-3 is gone")
FOUND = NodeEvent("Normal", "DeviceFound", "gpu-3 is back")


class Time(Protocol):
    """The fixture `time`."""

    now: float

    def clock(self) -> float: ...


def test_a_repetition_within_ten_minutes_is_kept_back(time: Time) -> None:
    repeats = Repeats(clock=time.clock)
    assert [repeats.claim(LOST), repeats.claim(LOST), repeats.claim(FOUND)] == [True, False, True]
    time.now += 599
    assert not repeats.claim(LOST)
    time.now += 1
    assert repeats.claim(LOST)


def test_a_forgotten_event_may_be_written_again(time: Time) -> None:
    repeats = Repeats(clock=time.clock)
    repeats.claim(LOST)
    repeats.forget(LOST)
    assert repeats.claim(LOST)


def test_an_event_has_the_form_of_core_v1() -> None:
    reporter = Reporter(DriverName("gpu.example.com"), NodeName("node-1"), "uid-1")
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert dump_event(LOST, reporter, now=now) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "node-1.", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"},
        "type": "Warning",
        "reason": "DeviceLost",
        "message": "gpu-3 is gone",
        "source": {"component": "gpu.example.com", "host": "node-1"},
        "reportingComponent": "gpu.example.com",
        "reportingInstance": "node-1",
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }


def test_a_long_message_is_cut_between_characters() -> None:
    reporter = Reporter(DriverName("d"), NodeName("n"), "u")
    message = dump_event(NodeEvent("Normal", "Long", "x" + "ä" * 1000), reporter)["message"]
    assert message == "x" + "ä" * 511
