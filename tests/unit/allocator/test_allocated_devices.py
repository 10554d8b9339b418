# SPDX-License-Identifier: Apache-2.0
"""Which devices are allocated to which claims."""

import msgspec
import pytest

from dra_driver.allocator.allocated_devices import AllocatedClaim, AllocatedDevices
from dra_driver.allocator.state import DeviceID, SharedDeviceID
from dra_driver.model.api.resource_claim import ResourceClaim

GPU = DeviceID("d", "p", "gpu-0")


def claim(name: str, *results: dict[str, object], pods: tuple[str, ...] = ()) -> ResourceClaim:
    allocation = {"devices": {"results": [{**GPU._asdict(), **one} for one in results]}}
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    status = {"allocation": allocation, "reservedFor": users}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ns"}, "status": status}, ResourceClaim
    )


def test_a_claim_holds_its_devices_and_admin_access_holds_none() -> None:
    claims = [
        claim("a", {}, pods=("p", "q")),
        claim("b", {"device": "gpu-1", "adminAccess": True}),
        ResourceClaim(),
    ]
    held = AllocatedDevices.of(claims, consumable_capacity=True)
    assert held.devices == {GPU: AllocatedClaim("ns/a", ("ns/p", "ns/q"))}
    assert held.state().allocated_devices == {GPU}
    assert held.consumed(GPU) == {}


def test_shares_add_up() -> None:
    shares = [{"shareID": str(n), "consumedCapacity": {"memory": "1500m"}} for n in range(2)]
    held = AllocatedDevices.of(
        [claim("a", shares[0]), claim("b", shares[1])], consumable_capacity=True
    )
    state = held.state()
    assert held.devices == {}
    assert held.shares == {GPU: [AllocatedClaim("ns/a"), AllocatedClaim("ns/b")]}
    assert state.allocated_shared_device_ids == {
        SharedDeviceID(*GPU, "0"),
        SharedDeviceID(*GPU, "1"),
    }
    assert state.aggregated_capacity == {GPU: {"memory": "3"}}


def test_a_share_without_capacity_is_a_share_still() -> None:
    held = AllocatedDevices.of([claim("a", {"shareID": "1"})], consumable_capacity=True)
    assert (held.consumed(GPU), len(held.shares)) == ({}, 1)


def test_without_the_feature_a_share_is_the_whole_device() -> None:
    held = AllocatedDevices.of([claim("a", {"shareID": "1"})], consumable_capacity=False)
    assert held.devices == {GPU: AllocatedClaim("ns/a")}


def test_a_claim_that_has_ended_has_nothing() -> None:
    claims = [claim("a", {}, {"device": "gpu-1"}), claim("b", {"device": "gpu-2"})]
    held = AllocatedDevices.of(claims, consumable_capacity=True)
    assert not held.several
    assert held.without({"ns/a"}) == AllocatedDevices.of(claims[1:], consumable_capacity=True)


@pytest.mark.parametrize("results", [[{}, {}], [{"shareID": "1"}]])
def test_a_device_that_may_belong_to_several_claims_is_told(
    results: list[dict[str, object]],
) -> None:
    claims = [claim(str(number), one) for number, one in enumerate(results)]
    assert AllocatedDevices.of(claims, consumable_capacity=True).several
