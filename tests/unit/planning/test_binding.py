# SPDX-License-Identifier: Apache-2.0
"""Which binding conditions the driver sets, and which it leaves to others."""

import dataclasses

from msgspec import structs

from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
)
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.inventory import Inventory
from dra_driver.planning.binding import binds_any, entries_to_bind
from dra_driver.testing.builders import A_DRIVER, A_PLACE, A_POOL, a_claim, a_result

NOW, EARLIER = "2026-01-02T03:04:05Z", "2025-01-02T03:04:05Z"


def machine(*, binds: bool = True) -> Inventory:
    names = ("gpu-0", "gpu-1")
    return Inventory(
        tuple(AllocatableDevice(Device(name=name), name, binds=binds) for name in names)
    )


def waiting(
    device: str = "gpu-0", *names: str, driver: str = A_DRIVER, pool: str = A_POOL
) -> DeviceRequestAllocationResult:
    result = a_result(device, driver=driver, pool=pool)
    return structs.replace(result, binding_conditions=list(names or ("Attached",)))


def condition(
    name: str = "Attached", status: str = "True", since: str | None = EARLIER
) -> Condition:
    return Condition(type=name, status=status, reason="Ready", last_transition_time=since)


def status(*conditions: Condition, device: str = "gpu-0") -> AllocatedDeviceStatus:
    return AllocatedDeviceStatus(
        driver=A_DRIVER, pool=A_POOL, device=device, conditions=list(conditions) or None
    )


def set_by(
    *results: DeviceRequestAllocationResult,
    statuses: tuple[AllocatedDeviceStatus, ...] = (),
    inventory: Inventory | None = None,
) -> dict[str, dict[str, str | None]]:
    """What the driver sets: the time of each condition by device and type."""
    claim = dataclasses.replace(a_claim(results=results), statuses=statuses)
    entries = entries_to_bind(claim, inventory or machine(), A_PLACE, NOW)
    found = [(entry.device, one) for entry in entries for one in entry.conditions or ()]
    assert {(one.status, one.reason) for _, one in found} <= {("True", "Ready")}
    return {
        device: {one.type: one.last_transition_time for name, one in found if name == device}
        for device, _ in found
    }


def test_every_condition_of_a_waiting_device_becomes_true():
    assert set_by(waiting("gpu-0", "Attached", "Powered"), waiting("gpu-1")) == {
        "gpu-0": {"Attached": NOW, "Powered": NOW},
        "gpu-1": {"Attached": NOW},
    }


def test_a_claim_with_all_conditions_is_left_alone():
    assert set_by(waiting(), statuses=(status(condition()),)) == {}


def test_a_condition_that_is_true_keeps_its_time_when_another_one_is_set():
    found = set_by(waiting("gpu-0", "Attached", "Powered"), statuses=(status(condition()),))
    assert found == {"gpu-0": {"Attached": EARLIER, "Powered": NOW}}
    untimed = (status(condition(since=None)),)
    assert set_by(waiting("gpu-0", "Attached", "Powered"), statuses=untimed) == {
        "gpu-0": {"Attached": NOW, "Powered": NOW}
    }


def test_a_condition_that_is_false_or_of_another_device_does_not_count():
    assert set_by(waiting(), statuses=(status(condition(status="False")), status())) == {
        "gpu-0": {"Attached": NOW}
    }
    other = (status(condition(), device="gpu-1"),)
    assert set_by(waiting(), statuses=other) == {"gpu-0": {"Attached": NOW}}


def test_devices_of_others_and_devices_without_conditions_are_not_touched():
    assert set_by(waiting(driver="other.example.com")) == {}
    assert set_by(waiting(pool="other-node")) == {}
    assert set_by(waiting("gpu-9")) == {}
    assert set_by(a_result("gpu-0")) == {}
    assert set_by(waiting(), inventory=machine(binds=False)) == {}


def test_a_claim_that_is_not_allocated_waits_for_nothing():
    claim = dataclasses.replace(a_claim(), results=None)
    assert entries_to_bind(claim, machine(), A_PLACE, NOW) == ()


def test_a_share_has_its_own_entry():
    share = structs.replace(waiting(), share_id="s-1")
    claim = dataclasses.replace(a_claim(results=[share]), statuses=(status(condition()),))
    (entry,) = entries_to_bind(claim, machine(), A_PLACE, NOW)
    assert (entry.driver, entry.pool, entry.share_id) == (A_DRIVER, A_POOL, "s-1")


def test_only_a_device_that_says_so_is_bound_by_the_driver():
    assert binds_any(machine())
    assert not binds_any(machine(binds=False))
    assert not binds_any(Inventory())
