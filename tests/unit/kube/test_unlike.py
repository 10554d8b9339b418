# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a stored slice and is not of our making is found, by path; what the server makes is not."""

from copy import deepcopy
from typing import Any

import pytest

from dra_driver.kube.discovery import WIRES, Wire
from dra_driver.kube.slices import Author, read_holder, read_slice, rewrite_metadata, write_slice
from dra_driver.kube.wire.unlike import find_unlike
from dra_driver.model.device import Version
from dra_driver.model.ids import DeviceName, DriverName, NodeName, PoolName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import SliceHolder, StoredSlice, content_of
from dra_driver.planning.reconcile import dropped_fields
from tests.support.api_values import device_taint, published, slice_spec

Object = dict[str, Any]
AUTHOR = Author(DriverName("gpu.example.com"), NodeName("node-1"), "uid-node")
TAINT = device_taint(
    "gpu.example.com/vanished", "not-found-on-node", "NoSchedule", "2026-05-04T03:02:01Z"
)
SPEC = slice_spec(
    PoolName("node-1"),
    3,
    1,
    (
        published(
            DeviceName("gpu-0"),
            {"ecc": True, "index": 0, "model": "X", "driverVersion": Version("1.2.3")},
            {"memory": Quantity.parse("80Gi")},
            (TAINT,),
        ),
        published("gpu-1"),
    ),
)
V1 = WIRES[0]


def stored(wire: Wire) -> Object:
    """Our slice as a server gives it back."""
    obj = deepcopy(write_slice(wire, {"name": "s"}, SPEC, AUTHOR))
    obj["metadata"] |= {
        "uid": "u",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "someone"}],
        "generateName": "s-",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
    }
    return obj


@pytest.mark.parametrize("wire", WIRES)
def test_what_we_wrote_comes_back_as_our_own(wire: Wire) -> None:
    assert read_slice(wire, stored(wire), AUTHOR) == StoredSlice(
        "s", "u", "7", SPEC, labels={"team": "a"}, annotations={"note": "b"}
    )


@pytest.mark.parametrize("wire", WIRES)
def test_an_item_of_a_list_has_no_kind_and_is_ours_all_the_same(wire: Wire) -> None:
    item = stored(wire)
    del item["kind"], item["apiVersion"]
    assert read_slice(wire, item, AUTHOR).unlike == {}


def test_nothing_can_be_written_in_several_ways() -> None:
    obj = stored(V1)
    obj["spec"] |= {"sharedCounters": None, "skipNodeOperations": []}
    obj["spec"]["devices"][1] |= {"attributes": {}, "taints": None}
    assert read_slice(V1, obj, AUTHOR).unlike == {}
    obj["spec"]["devices"] = None
    assert read_slice(V1, obj, AUTHOR).unlike == {}


def test_a_quantity_may_be_written_in_several_ways() -> None:
    obj = stored(V1)
    obj["spec"]["devices"][0]["capacity"]["memory"]["value"] = "81920Mi"
    assert read_slice(V1, obj, AUTHOR).unlike == {}


@pytest.mark.parametrize(
    ("found", "ours", "unlike"),
    [
        ({"m": {"value": "1Gi"}}, {"m": {"value": "1024Mi"}}, {}),
        ({"m": {"value": "1Gi"}}, {"m": {"value": "2Gi"}}, {"m.value": '"1Gi"'}),
        ({"m": {"value": "much"}}, {"m": {"value": "more"}}, {"m.value": '"much"'}),
        ({"name": "1000"}, {"name": "1e3"}, {"name": '"1000"'}),
        ({"spec": {"a": True}}, {"spec": {"a": 1}}, {"spec.a": "true"}),
        ({"spec": {"a": [1, {"name": "x", "b": 2}]}}, {"spec": {"a": [1, {"name": "x", "b": 3}]}}, {"spec.a[x].b": "2"}),
        ({"spec": {"a": [1]}}, {"spec": {"a": [2]}}, {"spec.a[0]": "1"}),
        ({"metadata": "odd"}, {}, {}),
    ],
)  # fmt: skip
def test_differences_are_named_by_path(found: Object, ours: Object, unlike: Object) -> None:
    assert find_unlike(found, ours) == unlike


def at(obj: Object, *path: Any) -> Any:
    value: Any = obj
    for key in path:
        value = value[key]
    return value


FOREIGN: list[tuple[tuple[Any, ...], str, object, str]] = [
    # where, field, what somebody writes there, the path by which it is found
    (("metadata",), "finalizers", ["example.com/hold"], "metadata.finalizers"),
    (("metadata",), "ownerReferences", None, "metadata.ownerReferences"),
    (("metadata", "ownerReferences", 0), "uid", "x", "metadata.ownerReferences[node-1].uid"),
    (
        ("metadata", "ownerReferences", 0),
        "blockOwnerDeletion",
        True,
        "metadata.ownerReferences[node-1].blockOwnerDeletion",
    ),
    (("metadata",), "fieldOfTheNextRelease", 1, "metadata.fieldOfTheNextRelease"),
    (("spec",), "allNodes", True, "spec.allNodes"),
    (("spec",), "nodeSelector", {"nodeSelectorTerms": [{}]}, "spec.nodeSelector"),
    (("spec",), "perDeviceNodeSelection", True, "spec.perDeviceNodeSelection"),
    (("spec",), "nodeName", "node-2", "spec.nodeName"),
    (("spec",), "driver", "other.example.com", "spec.driver"),
    ((), "status", {"new": 1}, "status"),
    ((), "fieldOfTheNextRelease", 1, "fieldOfTheNextRelease"),
]
FOREIGN_IN_A_DEVICE: list[tuple[tuple[Any, ...], str, object, str]] = [
    # where, field, what somebody writes there, the field of the API that holds it
    ((), "allowMultipleAllocations", True, "allowMultipleAllocations"),
    ((), "consumesCounters", [{"counterSet": "c"}], "consumesCounters"),
    ((), "nodeName", "node-2", "nodeName"),
    ((), "bindsToNode", True, "bindsToNode"),
    ((), "bindingConditions", ["ready"], "bindingConditions"),
    (("attributes",), "list", {"ints": [1, 2]}, "attributes.list"),
    (("capacity", "memory"), "requestPolicy", {"default": "1Gi"}, "capacity.memory"),
    (("taints", 0), "effect", "None", "taints"),
]
UNKNOWN_IN_A_DEVICE: list[tuple[Any, ...]] = [(), ("capacity", "memory"), ("taints", 0)]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("where", "key", "value", "path"), FOREIGN)
def test_what_somebody_writes_is_found(
    wire: Wire, where: tuple[Any, ...], key: str, value: object, path: str
) -> None:
    obj = stored(wire)
    at(obj, *where)[key] = value
    assert list(read_slice(wire, obj, AUTHOR).unlike) == [path]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sharedCounters", [{"name": "c"}]),
        ("skipNodeOperations", ["*"]),
        ("partitionTypeAttribute", "example.com/type"),
    ],
)
def test_what_somebody_writes_beside_the_devices_is_read(
    wire: Wire, key: str, value: object
) -> None:
    obj = stored(wire)
    obj["spec"][key] = value
    found = read_slice(wire, obj, AUTHOR)
    assert found.unlike == {}
    assert dropped_fields(content_of(SPEC), found.content) == (key,)


def in_a_device(wire: Wire, obj: Object, where: tuple[Any, ...]) -> Object:
    content = ("basic",) if wire.version == "v1beta1" else ()
    part: Object = at(obj, "spec", "devices", 0, *content, *where)
    return part


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("where", "key", "value", "field"), FOREIGN_IN_A_DEVICE)
def test_what_somebody_writes_into_a_device_is_read(
    wire: Wire, where: tuple[Any, ...], key: str, value: object, field: str
) -> None:
    obj = stored(wire)
    in_a_device(wire, obj, where)[key] = value
    found = read_slice(wire, obj, AUTHOR)
    assert found.unlike == {}
    assert dropped_fields(content_of(SPEC), found.content) == (f"devices.gpu-0.{field}",)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("where", UNKNOWN_IN_A_DEVICE)
def test_what_no_release_knows_yet_is_found_in_a_device(wire: Wire, where: tuple[Any, ...]) -> None:
    obj = stored(wire)
    in_a_device(wire, obj, where)["fieldOfTheNextRelease"] = 1
    (path,) = read_slice(wire, obj, AUTHOR).unlike
    assert path.startswith("spec.devices[gpu-0]")
    assert path.endswith(".fieldOfTheNextRelease")


def test_a_taint_of_somebody_elses_is_part_of_what_was_read() -> None:
    obj = stored(V1)
    foreign = {
        "key": "example.com/mine",
        "effect": "NoExecute",
        "timeAdded": "2026-01-01T00:00:00Z",
    }
    obj["spec"]["devices"][1]["taints"] = [foreign]
    found = read_slice(V1, obj, AUTHOR)
    assert found.devices[1].taints == [
        device_taint("example.com/mine", "", "NoExecute", "2026-01-01T00:00:00Z")
    ]


def test_where_the_node_cannot_be_asked_only_its_uid_is_not_compared() -> None:
    unknown = Author(AUTHOR.driver, AUTHOR.node, "")
    obj = stored(V1)
    assert read_slice(V1, obj, unknown).unlike == {}
    obj["metadata"]["ownerReferences"][0]["kind"] = "Pod"
    assert list(read_slice(V1, obj, unknown).unlike) == ["metadata.ownerReferences[node-1].kind"]
    obj["metadata"]["ownerReferences"] = []
    assert list(read_slice(V1, obj, unknown).unlike) == ["metadata.ownerReferences"]


def test_a_rewrite_keeps_what_is_everybodys() -> None:
    plain = StoredSlice("s", "u", "7", SPEC)
    assert rewrite_metadata(plain) == {"name": "s", "uid": "u", "resourceVersion": "7"}
    kept = StoredSlice("s", "u", "7", SPEC, labels={"team": "a"}, annotations={"note": "b"})
    assert rewrite_metadata(kept) == {
        **rewrite_metadata(plain),
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
    }


def test_a_holder_is_read_whatever_it_is() -> None:
    assert read_holder(stored(V1)) == SliceHolder(
        "s", "u", "gpu.example.com", "node-1", "node-1", "2026-01-02T03:04:05Z"
    )
    assert str(read_holder({"spec": {"allNodes": True}})) == (
        "a slice of driver  for no single node, pool , UID , created "
    )
