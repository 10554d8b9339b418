# SPDX-License-Identifier: Apache-2.0
"""What a claim's status.devices says of its devices."""

import dataclasses

import pytest
from msgspec.structs import replace

from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import Claim
from dra_driver.model.device import (
    AllocatableDevice,
    AttributeValue,
    Version,
    attributes,
    capacities,
)
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import NO_SHARE, DeviceName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.device_status import entries_to_write, statuses_of
from dra_driver.testing.builders import A_BOOT, A_DRIVER, A_POOL, a_claim, a_ref

NOW, EARLIER = "2026-01-02T03:04:05Z", "2025-01-02T03:04:05Z"
SHARE = ShareId("11111111-1111-4111-8111-111111111111")


def a_device(
    extra: dict[str, AttributeValue] | None = None, health: Health | None = None
) -> AllocatableDevice:
    values: dict[str, AttributeValue] = {
        "productName": "Example 80",
        "driverVersion": Version("1.2.3"),
        "index": 0,
        **(extra or {}),
    }
    api = Device(
        name="gpu-0",
        attributes=attributes(values),
        capacity=capacities({"memory": Quantity.parse("80Gi"), "cores": Quantity.parse("8")}),
    )
    found = AllocatableDevice(api, "GPU-1")
    return found if health is None else replace(found, health=health)


def a_row(*, share: ShareId = NO_SHARE, uuid: str = "GPU-1", leases: bool = True) -> PreparedClaim:
    device = PreparedDevice(
        ("gpu",), A_POOL, DeviceName("gpu-0"), (f"k8s.{A_DRIVER}/claim=x",), uuid, share
    )
    consumed = {"memory": "10Gi"} if share else {}
    lease = Lease(a_ref().uid, "gpu", DeviceName("gpu-0"), 0, share, consumed)
    return PreparedClaim(
        a_ref(), Phase.PREPARED, A_BOOT, (device,), "{}", leases=(lease,) if leases else None
    )


def only(
    row: PreparedClaim, *devices: AllocatableDevice, scanned: bool = True
) -> AllocatedDeviceStatus:
    (entry,) = statuses_of(row, Inventory(devices, scanned=scanned), A_DRIVER, A_POOL)
    return entry


def ready(entry: AllocatedDeviceStatus) -> tuple[str, str]:
    (condition,) = entry.conditions or ()
    assert condition.type == "Ready"
    assert condition.message
    return condition.status, condition.reason


def test_a_whole_device_tells_what_it_is() -> None:
    entry = only(a_row(), a_device())
    assert (entry.driver, entry.pool, entry.device, entry.share_id) == (
        A_DRIVER,
        A_POOL,
        "gpu-0",
        None,
    )
    assert ready(entry) == ("True", "Prepared")
    assert entry.data == {
        "uuid": "GPU-1",
        "productName": "Example 80",
        "driverVersion": "1.2.3",
        "memory": "80Gi",
    }


def test_a_share_tells_its_size_and_what_keeps_it_within_it() -> None:
    entry = only(a_row(share=SHARE), a_device({"enforcement": "driver"}))
    assert entry.share_id == SHARE
    share = {"id": SHARE, "consumedCapacity": {"memory": "10Gi"}, "enforcement": "driver"}
    assert entry.data["share"] == share


def test_a_share_of_an_older_row_tells_its_id() -> None:
    entry = only(a_row(share=SHARE, leases=False), a_device())
    assert entry.data["share"] == {"id": SHARE}


def test_names_may_have_the_drivers_domain_and_no_other_one() -> None:
    api = Device(
        name="gpu-0",
        attributes=attributes(
            {f"{A_DRIVER}/productName": "Ours", "example.com/driverVersion": "9.9.9"}
        ),
        capacity=capacities({f"{A_DRIVER}/memory": Quantity.parse("1Gi")}),
    )
    assert only(a_row(uuid=""), AllocatableDevice(api, "GPU-2")).data == {
        "uuid": "GPU-2",
        "productName": "Ours",
        "memory": "1Gi",
    }


def test_nothing_known_gives_no_data() -> None:
    bare = AllocatableDevice(Device(name="gpu-0"), "")
    assert only(a_row(uuid=""), bare).data is None


@pytest.mark.parametrize(("message", "shown"), [("too hot", "too hot"), ("", "unhealthy")])
def test_an_ill_device_is_not_ready(message: str, shown: str) -> None:
    entry = only(a_row(), a_device(health=Health(HealthStatus.UNHEALTHY, message)))
    assert ready(entry) == ("False", "Unhealthy")
    assert shown in (entry.conditions or [])[0].message


def test_a_vanished_device_is_not_ready_and_keeps_its_uuid() -> None:
    entry = only(a_row())
    assert ready(entry) == ("False", "Vanished")
    assert entry.data == {"uuid": "GPU-1"}


def test_a_device_whose_name_another_one_has_is_not_ready_and_says_nothing_of_the_other_one() -> (
    None
):
    entry = only(a_row(), replace(a_device(), uuid="GPU-2"))
    assert ready(entry) == ("False", "Vanished")
    (condition,) = entry.conditions or ()
    assert condition.message == (
        "gpu-0 is another device now (UUID GPU-2); the one that the claim was prepared with (UUID GPU-1) is not found any more"
    )
    assert entry.data == {"uuid": "GPU-1"}


def test_a_device_that_no_scan_could_find_yet_counts_as_prepared() -> None:
    assert ready(only(a_row(), scanned=False)) == ("True", "Prepared")
    waiting = Inventory(unanswered=("acme",))
    (entry,) = statuses_of(a_row(), waiting, A_DRIVER, A_POOL)
    assert ready(entry) == ("True", "Prepared")


# Against what the claim has already


def with_statuses(*statuses: AllocatedDeviceStatus) -> Claim:
    return dataclasses.replace(a_claim(), statuses=statuses)


def written(claim: Claim, *wanted: AllocatedDeviceStatus) -> tuple[AllocatedDeviceStatus, ...]:
    return entries_to_write(wanted, claim, A_DRIVER, NOW)


def since(entries: tuple[AllocatedDeviceStatus, ...]) -> str | None:
    return (entries[0].conditions or [])[0].last_transition_time


def test_a_first_entry_begins_now() -> None:
    others = AllocatedDeviceStatus(driver="other.example.com", pool=A_POOL, device="gpu-0")
    assert since(written(with_statuses(others), only(a_row(), a_device()))) == NOW


def test_what_the_claim_has_already_is_not_written() -> None:
    wanted = only(a_row(), a_device())
    (entry,) = written(a_claim(), wanted)
    theirs = Condition(type="Tested", status="True", last_transition_time=EARLIER)
    more = AllocatedDeviceStatus(
        driver=entry.driver,
        pool=entry.pool,
        device=entry.device,
        data=entry.data,
        conditions=[theirs, *(entry.conditions or [])],
    )
    assert entries_to_write((wanted,), with_statuses(more), A_DRIVER, EARLIER) == ()


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    well, ill = a_device(), a_device(health=Health(HealthStatus.UNHEALTHY, "hot"))
    (first,) = entries_to_write((only(a_row(), well),), a_claim(), A_DRIVER, EARLIER)
    renamed = a_device({"productName": "Another"})
    assert since(written(with_statuses(first), only(a_row(), renamed))) == EARLIER
    assert since(written(with_statuses(first), only(a_row(), ill))) == NOW


def test_each_share_of_a_device_keeps_the_time_of_its_own_entry() -> None:
    other = ShareId("22222222-2222-4222-8222-222222222222")
    known = only(a_row(share=SHARE), a_device())
    (first,) = entries_to_write((known,), a_claim(), A_DRIVER, EARLIER)
    new = only(a_row(share=other), a_device())
    kept, added = entries_to_write((known, new), with_statuses(first), A_DRIVER, NOW)
    assert [(one.share_id, since((one,))) for one in (kept, added)] == [
        (SHARE, EARLIER),
        (other, NOW),
    ]


def test_an_entry_without_conditions_is_completed() -> None:
    bare = AllocatedDeviceStatus(driver=A_DRIVER, pool=A_POOL, device="gpu-0")
    assert since(written(with_statuses(bare), only(a_row(), a_device()))) == NOW
    timeless = AllocatedDeviceStatus(
        driver=A_DRIVER,
        pool=A_POOL,
        device="gpu-0",
        conditions=[Condition(type="Ready", status="True")],
    )
    assert since(written(with_statuses(timeless), only(a_row(), a_device()))) == NOW


def test_no_entry_is_wanted_and_nothing_is_written() -> None:
    assert entries_to_write((), a_claim(), A_DRIVER, NOW) == ()


def test_a_backend_can_say_what_the_status_of_its_devices_has() -> None:
    device = replace(a_device(), status_data={"uuid": {"string": "GPU-1"}})
    (entry,) = statuses_of(a_row(share=SHARE), Inventory((device,)), A_DRIVER, A_POOL)
    assert entry.data == {"uuid": {"string": "GPU-1"}}
