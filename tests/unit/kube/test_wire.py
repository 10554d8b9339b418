# SPDX-License-Identifier: Apache-2.0
"""The wire versions: what is written, and how much is forgiven when reading."""

from typing import Any

import pytest

from dra_driver.kube.answers import as_claim
from dra_driver.kube.base import NotServed
from dra_driver.kube.discovery import WIRES, Wire, choose
from dra_driver.kube.slices import load_slice
from dra_driver.kube.wire.objects import Unreadable
from dra_driver.model.api.resource_slice import (
    DeviceAttribute,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.model.claim import Claim, ClaimRef, OpaqueConfig
from dra_driver.model.device import Version
from dra_driver.model.ids import (
    ClaimUid,
    DeviceName,
    DriverName,
    PodUid,
    PoolName,
)
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import StoredSlice
from tests.support.api_values import allocated, published, slice_spec

V1, V1BETA2, V1BETA1 = WIRES

SPEC = slice_spec(
    PoolName("node-1"),
    3,
    2,
    (
        published(
            DeviceName("gpu-0"),
            {"ecc": True, "index": 0, "model": "X", "driverVersion": Version("1.2.3")},
            {"memory": Quantity.parse("80Gi")},
        ),
        published("gpu-1"),
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
    metadata = {"name": "s", "uid": "u", "resourceVersion": "7"}
    written = wire.write_slice(metadata, SPEC)
    assert written == {
        "apiVersion": f"resource.k8s.io/{wire.version}",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": expected,
    }
    assert load_slice(wire, written) == StoredSlice("s", "u", "7", SPEC)


@pytest.mark.parametrize("wire", WIRES)
def test_a_slice_of_nothing_is_read(wire: Wire) -> None:
    empty = StoredSlice("", "", "", ResourceSliceSpec())
    assert load_slice(wire, {}) == empty
    assert load_slice(wire, {"spec": {"devices": None}}) == empty


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "obj",
    [
        {"spec": None, "metadata": 1},
        {"spec": {"devices": ["nonsense"]}},
        {"spec": {"pool": {"generation": "1"}}},
        {"metadata": {"labels": {"a": 1}}},
    ],
)
def test_a_slice_of_a_shape_that_no_server_stores_cannot_be_read(wire: Wire, obj: object) -> None:
    with pytest.raises(Unreadable, match="Expected"):
        wire.load(ResourceSlice, obj)


@pytest.mark.parametrize("wire", WIRES)
def test_both_numbers_of_a_pool_are_written_also_where_they_are_zero(wire: Wire) -> None:
    """The API requires them. A slice of somebody else may have generation 0, and keeps it when it is written."""
    spec = slice_spec(PoolName("node-1"), 0, 0, ())
    assert wire.write_slice({}, spec)["spec"]["pool"] == {
        "name": "node-1",
        "generation": 0,
        "resourceSliceCount": 0,
    }


@pytest.mark.parametrize("wire", WIRES)
def test_a_claim_is_read_with_null_wherever_the_api_server_may_write_it(wire: Wire) -> None:
    """Go writes null for an empty list, map or pointer that has no omitempty; types.go has it in these places."""
    entry = {"source": "FromClaim", "opaque": {"driver": "d", "parameters": None}}
    stored = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "creationTimestamp": None},
        "spec": {"devices": {"requests": None, "config": [{"opaque": entry["opaque"]}]}},
        "status": {"allocation": {"devices": {"results": None, "config": [entry]}}},
    }
    found = as_claim(wire, stored)
    assert (found.ref.name, found.results) == ("c", ())
    assert found.configs == (OpaqueConfig(0, "FromClaim", (), DriverName("d"), {}),)


CONTENT_OF_ALL: dict[str, Any] = {
    "attributes": {"list": {"ints": [1]}, "ok": {"int": 1}, "newKind": {"map": {}}},
    "capacity": {"memory": {"value": "1Gi", "requestPolicy": {"default": "1Gi"}}},
    "taints": [{"key": "x", "effect": "None"}],
    "consumesCounters": [{"counterSet": "c", "counters": {"slots": {"value": "0"}}}],
    "bindingConditions": ["ready"],
    "allNodes": False,
    "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "100m"}}},
}


@pytest.mark.parametrize("wire", WIRES)
def test_every_field_of_a_device_is_read_and_written(wire: Wire) -> None:
    deep = wire is V1BETA1
    device = {"name": "gpu-0"} | ({"basic": CONTENT_OF_ALL} if deep else CONTENT_OF_ALL)
    spec = load_slice(wire, {"spec": {"devices": [device], "futureField": {}}}).spec
    (found,) = spec.devices or ()
    assert found.attributes == {
        "list": DeviceAttribute(int_values=[1]),
        "ok": DeviceAttribute(int_value=1),
        "newKind": DeviceAttribute(),  # its name is known, what it says is not
    }
    assert (found.binding_conditions, found.all_nodes) == (["ready"], False)
    (written,) = wire.write_slice({}, spec)["spec"]["devices"]
    content = written["basic"] if deep else written
    assert {key: content[key] for key in CONTENT_OF_ALL} == {
        **CONTENT_OF_ALL,
        "attributes": {**CONTENT_OF_ALL["attributes"], "newKind": {}},
    }


def test_a_device_without_its_basic_part_has_nothing() -> None:
    stored = load_slice(V1BETA1, {"spec": {"devices": [{"name": "gpu-0"}]}})
    assert stored.devices == (published("gpu-0"),)


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
    claim = as_claim(wire, {"metadata": METADATA, "status": {"allocation": {"devices": devices}}})
    place = ("gpu.example.com", "node-1", "gpu-0")
    assert claim == Claim(
        REF,
        results=(
            allocated("main/big", *place, share_id="s-1", consumed_capacity={}),
            allocated("look", *place, admin_access=True),
        ),
        configs=(
            OpaqueConfig(0, "FromClass", (), DriverName("gpu.example.com"), parameters),
            OpaqueConfig(2, "FromClaim", ("main",), DriverName("gpu.example.com"), parameters),
        ),
    )


@pytest.mark.parametrize(
    "status", [{}, {"allocation": None}, {"reservedFor": []}, {"reservedFor": None}]
)
def test_a_claim_that_is_not_allocated_has_no_results(status: object) -> None:
    assert as_claim(V1, {"metadata": METADATA, "status": status}) == Claim(REF)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "status", [1, {"allocation": "odd"}, {"allocation": {"devices": {"results": [1]}}}]
)
def test_a_claim_of_a_shape_that_no_server_stores_cannot_be_read(
    wire: Wire, status: object
) -> None:
    with pytest.raises(Unreadable, match="Expected"):
        as_claim(wire, {"metadata": METADATA, "status": status})


def test_an_allocation_without_devices_has_none() -> None:
    claim = as_claim(V1, {"metadata": METADATA, "status": {"allocation": {}}})
    assert claim == Claim(REF, results=())


@pytest.mark.parametrize("wire", WIRES)
def test_who_uses_a_claim_is_read_by_uid(wire: Wire) -> None:
    pods = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in ("one", "two")]
    status = {"reservedFor": pods, "allocation": {"allocationTimestamp": "2026-11-22T10:00:00Z"}}
    claim = as_claim(wire, {"metadata": METADATA, "status": status})
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
    claim = as_claim(V1, {"metadata": METADATA, "status": {"reservedFor": [user, pod]}})
    assert claim == Claim(REF, reserved_for=(PodUid("uid-one"),), unnamed_users=True)


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "uid-one", "controller": True}
MADE = {"resource.kubernetes.io/pod-claim-name": "devices"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_claim_of_a_template_names_the_pod_that_it_was_made_for(wire: Wire) -> None:
    other = {"kind": "Pod", "uid": "uid-other"}  # an owner, but not the controller
    metadata = {**METADATA, "annotations": MADE, "ownerReferences": [other, OWNER]}
    assert as_claim(wire, {"metadata": metadata}) == Claim(REF, sole_pod=PodUid("uid-one"))


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
    assert as_claim(V1, {"metadata": {**METADATA, **more}}).sole_pod is None


def test_parameters_that_are_no_object_are_read_as_empty() -> None:
    config = [{"opaque": {"driver": "d", "parameters": ["x"]}}]
    allocation = {"devices": {"config": config}}
    claim = as_claim(V1, {"metadata": METADATA, "status": {"allocation": allocation}})
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
