# SPDX-License-Identifier: Apache-2.0
"""How far each node is on the way from plugins to DRA, and what to do next."""

import json
from typing import Any

import msgspec
import pytest

from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.planning.migration import Migration, NodeMigration, plan_migration

DRIVER = "gpu.dra-driver.dev"
GPU = "nvidia.com/gpu"
KEPT = {"key": f"{DRIVER}/held-by", "value": "nvidia.com_gpu", "effect": "NoSchedule"}


def a_node(name: str = "n1", capacity: Any = None, allocatable: Any = None) -> Node:
    status = {"capacity": capacity, "allocatable": allocatable}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Node)


def a_pod(
    name: str, *counts: Any, init: Any = (), phase: str = "Running", node: str = "n1", **status: Any
) -> Pod:
    def containers(prefix: str, wanted: Any) -> list[Any]:
        return [
            {"name": f"{prefix}{number}", "resources": {"requests": {GPU: count}}}
            for number, count in enumerate(wanted)
        ]

    spec = {
        "nodeName": node,
        "containers": containers("c", counts),
        "initContainers": containers("i", init),
    }
    about = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return msgspec.convert({**about, "status": {"phase": phase, **status}}, Pod)


def slices(node: str = "n1", **taints: Any) -> ResourceSlice:
    devices = [{"name": name, "taints": [taint] if taint else []} for name, taint in taints.items()]
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}, "devices": devices}
    return msgspec.convert({"metadata": {"name": node}, "spec": spec}, ResourceSlice)


CLASS = msgspec.convert(
    {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}}, DeviceClass
)
NAMELESS = msgspec.convert({"metadata": {"name": "other"}, "spec": {}}, DeviceClass)


def plan(*objects: Any, node: str = "", **more: Any) -> Migration:
    def of(kind: type) -> tuple[Any, ...]:
        return tuple(one for one in objects if isinstance(one, kind))

    state = ClusterState(
        nodes=of(Node),
        pods=of(Pod),
        resource_slices=of(ResourceSlice),
        device_classes=of(DeviceClass),
        resource_claims=of(ResourceClaim),
        **more,
    )
    return plan_migration(state, DRIVER, node=node)


def one(*objects: Any) -> NodeMigration:
    (found,) = plan(*objects).nodes
    return found


EIGHT = {"cpu": "4", GPU: "8"}
NONE = {GPU: "0"}


def test_a_node_without_devices_has_nothing_to_move() -> None:
    found = one(a_node(capacity={"cpu": "4", "rdma/hca": "1"}))
    assert (found.stage, found.steps, found.resources) == ("nothing to move", (), ())


def test_a_node_that_is_moved() -> None:
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"driver": DRIVER, "pool": "n1", "device": "gpu0"},
                        {"driver": "a.b", "pool": "n1", "device": "x"},
                    ]
                }
            }
        },
    }
    claims = [msgspec.convert(some, ResourceClaim) for some in (claim, {"metadata": {"name": "d"}})]
    found = one(a_node(capacity=NONE, allocatable=NONE), slices(gpu0=None), *claims)
    assert (found.stage, found.blocked_by, found.devices) == ("moved", (), 1)
    assert [(claim.name, claim.devices) for claim in found.claims] == [("c", ("gpu0",))]


def test_pods_of_the_plugin_block_a_node() -> None:
    found = one(
        a_node(capacity=EIGHT, allocatable=EIGHT),
        slices(gpu0=KEPT),
        CLASS,
        NAMELESS,
        a_pod("p", "1", "1", init=["4", "bad"]),
        a_pod("done", "1", phase="Succeeded"),
        a_pod("elsewhere", "1", node="n2"),
        a_pod("cpu-only", "0"),
    )
    assert found.stage == "in use"
    (resource,) = found.resources
    assert (resource.capacity, resource.allocatable, resource.device_class) == (8, 8, "gpu")
    assert [(pod.name, pod.count) for pod in resource.pods] == [("p", 4)]
    assert found.blocked_by == ("pods have nvidia.com/gpu from the device plugin: default/p",)
    assert [step.command.split()[1] for step in found.steps] == [
        "cordon",
        "delete",
        "label",
        "dra",
        "uncordon",
    ]


def test_a_pod_with_devices_of_dra_uses_no_plugin() -> None:
    status = {
        "extendedResourceClaimStatus": {
            "requestMappings": [
                {"containerName": "c0", "resourceName": GPU},
                {"containerName": "c1", "resourceName": "a.b/c"},
            ]
        }
    }
    node = a_node(capacity=EIGHT, allocatable=EIGHT)
    (resource,) = one(node, slices(gpu0=KEPT), a_pod("p", "1", "2", **status)).resources
    assert [pod.count for pod in resource.pods] == [2]


def test_a_plugin_without_pods_can_be_moved() -> None:
    found = one(a_node(capacity=EIGHT, allocatable=EIGHT), slices(gpu0=KEPT))
    assert found.stage == "can move"
    assert found.blocked_by == ("a device plugin offers 8 nvidia.com/gpu",)


def test_a_plugin_that_has_just_ended_is_waited_for() -> None:
    found = one(a_node(capacity=EIGHT, allocatable=NONE), slices(gpu0=KEPT))
    assert found.stage == "waiting"
    assert "5 minutes" in found.blocked_by[0]


def test_a_pod_that_has_not_ended_is_waited_for() -> None:
    found = one(
        a_node(capacity=NONE, allocatable=NONE), slices(gpu0=KEPT, gpu1={**KEPT, "key": "x"})
    )
    assert found.stage == "waiting"
    assert found.blocked_by == (
        "gpu0: a pod of the plugin nvidia.com_gpu has not ended, or the plugin can come back",
    )
    assert [step.command for step in found.steps] == ["kubectl dra migration --node n1"]


def test_without_the_driver_it_is_installed_first() -> None:
    found = one(a_node(capacity=EIGHT, allocatable=EIGHT))
    assert found.stage == "no driver"
    assert found.steps[0].what.startswith("install the driver")
    assert found.blocked_by[-1] == "there is no ResourceSlice of this driver for the node"


OLD = "v1.34.2"  # drops taints: the driver publishes no device that a plugin could give out
WITHHELD = (
    "the driver on the node publishes no device: this API server keeps no taints, so the driver publishes what a plugin could give out only "
    "when that plugin is gone"
)


@pytest.mark.parametrize(
    ("allocatable", "pods", "stage"),
    [(EIGHT, [a_pod("p", "1")], "in use"), (EIGHT, [], "can move"), (NONE, [], "waiting")],
)
def test_a_driver_without_devices_is_installed_where_taints_are_dropped(
    allocatable: Any, pods: list[Pod], stage: str
) -> None:
    node = a_node(capacity=EIGHT, allocatable=allocatable)
    (found,) = plan(node, slices(), *pods, kubernetes_version=OLD).nodes
    assert (found.stage, found.slices, found.devices) == (stage, 1, 0)
    assert found.blocked_by[-1] == WITHHELD
    steps = [step.what for step in found.steps]
    assert not any(what.startswith("install") for what in steps)
    assert (
        "wait until the slices have the devices and allocatable is 0: up to 5 minutes after the plugin's end"
        in steps
    )


def test_a_driver_without_devices_has_found_none_where_taints_are_kept() -> None:
    found = one(a_node(capacity=EIGHT, allocatable=EIGHT), slices())
    assert found.stage == "can move"
    assert found.blocked_by[-1] == "the driver on the node publishes no device: it has found none"


def test_where_taints_are_dropped_a_missing_one_proves_nothing() -> None:
    node = a_node(capacity=EIGHT, allocatable={GPU: "4"})
    (found,) = plan(node, slices(gpu0=None), kubernetes_version=OLD).nodes
    assert found.blocked_by == ("a device plugin offers 4 nvidia.com/gpu",)
    gates = {"DRADeviceTaints": True}
    (found,) = plan(node, slices(gpu0=None), kubernetes_version=OLD, feature_gates=gates).nodes
    assert found.resources[0].stale


@pytest.mark.parametrize("allocatable", ["8", "4"])
def test_what_somebody_wrote_into_the_status_is_found_with_the_command_that_removes_it(
    allocatable: str,
) -> None:
    node = a_node(capacity=EIGHT, allocatable={GPU: allocatable})
    found = one(node, slices(gpu0=None), CLASS)
    assert found.stage == "can move"
    assert found.blocked_by == (
        "nvidia.com/gpu is in the status of the node, and no plugin of others serves it, and hides DeviceClass gpu",
    )
    command, patch = found.steps[0].command.split(" -p ")
    assert command == "kubectl patch node n1 --subresource=status --type=json"
    assert json.loads(patch.strip("'")) == [
        {"op": "remove", "path": "/status/capacity/nvidia.com~1gpu"},
        {"op": "remove", "path": "/status/allocatable/nvidia.com~1gpu"},
    ]
    assert len(found.steps) == 2


def test_a_stale_resource_without_a_class_hides_nothing() -> None:
    found = one(a_node(capacity=EIGHT, allocatable=EIGHT), slices(gpu0=None))
    assert found.blocked_by == (
        "nvidia.com/gpu is in the status of the node, and no plugin of others serves it",
    )


def test_nodes_come_in_the_order_in_which_they_disturb_least() -> None:
    nodes = [a_node(name, EIGHT, EIGHT) for name in ("a", "b", "c", "d", "e")]
    pods = [a_pod("p", "1", node="a"), a_pod("q", "1", node="a"), a_pod("r", "1", node="b")]
    some = [slices(name, gpu0=KEPT) for name in ("a", "b", "c", "e")]
    found = plan(*nodes, *pods, *some, a_node("f"))
    assert found.order == ("c", "e", "b", "a", "d")
    assert len(found.nodes) == 6
    assert [node.node for node in plan(*nodes, node="b").nodes] == ["b"]


def test_what_was_not_read_is_said_if_it_decides() -> None:
    gaps = (NotRead(resource="pods", reason="forbidden"), NotRead("/metrics", "forbidden"))
    assert plan(not_read=gaps).not_read == ("pods: ",)


NOT_SERVED = NotRead("resourceslices", "not_served", message="1.30")


def test_on_a_cluster_without_claims_nothing_can_be_moved() -> None:
    listed = a_node("n2", EIGHT, EIGHT)
    ready = {"type": "DevicesReady", "status": "True", "reason": "Listed"}
    listed = msgspec.structs.replace(
        listed,
        status=msgspec.structs.replace(
            listed.status, conditions=[msgspec.convert(ready, Condition)]
        ),
    )
    found = plan(a_node("n1", EIGHT, EIGHT), listed, a_node("n3"), not_read=(NOT_SERVED,))
    assert (found.has_claims, found.order, found.not_read) == (False, (), ())
    assert [(one.node, one.stage, one.blocked_by, one.steps, one.notes) for one in found.nodes] == [
        (
            "n1",
            "no claims",
            (),
            (),
            (
                "the status of the node does not tell who serves them; `dra-driver devices` in the driver's pod does",
            ),
        ),
        (
            "n2",
            "no claims",
            (),
            (),
            ("the kubelet has a list of devices from this driver (condition DevicesReady)",),
        ),
        ("n3", "nothing to move", (), (), ()),
    ]


def test_a_resource_that_no_class_has_is_said() -> None:
    node = a_node(capacity=EIGHT, allocatable=EIGHT)
    said = "no DeviceClass has extendedResourceName nvidia.com/gpu: pods that ask for it will not start here"
    assert one(node, slices(gpu0=KEPT), NAMELESS).notes == (said,)
    assert one(node, slices(gpu0=KEPT), CLASS).notes == ()
    gap = NotRead("deviceclasses", "forbidden")
    assert plan(node, slices(gpu0=KEPT), not_read=(gap,)).nodes[0].notes == ()
