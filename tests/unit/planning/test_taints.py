# SPDX-License-Identifier: Apache-2.0
"""The rules of taints, the taint of a vanished device, and since when a device has each taint."""

from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import Device, DeviceTaint
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.dns_names import is_label_key
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName, PoolName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.slices import plan_pool
from dra_driver.planning.taints import (
    dated,
    devices_held_by,
    taint_times,
    vanished,
    with_own_taints,
    wrong_taints,
)
from dra_driver.testing.builders import A_POOL, a_claim
from tests.support.api_values import device_taint, published

NOW = "2026-05-05T05:05:05Z"
SINCE = "2026-01-02T03:04:05Z"
TAINT = DeviceTaint(key="a.example.com/x", value="v", effect="NoExecute")
VANISHED = device_taint("gpu.dra-driver.dev/vanished", "not-found-on-node", "NoSchedule", "")


@pytest.mark.parametrize(
    "key", ["a", "A.b_c-d", "a.example.com/X", "x" * 63, f"{'a' * 253}/x", "a-b.c/1"]
)
def test_a_label_key(key: str):
    assert is_label_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "-a",
        "a-",
        "a b",
        "/a",
        "a/",
        "a/b/c",
        "A/b",
        "x" * 64,
        f"{'a' * 254}/x",
        "a\n",
        "é",
        "a..b/c",
    ],
)
def test_no_label_key(key: str):
    assert not is_label_key(key)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"key": ""}, ["[0].key: '' is no label key"]),
        ({"key": "bad key!"}, ["[0].key: 'bad key!' is no label key"]),
        ({"value": "with space"}, ["[0].value: 'with space' is no label value"]),
        ({"value": "x" * 64}, [f"[0].value: '{'x' * 64}' is no label value"]),
        ({"value": ""}, []),
        ({"effect": ""}, ["[0].effect: '' is none of NoSchedule, NoExecute, None"]),
        ({"effect": "Whatever"}, ["[0].effect: 'Whatever' is none of NoSchedule, NoExecute, None"]),
        ({"effect": "None"}, []),
        ({"time_added": "yesterday"}, ["[0].timeAdded: 'yesterday' is no time of RFC 3339"]),
        ({"time_added": "2026-13-01T00:00:00Z"}, ["[0].timeAdded: '2026-13-01T00:00:00Z' is no time of RFC 3339"]),
        ({"time_added": "2026-01-01T00:00:00.5+02:00"}, []),
        ({"time_added": ""}, []),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses_of_a_taint(changes: dict[str, str], found: list[str]):
    assert list(wrong_taints([replace(TAINT, **changes)])) == found


def test_a_device_has_at_most_16_taints():
    assert list(wrong_taints([TAINT] * 16)) == []
    assert list(wrong_taints([TAINT] * 17)) == ["more than 16 taints"]


def test_a_vanished_device_is_tainted_under_the_projects_domain():
    device = published("gpu-0", capacity={"memory": Quantity.parse("1Gi")})
    assert dated(vanished(device), {}, SINCE) == replace(
        device, taints=[replace(VANISHED, time_added=SINCE)]
    )


def test_a_vanished_device_keeps_its_other_taints_as_far_as_they_can_be_written():
    first = vanished(published("gpu-0"))
    bad = replace(TAINT, value="with space")
    again = replace(first, taints=[bad, TAINT, *(first.taints or ())])
    assert vanished(again).taints == [TAINT, replace(VANISHED, time_added=None)]
    many = replace(first, taints=[replace(TAINT, key=f"k{index}") for index in range(16)])
    keys = [taint.key for taint in vanished(many).taints or ()]
    assert keys == [*(f"k{index}" for index in range(15)), VANISHED.key]


def test_a_taint_without_a_time_gets_the_time_that_it_had():
    device = published("gpu-0", taints=(TAINT,))
    old = published("gpu-0", taints=(replace(TAINT, time_added="2025-01-01T00:00:00Z"),))
    had = published("gpu-0", taints=(replace(TAINT, time_added=SINCE),))
    assert dated(device, taint_times([old, had, device]), NOW) == had
    assert dated(published("gpu-0"), taint_times([had]), NOW) == published("gpu-0")


@pytest.mark.parametrize("changed", ["key", "value", "effect", "name"])
def test_another_taint_has_a_time_of_its_own(changed: str):
    other = published("gpu-1" if changed == "name" else "gpu-0", taints=(TAINT,))
    if changed != "name":
        value = "NoSchedule" if changed == "effect" else "other"
        other = replace(other, taints=[replace(TAINT, **{changed: value})])
    had = published("gpu-0", taints=(replace(TAINT, time_added=SINCE),))
    (taint,) = dated(other, taint_times([had]), NOW).taints or ()
    assert taint.time_added == NOW


def test_a_time_of_the_backend_counts_as_the_api_server_stores_it():
    device = published("gpu-0", taints=(replace(TAINT, time_added="2026-01-01T00:00:00.9+02:00"),))
    times = {("gpu-0", TAINT.key, TAINT.value, TAINT.effect): SINCE}
    (taint,) = dated(device, times, NOW).taints or ()
    assert taint.time_added == "2025-12-31T22:00:00Z"


def test_a_time_before_the_first_year_is_none():
    device = published("gpu-0", taints=(replace(TAINT, time_added="0001-01-01T00:00:00+01:00"),))
    assert taint_times([device]) == {}


def test_a_time_of_go_that_was_not_set_is_written_with_four_digits_of_the_year():
    device = published("gpu-0", taints=(replace(TAINT, time_added="0001-01-01T00:00:00Z"),))
    (taint,) = dated(device, {}, NOW).taints or ()
    assert taint.time_added == "0001-01-01T00:00:00Z"


def found(health: HealthStatus = HealthStatus.HEALTHY, **fields: Any) -> AllocatableDevice:
    return AllocatableDevice(Device(name="gpu-0", **fields), "uuid", health=Health(health))


def keys(device: Device) -> list[str]:
    return [taint.key for taint in device.taints or ()]


def test_an_ill_device_is_tainted_so_that_no_new_claim_gets_it():
    ill = with_own_taints(found(HealthStatus.UNHEALTHY, taints=[TAINT]), frozenset())
    own = DeviceTaint(
        key="gpu.dra-driver.dev/unhealthy", value="reported-by-backend", effect="NoSchedule"
    )
    assert ill.taints == [TAINT, own]


@pytest.mark.parametrize("health", [HealthStatus.HEALTHY, HealthStatus.UNKNOWN])
def test_a_device_that_is_not_known_to_be_ill_is_not_tainted(health: HealthStatus):
    device = found(health)
    assert with_own_taints(device, frozenset({DeviceName("gpu-1")})) is device.api


def test_a_device_that_an_ended_claim_may_still_use_is_tainted():
    held = with_own_taints(found(), frozenset({DeviceName("gpu-0")}))
    assert held.taints == [
        DeviceTaint(
            key="gpu.dra-driver.dev/held", value="in-use-after-unprepare", effect="NoSchedule"
        )
    ]
    both = with_own_taints(found(HealthStatus.UNHEALTHY), frozenset({DeviceName("gpu-0")}))
    assert keys(both) == ["gpu.dra-driver.dev/unhealthy", "gpu.dra-driver.dev/held"]


def test_one_held_share_taints_no_device_with_shares():
    shared = found(allow_multiple_allocations=True)
    assert with_own_taints(shared, frozenset({DeviceName("gpu-0")})) is shared.api


def test_a_free_device_that_is_not_clean_is_tainted_unless_an_ended_claim_holds_it():
    name = DeviceName("gpu-0")
    dirty = with_own_taints(found(), (), {name})
    assert dirty.taints == [
        DeviceTaint(
            key="gpu.dra-driver.dev/not-clean", value="in-use-without-claim", effect="NoSchedule"
        )
    ]
    assert keys(with_own_taints(found(), {name}, {name})) == ["gpu.dra-driver.dev/held"]
    ill = with_own_taints(found(HealthStatus.UNHEALTHY), (), {name})
    assert keys(ill) == ["gpu.dra-driver.dev/unhealthy"]
    assert with_own_taints(device := found(), (), {DeviceName("gpu-1")}) is device.api


def test_a_pool_plan_taints_what_is_not_clean():
    plan = plan_pool(Inventory((found(),)), kept=(), not_clean=frozenset({DeviceName("gpu-0")}))
    assert keys(plan.devices[DeviceName("gpu-0")]) == ["gpu.dra-driver.dev/not-clean"]


def test_a_backend_cannot_use_the_drivers_keys():
    mine = DeviceTaint(key="gpu.dra-driver.dev/unhealthy", value="mine", effect="NoExecute")
    ill = with_own_taints(found(HealthStatus.UNHEALTHY, taints=[mine]), frozenset())
    assert [taint.value for taint in ill.taints or ()] == ["reported-by-backend"]


@pytest.mark.parametrize("wrong", ["NoSchedule", [5]])
def test_taints_of_a_wrong_type_are_left_to_the_check_of_the_device(wrong: Any):
    device = with_own_taints(found(HealthStatus.UNHEALTHY, taints=wrong), frozenset())
    plan = plan_pool(Inventory((AllocatableDevice(device, "uuid"),)), kept=())
    assert (plan.devices, [problem.subject for problem in plan.problems]) == ({}, ["taints"])


def test_an_ill_device_with_16_taints_of_its_own_is_left_out():
    """None of its taints may be lost, and it must not be given away."""
    many = [replace(TAINT, key=f"k{at}") for at in range(16)]
    plan = plan_pool(Inventory((found(HealthStatus.UNHEALTHY, taints=many),)), kept=())
    assert (plan.devices, [problem.found for problem in plan.problems]) == (
        {},
        ["more than 16 taints"],
    )


def test_the_taint_of_an_earlier_version_is_replaced():
    """Its key had the driver's name as its domain."""
    old = device_taint("other.example.com/vanished", "not-found-on-node", "NoSchedule", SINCE)
    assert keys(vanished(published("gpu-0", taints=(old,)))) == ["gpu.dra-driver.dev/vanished"]


def test_held_devices_are_those_that_held_claims_own_as_a_whole():
    def row(*devices: PreparedDevice) -> PreparedClaim:
        return PreparedClaim(a_claim("one").ref, Phase.STARTED, "boot-1", devices, "")

    def of(device: str, pool: PoolName = A_POOL, **fields: Any) -> PreparedDevice:
        return PreparedDevice(("gpus",), pool, DeviceName(device), (), "uuid", **fields)

    rows = [
        row(of("gpu-0"), of("gpu-1", share_id=ShareId("s"))),
        row(of("gpu-2", PoolName("other")), of("gpu-3", admin_access=True), of("gpu-4")),
    ]
    assert devices_held_by(rows, A_POOL) == {"gpu-0", "gpu-4"}


def test_a_device_of_a_foreign_pod_gets_a_taint_with_the_resource() -> None:
    found = AllocatableDevice(published("gpu-0", allow_multiple_allocations=True), "uuid-0")
    value = {found.name: "nvidia.com_gpu"}
    (taint,) = with_own_taints(found, (), {found.name}, foreign=value).taints or ()
    assert (taint.key, taint.value, taint.effect) == (
        "gpu.dra-driver.dev/held-by",
        "nvidia.com_gpu",
        "NoSchedule",
    )
