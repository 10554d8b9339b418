# SPDX-License-Identifier: Apache-2.0
"""What could a new claim of one device get? The answers agree with the scheduler's own search."""

import msgspec
import pytest

from dra_driver.explain.trial import try_on
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import Chosen
from dra_driver.overview.free import FreeOfClass, FreeProduct, free_of, took_too_long
from tests.e2e import fleet as words
from tests.unit.explain.clusters import claim
from tests.unit.overview.scene import ANYWHERE, Object, gpu_slice, held, overview, shared

TAINT = {"key": "xid", "effect": "NoSchedule"}
SHARE = {"device": "gpu-0", "shareID": "s", "consumedCapacity": {"memory": "20Gi"}}


def rows(*objects: Object, chosen: Chosen = ANYWHERE, **fields: object) -> list[FreeOfClass]:
    return list(free_of(overview(*objects, **fields), chosen).classes)


def test_free_devices_of_a_class() -> None:
    found = rows(
        gpu_slice(
            words.device("a"),
            words.device("b", memory="40Gi"),
            words.device("c", attributes={"model": {"string": "A100"}}),
            words.device("d", taints=[TAINT]),
            words.device("e"),
        ),
        held("train", {"device": "e"}),
    )
    assert found == [
        FreeOfClass(
            device_class="gpu",
            extended_resource="",
            matching=5,
            free=3,
            together=3,
            partly_free=0,
            on_closed_nodes=0,
            nodes=("fleet-1",),
            all_nodes=False,
            largest_memory="80Gi",
            products=(
                FreeProduct(product="A100", memory="80Gi", free=1, together=1),
                FreeProduct(product="H100", memory="80Gi", free=2, together=2),
            ),
            problem="",
            is_complete=True,
        )
    ]


def test_nothing_is_free() -> None:
    (found,) = rows(gpu_slice(words.device("a")), held("train", {"device": "a"}))
    assert (found.matching, found.free, found.nodes, found.products) == (1, 0, (), ())
    assert found.largest_memory == ""


def test_a_share_is_free_as_far_as_it_is_left() -> None:
    (found,) = rows(gpu_slice(shared(), words.device("b", memory="10Gi")), held("x", SHARE))
    assert (found.free, found.partly_free, found.largest_memory) == (2, 1, "60Gi")


def test_devices_without_memory_have_no_largest() -> None:
    (found,) = rows(gpu_slice({"name": "nic-0"}))
    assert (found.free, found.largest_memory) == (1, "")
    assert found.products == (FreeProduct(product="", memory="", free=1, together=1),)


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
    ],
)
def test_a_node_that_takes_no_pods(spec: Object) -> None:
    closed = words.node("n2", **spec)
    (found,) = rows(closed, gpu_slice(words.device("a"), pool="n2"), gpu_slice(words.device("b")))
    assert (found.free, found.on_closed_nodes, found.nodes) == (1, 1, ("fleet-1",))


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "PreferNoSchedule"},
    ],
)
def test_a_node_whose_taint_pods_tolerate_or_may_ignore(taint: Object) -> None:
    (found,) = rows(words.node("n2", taints=[taint]), gpu_slice(words.device("a"), pool="n2"))
    assert (found.free, found.on_closed_nodes) == (1, 0)


def test_devices_of_all_nodes_and_of_a_closed_one_among_others() -> None:
    everywhere = gpu_slice(words.device("a"), pool="net", allNodes=True)
    (found,) = rows(everywhere)
    assert (found.free, found.nodes, found.all_nodes) == (1, (), True)
    label = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["fleet-1", "n2"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [label]}]}
    some = gpu_slice(words.device("a"), pool="net", nodeSelector=selector)
    (found,) = rows(some, words.node("n2", unschedulable=True))
    assert (found.free, found.nodes) == (1, ("fleet-1",))


def test_nodes_that_could_not_be_read_count_as_open() -> None:
    found = overview(gpu_slice(words.device("a")))
    unread = Overview(msgspec.structs.replace(found.state, nodes=()))
    (without,) = free_of(unread, ANYWHERE).classes
    assert (without.free, without.nodes) == (1, ("fleet-1",))


def test_a_class_whose_selector_is_wrong_or_fails() -> None:
    wrong = words.device_class("wrong", expression="device.nothing")
    fails = words.device_class("fails", expression='device.attributes["x"].y == 1')
    found = {one.device_class: one for one in rows(gpu_slice(words.device("a")), wrong, fails)}
    assert found["gpu"].problem == ""
    assert found["wrong"].free == 0
    assert "class wrong selector #0" in found["wrong"].problem
    assert found["fails"].matching == 0
    assert found["fails"].problem.startswith("class fails selector #0: CEL runtime error: ")
    assert found["fails"].problem.endswith("; the scheduler may give up on the whole pod")


def test_a_class_that_excludes_devices_has_no_problem() -> None:
    small = words.device_class("small", expression="device.driver == 'other.example.com'")
    gpu, other = rows(gpu_slice(words.device("a")), small)
    assert (gpu.matching, other.matching, other.problem) == (1, 0, "")


def test_a_search_that_takes_too_long_is_a_problem() -> None:
    found = free_of(overview(gpu_slice(words.device("a"))), ANYWHERE, cancelled=lambda: True)
    assert found.classes[0].problem == "could not tell (timeout): a selector took too long"
    assert took_too_long(found.classes[0])
    assert (found.classes[0].free, found.classes[0].is_complete) == (0, False)


def test_the_main_gate_is_off() -> None:
    gates = {"DynamicResourceAllocation": False}
    (found,) = rows(gpu_slice(words.device("a")), featureGates=gates)
    assert found.problem == (
        "a claim needs feature gate DynamicResourceAllocation, which is off here"
    )
    assert (found.free, found.is_complete) == (0, True)


def test_one_class_a_node_or_a_driver() -> None:
    objects = (
        words.device_class("all", expression="true"),
        gpu_slice(words.device("a")),
        gpu_slice(words.device("b"), name="nics", driver="nic.example.com"),
    )
    whole = overview(*objects)
    assert [one.device_class for one in free_of(whole, ANYWHERE).classes] == ["all", "gpu"]
    (found,) = free_of(whole, ANYWHERE, "all").classes
    assert found.free == 2
    (found,) = free_of(whole, Chosen(driver="nic.example.com"), "all").classes
    assert found.free == 1
    (found,) = free_of(whole, Chosen(node="fleet-0"), "all").classes
    assert found.matching == 0


def test_the_name_of_the_extended_resource() -> None:
    made = words.device_class()
    made["spec"]["extendedResourceName"] = "example.com/gpu"
    made["metadata"]["name"] = "named"
    assert [one.extended_resource for one in rows(made)] == ["", "example.com/gpu"]


@pytest.mark.parametrize(
    "objects",
    [
        (gpu_slice(words.device("a")),),
        (gpu_slice(words.device("a", taints=[TAINT])),),
        (gpu_slice(words.device("a")), held("x", {"device": "a"})),
        (gpu_slice(words.device("a")), held("x", {"device": "a", "adminAccess": True})),
        (gpu_slice(words.device("a"), slices=2, nodeName="fleet-1"),),
        (gpu_slice(words.device("a"), pool="fleet-9"),),
        (gpu_slice(words.device("a"), driver="nic.example.com"),),
        (gpu_slice(shared()), held("x", {**SHARE, "consumedCapacity": {"memory": "80Gi"}})),
    ],
)
def test_a_device_is_free_where_the_scheduler_gives_one(objects: tuple[Object, ...]) -> None:
    whole = overview(*objects)
    (found,) = free_of(whole, ANYWHERE).classes
    (node,) = whole.state.nodes
    wanted = claim(words.request())
    assert try_on(whole.fleet.allocator, node, [wanted], lambda: False).fits is bool(found.free)
