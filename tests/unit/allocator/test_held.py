# SPDX-License-Identifier: Apache-2.0
"""Who holds which device, and the taints that rules add."""

import msgspec

from dra_driver.allocator.held import Held, Holder, with_taint_rules
from dra_driver.allocator.state import DeviceID, SharedDeviceID
from dra_driver.model.api.resource_claim import DeviceTaintRule, ResourceClaim
from dra_driver.model.api.resource_slice import DeviceTaint, ResourceSlice

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
    held = Held.of(claims, consumable_capacity=True)
    assert held.devices == {GPU: Holder("ns/a", ("ns/p", "ns/q"))}
    assert held.state().allocated_devices == {GPU}
    assert held.consumed(GPU) == {}


def test_shares_add_up() -> None:
    shares = [{"shareID": str(n), "consumedCapacity": {"memory": "1500m"}} for n in range(2)]
    held = Held.of([claim("a", shares[0]), claim("b", shares[1])], consumable_capacity=True)
    state = held.state()
    assert held.devices == {}
    assert held.shares == {GPU: [Holder("ns/a"), Holder("ns/b")]}
    assert state.allocated_shared_device_ids == {
        SharedDeviceID(*GPU, "0"),
        SharedDeviceID(*GPU, "1"),
    }
    assert state.aggregated_capacity == {GPU: {"memory": "3"}}


def test_a_share_without_capacity_is_a_share_still() -> None:
    held = Held.of([claim("a", {"shareID": "1"})], consumable_capacity=True)
    assert (held.consumed(GPU), len(held.shares)) == ({}, 1)


def test_without_the_feature_a_share_is_the_whole_device() -> None:
    held = Held.of([claim("a", {"shareID": "1"})], consumable_capacity=False)
    assert held.devices == {GPU: Holder("ns/a")}


OWN = DeviceTaint(key="own", effect="NoSchedule")
ADDED = DeviceTaint(key="added", effect="NoExecute")


def published() -> ResourceSlice:
    devices = [
        {"name": "gpu-0", "taints": [{"key": "own", "effect": "NoSchedule"}]},
        {"name": "gpu-1"},
    ]
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": devices}
    return msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)


def rule(**selector: str) -> DeviceTaintRule:
    taint = {"key": "added", "effect": "NoExecute"}
    spec = {"deviceSelector": selector, "taint": taint}
    return msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, DeviceTaintRule)


def taints(*rules: DeviceTaintRule) -> list[list[DeviceTaint] | None]:
    slices, _ = with_taint_rules([published()], rules)
    return [device.taints for device in slices[0].spec.devices or ()]


def test_a_rule_adds_its_taint_behind_the_devices_own() -> None:
    slices, names = with_taint_rules([published()], [rule(driver="d", pool="p", device="gpu-0")])
    assert [device.taints for device in slices[0].spec.devices or ()] == [[OWN, ADDED], None]
    assert names == {(GPU, 1): "r"}


def test_an_empty_selector_means_every_device_and_none_means_nothing() -> None:
    assert taints(rule()) == [[OWN, ADDED], [ADDED]]
    assert taints(DeviceTaintRule()) == [[OWN], None]


def test_a_rule_for_others_changes_nothing() -> None:
    unchanged = [[OWN], None]
    assert taints(rule(driver="x")) == unchanged
    assert taints(rule(pool="x")) == unchanged
    assert taints(rule(device="x")) == unchanged
