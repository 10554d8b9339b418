# SPDX-License-Identifier: Apache-2.0
"""What keeps a pod off a node, devices aside."""

import msgspec
import pytest

from dra_driver.explain.facts.pod_filters import PodFilters
from dra_driver.explain.facts.used_resources import UsedResources
from dra_driver.explain.verdict import (
    CouldNotTell,
    NodeResources,
    NodeSelectorMismatch,
    NodeTainted,
    NodeUnschedulable,
    Verdict,
)
from dra_driver.model.api.core import Node, Pod

ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "3"}
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node(**spec: object) -> Node:
    metadata = {"name": "n", "labels": {"zone": "a"}}
    return msgspec.convert(
        {"metadata": metadata, "spec": spec, "status": {"allocatable": ALLOCATABLE}}, Node
    )


def pod(name: str = "p", cpu: str = "1", status: str = "", **spec: object) -> Pod:
    requests = {"cpu": cpu, "memory": "1Gi"}
    containers = spec.pop("containers", [{"name": "c", "resources": {"requests": requests}}])
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"containers": containers, **spec},
            "status": {"phase": status},
        },
        Pod,
    )


def reasons(made: Pod, where: Node, others: tuple[Pod, ...] = ()) -> tuple[Verdict, ...]:
    return PodFilters(made, UsedResources(others)).reasons(where)


def required(operator: str) -> dict[str, object]:
    part = {"key": "zone", "operator": operator, "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [part]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_node_that_has_room_takes_the_pod() -> None:
    assert reasons(pod(), node()) == ()
    assert reasons(pod(affinity=required("In"), nodeSelector={"zone": "a"}), node()) == ()


def test_taints_repel_unless_they_are_tolerated() -> None:
    tainted = node(taints=[TAINT, {"key": "soft", "effect": "PreferNoSchedule"}])
    assert reasons(pod(), tainted) == (NodeTainted("gpu=only:NoSchedule"),)
    assert reasons(pod(), node(taints=[{"key": "x", "effect": "NoExecute"}])) == (
        NodeTainted("x:NoExecute"),
    )


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "only"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "other"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "only"}, False),
    ],
)
def test_a_toleration_matches_as_kubernetes_says(toleration: object, tolerates: bool) -> None:
    found = reasons(pod(tolerations=[toleration]), node(taints=[TAINT]))
    assert (found == ()) == tolerates


def test_a_cordon_is_told_once() -> None:
    assert reasons(pod(), node(unschedulable=True, taints=[CORDON])) == (NodeUnschedulable(),)
    patient = pod(tolerations=[{"operator": "Exists"}])
    assert reasons(patient, node(unschedulable=True, taints=[CORDON])) == ()


def test_the_pods_own_wishes_exclude_nodes() -> None:
    assert reasons(pod(nodeName="m"), node()) == (NodeSelectorMismatch("nodeName m"),)
    assert reasons(pod(nodeSelector={"zone": "b"}), node()) == (
        NodeSelectorMismatch("nodeSelector zone=b"),
    )
    assert reasons(pod(affinity=required("NotIn")), node()) == (
        NodeSelectorMismatch("node affinity"),
    )
    assert reasons(pod(affinity={}), node()) == ()


def test_a_malformed_affinity_cannot_be_judged() -> None:
    (found,) = reasons(pod(affinity=required("Odd")), node())
    assert isinstance(found, CouldNotTell)
    assert "node affinity" in found.what


def test_other_pods_use_a_part_of_the_node() -> None:
    others = (pod("a", "2", nodeName="n"), pod("b", "2", nodeName="n"))
    assert reasons(pod(), node(), others) == (NodeResources("cpu", "1", "0"),)
    ended = tuple(pod(name, "2", "Succeeded", nodeName="n") for name in ("a", "b"))
    elsewhere = pod("c", "4", nodeName="m")
    assert reasons(pod(), node(), (*ended, elsewhere, pod("p", "4", nodeName="n"))) == ()


def test_a_node_takes_so_many_pods() -> None:
    others = tuple(pod(f"o{number}", "0", nodeName="n") for number in range(3))
    assert reasons(pod(cpu="0"), node(), others) == (NodeResources("pods", "1", "0"),)


def test_memory_is_shown_in_its_own_units() -> None:
    others = tuple(pod(f"o{number}", "0", nodeName="n") for number in range(2))
    large = [{"name": "c", "resources": {"requests": {"memory": "7Gi"}}}]
    assert reasons(pod(containers=large), node(), others) == (
        NodeResources("memory", "7Gi", "6Gi"),
    )


def test_what_devices_provide_is_not_asked_of_the_node() -> None:
    requests = {"example.com/gpu": "1", "example.com/other": "1"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    made = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    filters = PodFilters(made, UsedResources(()), frozenset({"example.com/gpu"}))
    assert filters.reasons(node()) == (NodeResources("example.com/other", "1", "0"),)


def test_too_few_devices_are_told_also_of_a_node_that_repels_the_pod() -> None:
    asked = [{"name": "c", "resources": {"requests": {"example.com/gpu": "8", "cpu": "1"}}}]
    there = node(taints=[{"key": "gpu", "effect": "NoSchedule"}])
    status = msgspec.structs.replace(
        there.status, allocatable={**(there.status.allocatable or {}), "example.com/gpu": "4"}
    )
    filters = PodFilters(pod(containers=asked), UsedResources(()))
    short = (NodeResources("example.com/gpu", "8", "4"),)
    tainted = msgspec.structs.replace(there, status=status)
    assert filters.lacking(tainted) == short
    assert filters.others(tainted) == (NodeTainted("gpu:NoSchedule"),)
    assert filters.reasons(tainted) == (NodeTainted("gpu:NoSchedule"), *short)


def test_a_node_that_repels_the_pod_and_is_too_small_is_told_as_both() -> None:
    asked = [{"name": "c", "resources": {"requests": {"cpu": "99"}}}]
    filters = PodFilters(pod(containers=asked), UsedResources(()))
    repelled, small = filters.others(node(taints=[{"key": "gpu", "effect": "NoSchedule"}]))
    assert repelled == NodeTainted("gpu:NoSchedule")
    assert isinstance(small, NodeResources)
    assert (small.resource, small.needed) == ("cpu", "99")
