# SPDX-License-Identifier: Apache-2.0
"""What is written on the Node as an Event."""

from threading import Event

import structlog
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.model.events import (
    DeviceHealthChanged,
    DeviceNotClean,
    DevicesHeld,
    Leading,
    NodeWriteForbidden,
    SecondOwnerRefused,
    StillHeld,
)
from dra_driver.services.tell import QUIET_SECONDS, REASON_SECONDS, Teller
from dra_driver.testing.builders import a_ref

REFUSED = SecondOwnerRefused(a_ref("two"), a_ref("one"), "gpu-0", "it still exists")
HELD = StillHeld(a_ref("one"), "node-1/gpu-0", "2027-01-15T08:00:00Z", "pod one still runs")
TOLD_REFUSED = NodeEvent(
    "Warning",
    "SecondOwnerRefused",
    "device gpu-0 was allocated to claim default/two (uid uid-two) and belongs to claim default/one (uid uid-one) on this node: "
    "it still exists",
)
TOLD_HELD = NodeEvent(
    "Warning",
    "DevicesHeld",
    "node-1/gpu-0 of claim default/one (uid uid-one): not needed since 2027-01-15T08:00:00Z, and not given to other claims: "
    "pod one still runs; end what uses it, and the driver releases it. Run `dra-driver release default/one` on this node if you "
    "know that nothing uses it",
)


def a_teller() -> Teller:
    return Teller(structlog.get_logger())


def test_refused_owners_and_long_holds_are_written_once_each_and_in_order() -> None:
    teller, written = a_teller(), []
    for event in (REFUSED, HELD, REFUSED, DevicesHeld(a_ref(), "gpu-0", "a moment only")):
        teller(event)
    looks = iter([False, False, True])
    teller.run(Event(), written.append, wait=lambda _stop, _seconds: next(looks))
    assert written == [TOLD_REFUSED, TOLD_HELD]


def test_a_missing_right_for_the_node_is_written() -> None:
    teller, written = a_teller(), []
    teller(NodeWriteForbidden("labels", "allow verb 'patch' on resource 'nodes'"))
    teller.once(written.append)
    said = "labels of this Node: allow verb 'patch' on resource 'nodes'"
    assert written == [NodeEvent("Warning", "NodeWriteRefused", said)]


def test_what_cannot_be_written_now_is_written_later() -> None:
    teller, written = a_teller(), []
    errors = [Temporary("503")]

    def emit(event: NodeEvent) -> None:
        if errors:
            raise errors.pop()
        written.append(event)

    teller(REFUSED)
    with capture_logs() as lines:
        teller.once(emit)
    assert [line["error"] for line in lines] == ["503"]
    teller.once(emit)
    assert written == [TOLD_REFUSED]


def test_a_device_that_is_not_clean_is_told_with_what_is_found() -> None:
    teller, written = a_teller(), []
    teller(DeviceNotClean("gpu-0", "process 4711 uses it"))
    teller.once(written.append)
    assert written == [
        NodeEvent(
            "Warning",
            "DeviceNotClean",
            "device gpu-0 belongs to no claim, and is not given to one: process 4711 uses it; end what uses it, and the driver removes "
            "the taint gpu.dra-driver.dev/not-clean",
        )
    ]


ILL = DeviceHealthChanged("gpu-0", "unhealthy", "XID 79", before="healthy")
WELL = DeviceHealthChanged("gpu-0", "healthy", before="unhealthy")
OTHER_ILL = DeviceHealthChanged("gpu-1", "unhealthy", "XID 48")
TOLD_ILL = NodeEvent("Warning", "DeviceUnhealthy", "device gpu-0 is unhealthy: XID 79")
TOLD_WELL = NodeEvent("Normal", "DeviceRecovered", "device gpu-0 is healthy again")
TOLD_OTHER = NodeEvent("Warning", "DeviceUnhealthy", "device gpu-1 is unhealthy: XID 48")


class Leader:
    """A teller of the leader, what it wrote, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[NodeEvent] = []
        self.teller = Teller(structlog.get_logger(), clock=lambda: self.now)
        self.teller(Leading(leads=True))

    def wrote(self) -> list[NodeEvent]:
        self.teller.once(self.written.append)
        found, self.written = self.written, []
        return found


def test_a_device_that_falls_ill_and_recovers_is_two_events() -> None:
    leader = Leader()
    leader.teller(ILL)
    assert leader.wrote() == [TOLD_ILL]
    leader.teller(WELL)
    assert leader.wrote() == [TOLD_WELL]
    assert leader.wrote() == []


def test_a_device_that_flaps_is_told_once_in_a_while_and_the_last_word_is_true() -> None:
    leader = Leader()
    leader.teller(ILL)
    assert leader.wrote() == [TOLD_ILL]
    leader.teller(WELL)
    assert leader.wrote() == [TOLD_WELL]
    for change in (ILL, WELL, ILL):
        leader.now += 1.0
        leader.teller(change)
        leader.teller(OTHER_ILL)
    assert leader.wrote() == [TOLD_OTHER]
    leader.now = QUIET_SECONDS
    assert leader.wrote() == [TOLD_ILL]


def test_another_reason_for_the_same_status_is_told_seldom() -> None:
    leader = Leader()
    leader.teller(ILL)
    assert leader.wrote() == [TOLD_ILL]
    for number in range(3):
        leader.teller(DeviceHealthChanged("gpu-0", "unhealthy", f"{number}", before="unhealthy"))
        assert leader.wrote() == []
    leader.now += REASON_SECONDS
    assert leader.wrote() == [
        NodeEvent("Warning", "DeviceUnhealthy", "device gpu-0 is unhealthy: 2")
    ]


def test_a_reason_that_comes_while_the_change_of_the_status_waits_goes_with_it() -> None:
    leader = Leader()
    leader.teller(ILL)
    leader.teller(DeviceHealthChanged("gpu-0", "unhealthy", "XID 48", before="unhealthy"))
    leader.wrote()
    leader.teller(WELL)
    assert leader.wrote() == [TOLD_WELL]
    leader.now += QUIET_SECONDS
    leader.teller(ILL)
    leader.teller(DeviceHealthChanged("gpu-0", "unhealthy", "XID 48", before="unhealthy"))
    told = NodeEvent("Warning", "DeviceUnhealthy", "device gpu-0 is unhealthy: XID 48")
    assert leader.wrote() == [told]


def test_a_new_device_that_is_healthy_or_unchecked_is_no_event() -> None:
    leader = Leader()
    for change in (
        DeviceHealthChanged("gpu-0", "healthy"),
        DeviceHealthChanged("gpu-0", "healthy", "XID 92", before="healthy"),
        DeviceHealthChanged("gpu-0", "unknown", before="unhealthy"),
    ):
        leader.teller(change)
    assert leader.wrote() == []


def test_a_device_that_is_gone_and_is_found_again_is_two_events() -> None:
    leader = Leader()
    leader.teller(DeviceHealthChanged("gpu-0", "gone", "no scan finds it", before="healthy"))
    told = NodeEvent("Warning", "DeviceVanished", "device gpu-0 is gone: no scan finds it")
    assert leader.wrote() == [told]
    leader.teller(DeviceHealthChanged("gpu-0", "healthy", before="gone"))
    back = NodeEvent("Normal", "DeviceRecovered", "device gpu-0 is found again")
    assert leader.wrote() == [back]
    leader.now += QUIET_SECONDS
    leader.teller(DeviceHealthChanged("gpu-0", "gone", "no scan finds it", before="unknown"))
    assert leader.wrote() == [told]
    leader.teller(DeviceHealthChanged("gpu-0", "unhealthy", "XID 79", before="gone"))
    assert leader.wrote() == [TOLD_ILL]


def test_a_device_with_a_new_name_is_an_event() -> None:
    leader = Leader()
    leader.teller(DeviceHealthChanged("gpu-1", "renamed", "it is called gpu-0", before="gone"))
    said = "device gpu-1 has another name: it is called gpu-0"
    assert leader.wrote() == [NodeEvent("Warning", "DeviceRenamed", said)]


def test_only_the_leader_tells_of_health_and_what_it_heard_before_too() -> None:
    leader = Leader()
    leader.teller(Leading(leads=False))
    leader.teller(ILL)
    assert leader.wrote() == []
    leader.teller(Leading(leads=True))
    assert leader.wrote() == [TOLD_ILL]


def test_an_event_about_health_that_cannot_be_written_now_is_written_later() -> None:
    leader = Leader()
    errors = [Temporary("503")]

    def emit(event: NodeEvent) -> None:
        if errors:
            raise errors.pop()
        leader.written.append(event)

    leader.teller(ILL)
    leader.teller.once(emit)
    leader.teller.once(emit)
    assert leader.wrote() == [TOLD_ILL]


def test_a_change_that_comes_while_an_event_is_written_is_not_lost() -> None:
    leader = Leader()
    leader.teller(ILL)
    leader.teller.once(lambda _event: leader.teller(WELL))
    assert leader.wrote() == [TOLD_WELL]
