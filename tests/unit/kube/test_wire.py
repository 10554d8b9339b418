# SPDX-License-Identifier: Apache-2.0
"""The wire versions: what is written, and how much is forgiven when reading."""

from typing import Any

import pytest

from dra_driver.kube.base import NotServed
from dra_driver.kube.discovery import WIRES, Wire, choose
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef, OpaqueConfig
from dra_driver.model.device import Version
from dra_driver.model.ids import (
    ClaimUid,
    DeviceName,
    DriverName,
    NodeName,
    PodUid,
    PoolName,
    ShareId,
)
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import PublishedDevice, SliceSpec, StoredSlice

V1, V1BETA2, V1BETA1 = WIRES

SPEC = SliceSpec(
    PoolName("node-1"),
    3,
    2,
    (
        PublishedDevice(
            DeviceName("gpu-0"),
            {"ecc": True, "index": 0, "model": "X", "driverVersion": Version("1.2.3")},
            {"memory": Quantity.parse("80Gi")},
        ),
        PublishedDevice(DeviceName("gpu-1")),
    ),
)
CONTENT: dict[str, Any] = {
    "attributes": {
        "ecc": {"bool": True},
        "index": {"int": 0},
        "model": {"string": "X"},
        "driverVersion": {"version": "1.2.3"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}
HEAD = {
    "driver": "gpu.example.com",
    "nodeName": "node-1",
    "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 2},
}
FLAT = {**HEAD, "devices": [{"name": "gpu-0", **CONTENT}, {"name": "gpu-1"}]}
DEEP = {
    **HEAD,
    "devices": [{"name": "gpu-0", "basic": CONTENT}, {"name": "gpu-1", "basic": {}}],
}


@pytest.mark.parametrize(("wire", "expected"), [(V1, FLAT), (V1BETA2, FLAT), (V1BETA1, DEEP)])
def test_a_slice_is_written_exactly_and_read_back(wire: Wire, expected: dict[str, Any]) -> None:
    dumped = wire.dump_slice_spec(SPEC, DriverName("gpu.example.com"), NodeName("node-1"))
    assert dumped == expected
    metadata = {"name": "s", "uid": "u", "resourceVersion": "7"}
    stored = wire.load_slice({"metadata": metadata, "spec": dumped})
    assert stored == StoredSlice("s", "u", "7", SPEC)


@pytest.mark.parametrize("wire", WIRES)
def test_a_slice_of_nothing_is_read(wire: Wire) -> None:
    empty = SliceSpec(PoolName(""), 0, 0, ())
    assert wire.load_slice({}) == StoredSlice("", "", "", empty)
    assert wire.load_slice({"spec": None, "metadata": 1}) == StoredSlice("", "", "", empty)
    assert wire.load_slice({"spec": {"devices": None}}) == StoredSlice("", "", "", empty)


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_model_lacks_is_passed_over(wire: Wire) -> None:
    content: dict[str, Any] = {
        "attributes": {"list": {"ints": [1]}, "odd": {"int": "1"}, "none": None, "ok": {"int": 1}},
        "capacity": {"a": {"value": "much"}, "b": {}, "c": {"value": "1"}, "d": None},
        "taints": [{"key": "x"}],
    }
    device = (
        {"name": "gpu-0", "basic": content} if wire is V1BETA1 else {"name": "gpu-0", **content}
    )
    stored = wire.load_slice({"spec": {"devices": [device, "nonsense"], "futureField": {}}})
    expected = PublishedDevice(DeviceName("gpu-0"), {"ok": 1}, {"c": Quantity.parse("1")})
    assert stored.spec.devices == (expected,)


def test_a_device_without_its_basic_part_has_nothing() -> None:
    stored = V1BETA1.load_slice({"spec": {"devices": [{"name": "gpu-0"}]}})
    assert stored.spec.devices == (PublishedDevice(DeviceName("gpu-0")),)


METADATA = {"namespace": "team-a", "name": "training", "uid": "u-1"}
REF = ClaimRef("team-a", "training", ClaimUid("u-1"))


@pytest.mark.parametrize("wire", WIRES)
def test_a_claim_is_read_whole(wire: Wire) -> None:
    parameters = {"apiVersion": "gpu.example.com/v1", "kind": "DeviceConfig", "label": "a"}
    opaque = {"driver": "gpu.example.com", "parameters": parameters}
    result = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    devices = {
        "results": [
            {"request": "main/big", **result, "shareID": "s-1", "consumedCapacity": {}},
            {"request": "look", **result, "adminAccess": True},
        ],
        "config": [
            {"source": "FromClass", "opaque": opaque},
            {"source": "FromClaim", "futureKind": {}},
            {"source": "FromClaim", "requests": ["main"], "opaque": opaque},
        ],
    }
    claim = wire.load_claim({"metadata": METADATA, "status": {"allocation": {"devices": devices}}})
    place = (DriverName("gpu.example.com"), PoolName("node-1"), DeviceName("gpu-0"))
    assert claim == Claim(
        REF,
        results=(
            AllocationResult("main/big", *place, share_id=ShareId("s-1")),
            AllocationResult("look", *place, admin_access=True),
        ),
        configs=(
            OpaqueConfig(0, "FromClass", (), DriverName("gpu.example.com"), parameters),
            OpaqueConfig(2, "FromClaim", ("main",), DriverName("gpu.example.com"), parameters),
        ),
    )


@pytest.mark.parametrize(
    "status", [None, {}, {"allocation": None}, {"reservedFor": []}, {"allocation": "odd"}]
)
def test_a_claim_that_is_not_allocated_has_no_results(status: object) -> None:
    assert V1.load_claim({"metadata": METADATA, "status": status}) == Claim(REF)


def test_an_allocation_without_devices_has_none() -> None:
    claim = V1.load_claim({"metadata": METADATA, "status": {"allocation": {}}})
    assert claim == Claim(REF, results=())


@pytest.mark.parametrize("wire", WIRES)
def test_who_uses_a_claim_is_read_by_uid(wire: Wire) -> None:
    pods = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in ("one", "two")]
    status = {"reservedFor": pods, "allocation": {"allocationTimestamp": "2026-11-22T10:00:00Z"}}
    claim = wire.load_claim({"metadata": METADATA, "status": status})
    assert claim == Claim(
        REF,
        results=(),
        reserved_for=(PodUid("uid-one"), PodUid("uid-two")),
        allocation_timestamp="2026-11-22T10:00:00Z",
    )


@pytest.mark.parametrize(
    "user",
    [
        {"resource": "podgroups", "apiGroup": "scheduling.k8s.io", "name": "g", "uid": "u"},
        {"resource": "pods", "apiGroup": "example.com", "name": "p", "uid": "u"},
        {"resource": "pods", "name": "p"},
    ],
)
def test_a_user_that_is_no_pod_is_not_named(user: dict[str, str]) -> None:
    pod = {"resource": "pods", "apiGroup": "", "name": "one", "uid": "uid-one"}
    claim = V1.load_claim({"metadata": METADATA, "status": {"reservedFor": [user, pod]}})
    assert claim == Claim(REF, reserved_for=(PodUid("uid-one"),), unnamed_users=True)


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "uid-one", "controller": True}
MADE = {"resource.kubernetes.io/pod-claim-name": "devices"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_claim_of_a_template_names_the_pod_that_it_was_made_for(wire: Wire) -> None:
    other = {"kind": "Pod", "uid": "uid-other"}  # an owner, but not the controller
    metadata = {**METADATA, "annotations": MADE, "ownerReferences": [other, OWNER]}
    assert wire.load_claim({"metadata": metadata}) == Claim(REF, sole_pod=PodUid("uid-one"))


@pytest.mark.parametrize(
    "more",
    [
        {"ownerReferences": [OWNER]},
        {"annotations": MADE},
        {"annotations": MADE, "ownerReferences": [{**OWNER, "controller": False}]},
        {"annotations": MADE, "ownerReferences": [{**OWNER, "kind": "Job"}]},
        {"annotations": MADE, "ownerReferences": [{**OWNER, "uid": ""}]},
    ],
)
def test_a_claim_that_was_made_by_hand_has_no_such_pod(more: dict[str, Any]) -> None:
    assert V1.load_claim({"metadata": {**METADATA, **more}}).sole_pod is None


def test_parameters_that_are_no_object_are_read_as_empty() -> None:
    config = [{"opaque": {"driver": "d", "parameters": ["x"]}}]
    allocation = {"devices": {"config": config}}
    claim = V1.load_claim({"metadata": METADATA, "status": {"allocation": allocation}})
    assert claim.configs == (OpaqueConfig(0, "FromClaim", (), DriverName("d"), {}),)


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ({}, "it serves no version"),
        ({"versions": "v1"}, "it serves no version"),
        ({"versions": [{"version": "v1alpha3"}, None]}, "it serves v1alpha3"),
    ],
)
def test_a_group_without_a_known_version_is_not_served(group: dict[str, Any], found: str) -> None:
    with pytest.raises(NotServed, match=f"https://h does not serve .*: {found};"):
        choose(group, "https://h")
