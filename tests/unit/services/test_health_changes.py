# SPDX-License-Identifier: Apache-2.0
"""Each change of a device's health is reported once, whatever its backend is."""

from typing import Any

from msgspec.structs import replace

from dra_driver.model.events import DeviceErrors, DeviceHealthChanged, DriverEvent
from dra_driver.model.health import HEALTHY, UNCHECKED, Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
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


NEXT_STEP = "see the log of the kernel driver (dmesg) on this node; `dra-driver devices` there names the claim, if one has it"


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


X, Y = "GPU-x", "GPU-y"
DMESG = "see the log of the kernel driver (dmesg) on this node; `dra-driver devices` there names the claim, if one has it"
OLD_CLAIM = (
    "a claim that was prepared under the old name cannot use it: delete its pod and the claim"
)


class Gpus:
    """A node whose GPUs can change their names; `before` is what the rows of claims knew when the driver started."""

    def __init__(self, **before: str) -> None:
        self.inventory = Inventory(scanned=False)
        self.events: list[DriverEvent] = []
        remembered = {name.replace("_", "-"): uuid for name, uuid in before.items()}
        self.had = {DeviceName(name): "acme" for name in remembered}
        self.changes = HealthChanges(
            lambda: self.inventory,
            self.events.append,
            remembered=lambda: {DeviceName(name): uuid for name, uuid in remembered.items()},
        )

    def are(
        self, *uuids: str | None, health: Health = HEALTHY, **fields: Any
    ) -> list[tuple[str, ...]]:
        """The GPUs have the names gpu-0, gpu-1, …; None: there is none of this name. Return what is told, without empty fields at the end."""
        names = [DeviceName(f"gpu-{index}") for index in range(len(uuids))]
        devices = tuple(
            replace(found_device(name, uuid, health=health), **fields)
            for name, uuid in zip(names, uuids, strict=True)
            if uuid is not None
        )
        self.had |= {device.name: "acme" for device in devices}
        self.inventory = Inventory(devices, had=dict(self.had))
        self.events.clear()
        self.changes()
        told = [event for event in self.events if isinstance(event, DeviceHealthChanged)]
        return [
            (one.device, one.status, one.message, *filter(None, (one.before, one.lost)))
            for one in told
        ]


ANOTHER = (
    "gpu-0",
    "gone",
    f"no scan finds UUID {X} any more, and gpu-0 is another device now, UUID {Y}; {DMESG}",
)
CALLED_GPU_0 = ("gpu-1", "renamed", f"UUID {Y} is called gpu-0 now; {OLD_CLAIM}")


def test_a_device_whose_name_goes_to_another_one_is_gone_and_the_other_one_only_has_a_new_name():
    gpus = Gpus()
    gpus.are(X, Y)
    assert gpus.are(Y) == [
        (*ANOTHER, "healthy", X),
        ("gpu-0", "healthy", "", X),
        (*CALLED_GPU_0, "healthy"),
    ]
    assert gpus.are(Y) == []
    # What is told of the present device does not end that the other one is gone.
    assert gpus.are(Y, health=ILL) == [("gpu-0", "unhealthy", "XID 79", "healthy", X)]


def test_the_same_is_told_if_no_device_was_found_in_between():
    gpus = Gpus()
    gpus.are(X, Y)
    assert [told[:2] for told in gpus.are(None)] == [("gpu-0", "gone"), ("gpu-1", "gone")]
    assert gpus.are(Y) == [
        (*ANOTHER, "gone", X),
        ("gpu-0", "healthy", "", X),
        (*CALLED_GPU_0, "gone"),
    ]


def test_the_same_is_told_after_a_restart_of_claims_devices():
    assert Gpus(gpu_0=X, gpu_1=Y).are(Y) == [
        (*ANOTHER, X),
        ("gpu-0", "healthy", "", X),
        CALLED_GPU_0,
    ]


def test_a_lost_device_that_is_back_under_its_name_is_found_again():
    gpus = Gpus()
    gpus.are(X, Y)
    gpus.are(Y)
    assert gpus.are(X, Y) == [
        (
            "gpu-0",
            "renamed",
            f"UUID {Y} is called gpu-1, and gpu-0 is another device now, UUID {X}; {OLD_CLAIM}",
            "healthy",
        ),
        ("gpu-0", "healthy", "", "gone"),
        ("gpu-1", "healthy", "", "renamed"),
    ]
    assert [told[:2] for told in gpus.are(None, Y)] == [("gpu-0", "gone")]


def test_a_lost_device_that_is_back_under_another_name_is_not_lost_any_more():
    gpus = Gpus()
    gpus.are(X, Y)
    gpus.are(Y)
    assert gpus.are(Y, X) == [
        ("gpu-0", "renamed", f"UUID {X} is found again, and called gpu-1 now", "gone"),
        ("gpu-0", "healthy", ""),
        ("gpu-1", "healthy", "", "renamed"),
    ]


def test_devices_that_change_their_names_are_not_gone():
    gpus = Gpus()
    gpus.are(X, Y)
    told = gpus.are(Y, X)
    assert [one[:2] for one in told] == [
        ("gpu-0", "renamed"),
        ("gpu-1", "renamed"),
        ("gpu-0", "healthy"),
        ("gpu-1", "healthy"),
    ]
    assert gpus.are(Y, X) == []


def test_a_device_that_dies_after_it_changed_its_name_is_told_once_by_its_new_name():
    gpus = Gpus()
    gpus.are(X, Y)
    gpus.are(Y)
    assert gpus.are(None) == [
        ("gpu-0", "gone", f"no scan finds it any more (UUID {Y}); {DMESG}", "healthy", X)
    ]


def test_a_uuid_that_cannot_be_read_now_is_no_other_device():
    gpus = Gpus()
    gpus.are("")
    assert gpus.are(X) == []
    assert gpus.are("") == []
    assert gpus.are(X) == []
    assert [told[:2] for told in gpus.are(Y)] == [("gpu-0", "gone"), ("gpu-0", "healthy")]


def test_of_two_devices_with_one_uuid_the_one_that_vanishes_is_gone():
    gpus = Gpus()
    gpus.are(X, X)
    assert [told[:2] for told in gpus.are(X)] == [("gpu-1", "gone")]


def test_a_partition_that_was_made_anew_on_the_same_slices_is_no_lost_hardware():
    gpus, slices = Gpus(), Hardware("GPU-p", ("memory-slice-0",))
    gpus.are("MIG-x", hardware=slices)
    assert gpus.are("MIG-y", hardware=slices) == [("gpu-0", "healthy", "")]
    # But on another GPU it is.
    other = gpus.are("MIG-z", hardware=replace(slices, parent="GPU-q"))
    assert [told[:2] for told in other] == [("gpu-0", "gone"), ("gpu-0", "healthy")]


def test_the_errors_of_another_device_are_its_own():
    gpus = Gpus()
    gpus.are(X, errors={"xid_31": 2})
    gpus.are(Y, errors={"xid_31": 2})
    assert gpus.events[-1] == DeviceErrors("gpu-0", "xid_31", 2)


def test_a_device_of_a_claim_is_told_gone_though_no_record_has_that_it_was_published():
    gpus = Gpus(gpu_3="u3")
    gpus.had.clear()
    gpus.inventory = Inventory(scanned=False)
    gpus.changes()
    gpus.inventory = Inventory(unanswered=("acme",))
    gpus.changes()
    assert gpus.events == []
    message = f"no scan finds it any more (UUID u3); {NEXT_STEP}"
    gone = DeviceHealthChanged("gpu-3", "gone", message)
    for _ in range(2):
        gpus.inventory = Inventory()
        gpus.changes()
        assert gpus.events == [gone]


def test_a_name_of_unknown_hardware_may_be_any_and_can_only_be_gone():
    assert Gpus(gpu_0="", gpu_1=X).are(Y, X) == [
        ("gpu-0", "healthy", ""),
        ("gpu-1", "healthy", ""),
    ]
    gpus = Gpus(gpu_0="")
    gpus.had.clear()
    assert gpus.are() == [("gpu-0", "gone", f"no scan finds it any more; {NEXT_STEP}")]
    assert gpus.are() == []
    assert gpus.are(Y) == [("gpu-0", "healthy", "", "gone")]
