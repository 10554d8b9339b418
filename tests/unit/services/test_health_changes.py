# SPDX-License-Identifier: Apache-2.0
"""Each change of a device's health is reported once, whatever its backend is."""

from msgspec.structs import replace

from dra_driver.model.events import DeviceErrors, DeviceHealthChanged, DriverEvent
from dra_driver.model.health import HEALTHY, UNCHECKED, Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.services.health_changes import HealthChanges
from tests.support.api_values import found_device

ILL = Health(HealthStatus.UNHEALTHY, "XID 79")


class Node:
    """The health of one device, and what is reported of it."""

    def __init__(self) -> None:
        self.inventory = Inventory(scanned=False)
        self.events: list[DriverEvent] = []
        self.changes = HealthChanges(lambda: self.inventory, self.events.append)

    def reports(self, health: Health | None, **errors: int) -> list[DriverEvent]:
        if health is None:
            self.inventory = Inventory(had={DeviceName("gpu-0"): "acme"})
        else:
            device = replace(found_device(DeviceName("gpu-0"), "u0", health=health), errors=errors)
            self.inventory = Inventory((device,), had={device.name: "acme"})
        self.events.clear()
        self.changes()
        return list(self.events)


def test_a_new_device_is_reported_with_its_health():
    assert Node().reports(HEALTHY) == [DeviceHealthChanged("gpu-0", "healthy")]
    assert Node().reports(ILL) == [DeviceHealthChanged("gpu-0", "unhealthy", "XID 79")]
    assert Node().reports(UNCHECKED) == [
        DeviceHealthChanged("gpu-0", "unknown", "nothing checks the health of this device")
    ]


def test_a_change_is_reported_once_with_the_word_before():
    node = Node()
    node.reports(HEALTHY)
    assert node.reports(HEALTHY) == []
    ill = DeviceHealthChanged("gpu-0", "unhealthy", "XID 79", before="healthy")
    assert node.reports(ILL) == [ill]
    assert node.reports(ILL) == []
    assert node.reports(HEALTHY) == [DeviceHealthChanged("gpu-0", "healthy", before="unhealthy")]


def test_another_message_is_a_change():
    node = Node()
    node.reports(ILL)
    (event,) = node.reports(Health(HealthStatus.UNHEALTHY, "XID 48"))
    assert event == DeviceHealthChanged("gpu-0", "unhealthy", "XID 48", before="unhealthy")


NEXT_STEP = "see the log of the kernel driver (dmesg) on this node; `dra-driver devices` there names the claim that has it"


def test_a_device_that_is_gone_is_reported_once_and_again_when_it_comes_back():
    node = Node()
    node.reports(ILL)
    message = f"no scan finds it any more (UUID u0); {NEXT_STEP}"
    gone = DeviceHealthChanged("gpu-0", "gone", message, before="unhealthy")
    assert node.reports(None) == [gone]
    assert node.reports(None) == []
    assert node.reports(HEALTHY) == [DeviceHealthChanged("gpu-0", "healthy", before="gone")]
    assert node.reports(None) == [replace(gone, before="healthy")]


def test_a_device_that_vanished_while_no_driver_ran_is_reported():
    message = f"no scan finds it any more; {NEXT_STEP}"
    assert Node().reports(None) == [DeviceHealthChanged("gpu-0", "gone", message)]


def test_a_device_whose_backend_has_not_answered_is_not_gone():
    node = Node()
    node.inventory = Inventory(unanswered=("acme",), had={DeviceName("gpu-0"): "acme"})
    node.changes()
    assert node.events == []


def test_errors_are_reported_as_they_grow():
    node = Node()
    assert node.reports(HEALTHY, xid_31=2)[1:] == [DeviceErrors("gpu-0", "xid_31", 2)]
    assert node.reports(HEALTHY, xid_31=2) == []
    assert node.reports(HEALTHY, xid_31=3, xid_13=1) == [
        DeviceErrors("gpu-0", "xid_31", 1),
        DeviceErrors("gpu-0", "xid_13", 1),
    ]


def test_errors_are_not_counted_twice_when_a_device_comes_back():
    node = Node()
    node.reports(HEALTHY, xid_31=2)
    node.reports(None)
    assert node.reports(HEALTHY, xid_31=2) == [
        DeviceHealthChanged("gpu-0", "healthy", before="gone")
    ]


def test_a_backend_that_counts_anew_is_counted_anew():
    node = Node()
    node.reports(HEALTHY, xid_31=5)
    assert node.reports(HEALTHY, xid_31=1) == [DeviceErrors("gpu-0", "xid_31", 1)]
