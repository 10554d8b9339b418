# SPDX-License-Identifier: Apache-2.0
"""Explanations of clusters in which several things come together."""

from typing import Any

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain.nodes import MOST_CONFLICTS
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, TemplateSubject, explain
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    ClassMissing,
    CouldNotTell,
    HeldByClaim,
    NodeUnschedulable,
    NotEnoughDevices,
    SelectorNeverMatches,
    TooManyDevices,
)
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaimTemplate
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

ONE = resource_slice(devices(1))
PARTS = {"DRAPartitionableDevices": True}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


def answer(cluster: ClusterState, *documents: Any) -> Report:
    return explain(cluster, ManifestSubject(documents, "ns", "f.yaml"))


def asking(*requests: dict[str, Any], cluster: ClusterState, **devices: Any) -> Report:
    return answer(cluster, words.claim(*requests, **devices))


def with_nodes(cluster: ClusterState, *nodes: dict[str, Any]) -> ClusterState:
    allocatable = {"status": {"allocatable": {"cpu": "8", "pods": "9"}}}
    made = tuple(msgspec.convert(allocatable | node, Node) for node in nodes)
    return msgspec.structs.replace(cluster, nodes=made)


def test_of_pods_that_are_all_served_the_first_is_told() -> None:
    report = answer(state(resource_slice(devices(2))), *words.user("a"), *words.user("b"))
    assert (report.exit_code, report.subject) == (0, "pod ns/a")


def test_a_class_of_the_manifest_counts_as_applied() -> None:
    own = words.device_class("own")
    claim = words.claim(request(deviceClassName="own"))
    assert answer(state(ONE), claim).exit_code == 1
    assert answer(state(ONE), own, claim).exit_code == 0


def test_a_resource_that_every_node_offers_itself_takes_no_device() -> None:
    resource = f"{GPU}/whole"
    extended = words.device_class("extended")
    extended["spec"]["extendedResourceName"] = resource
    plugin = words.node(HOME) | {"status": {"allocatable": {resource: "1", "pods": "9"}}}
    container = {"name": "c", "resources": {"requests": {resource: "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }
    report = answer(with_nodes(state(ONE, extended), plugin), pod)
    assert (report.exit_code, report.claims) == (0, ())
    nowhere = answer(with_nodes(state(ONE, extended)), pod)
    assert (nowhere.exit_code, len(nowhere.claims)) == (1, 1)


def test_the_template_is_found_among_others() -> None:
    made = [words.template(name=name) for name in ("other", words.MINE)]
    for one in made:
        one["metadata"]["namespace"] = "ns"
    templates = tuple(msgspec.convert(one, ResourceClaimTemplate) for one in made)
    cluster = msgspec.structs.replace(state(ONE), resource_claim_templates=templates)
    pod = words.pod(of={"resourceClaimTemplateName": words.MINE})
    assert answer(cluster, pod).exit_code == 0
    assert explain(cluster, TemplateSubject("ns", words.MINE)).exit_code == 0


def test_nodes_that_are_alike_show_their_own_devices() -> None:
    names = ("one", "two")
    slices = [resource_slice([device(f"of-{name}")], pool=name) for name in names]
    nodes = words.node("one"), words.node("two", unschedulable=True)
    report = answer(with_nodes(state(*slices), *nodes), *words.user("p"))
    placed = {group.nodes: [one.device for one in group.placement] for group in report.nodes}
    assert placed == {("one",): ["of-one"], ("two",): ["of-two"]}
    assert [group.pod for group in report.nodes] == [(), (NodeUnschedulable(),)]


def test_a_conflict_that_was_found_before_is_told_in_the_same_words() -> None:
    pools = [f"pool-{number}" for number in range(6)]
    slices = [
        resource_slice([device(f"gpu-{numa}", numa=numa) for numa in range(size + 3)], pool=pool)
        for size, pool in enumerate(pools)
    ]
    cluster = with_nodes(state(*slices), *map(words.node, pools))
    constraint = {"requests": ["left", "right"], "matchAttribute": f"{GPU}/numa"}
    wanted = [request(name) for name in ("left", "right", "third")]
    report = asking(*wanted, cluster=cluster, constraints=[constraint])
    told = [reason for group in report.nodes for reason in group.devices for _ in group.nodes]
    assert len(told) == len(pools)
    assert not any("third" in str(reason) for reason in told)


def test_only_the_first_conflicts_are_taken_apart() -> None:
    """Each node has a constraint of its own that does not hold there."""
    pools = [f"pool-{number}" for number in range(MOST_CONFLICTS + 2)]
    slices = [
        resource_slice(
            [
                device(
                    f"gpu-{number}",
                    attributes={
                        f"a{other}": {"int": number if other == place else 0}
                        for other in range(len(pools))
                    },
                )
                for number in range(2)
            ],
            pool=pool,
        )
        for place, pool in enumerate(pools)
    ]
    cluster = with_nodes(state(*slices), *map(words.node, pools))
    both = ["left", "right"]
    report = asking(
        *map(request, both),
        cluster=cluster,
        constraints=[
            {"requests": both, "matchAttribute": f"{GPU}/a{place}"} for place in range(len(pools))
        ],
    )
    told = [str(reason) for group in report.nodes for reason in group.devices]
    assert [text.count("matchAttribute") for text in told] == [1] * MOST_CONFLICTS + [6, 6]


def test_all_devices_of_a_pool_that_is_being_written_are_told_in_the_schedulers_words() -> None:
    half = resource_slice(name="half", pool="half", slices=2, nodeName=HOME)
    report = asking(request(allocationMode="All"), cluster=state(ONE, half))
    (group,) = report.nodes
    assert isinstance(group.devices[0], AllUnsatisfied)
    assert "asks for all devices" in str(group.devices[0])


def test_more_matching_devices_than_a_claim_holds_are_too_many() -> None:
    report = asking(request(allocationMode="All"), cluster=state(resource_slice(devices(40))))
    assert report.claims[0].requests[0].verdicts == (TooManyDevices(40),)
    assert report.nodes[0].devices == (TooManyDevices(40),)
    some = state(resource_slice(devices(40)), holder("gpu-0"))
    used = asking(request(allocationMode="All"), cluster=some)
    assert used.nodes[0].devices == (TooManyDevices(40),)
    both = asking(
        request(allocationMode="All"),
        request("more", count=20),
        cluster=state(resource_slice(devices(20))),
    )
    assert both.nodes[0].devices == (TooManyDevices(40),)
    assert both.claims[0].requests[0].verdicts == ()


def test_all_devices_of_nodes_without_any_are_none() -> None:
    elsewhere = resource_slice(devices(1), nodeName="gone")
    report = asking(request(allocationMode="All"), cluster=state(elsewhere))
    (told,) = report.claims[0].requests[0].verdicts
    assert "cannot be had, for example: only for node gone" in str(told)


def test_a_condition_that_names_no_attribute_is_told_as_it_is() -> None:
    (told,) = asking(request(cel="1 == 2"), cluster=state(ONE)).claims[0].requests[0].verdicts
    assert isinstance(told, SelectorNeverMatches)
    assert told.part == "1 == 2"


def test_an_attribute_that_nobody_publishes_is_said_to_be_so() -> None:
    cel = f'device.attributes["{GPU}"].?color.orValue("") == "red"'
    (told,) = asking(request(cel=cel), cluster=state(ONE)).claims[0].requests[0].verdicts
    assert isinstance(told, SelectorNeverMatches)
    assert "published by no device" in told.found


def test_devices_that_share_counters_are_counted_as_the_allocator_does() -> None:
    counters = {"slices": {"value": "2"}}
    one = [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]
    whole = resource_slice(name="counters", slices=2)
    whole["spec"]["sharedCounters"] = [{"name": "card", "counters": counters}]
    parts = [device(f"part-{number}", consumesCounters=one) for number in range(4)]
    report = asking(request(count=4), cluster=state(whole, resource_slice(parts, slices=2)))
    assert report.claims[0].requests[0].verdicts == (NotEnoughDevices(4, 2),)
    assert [change.what for change in report.changes] == [
        "request gpu of claim ns/mine: ask for 2 instead of 4"
    ]


def test_a_class_whose_name_is_nearly_right_is_tried() -> None:
    report = asking(request(deviceClassName="gpuu"), cluster=state(ONE))
    assert [change.what for change in report.changes] == [
        "request gpu of claim ns/mine: deviceClassName gpu"
    ]


def test_two_changes_of_different_kinds_are_enough() -> None:
    listed = [device("gpu-0"), device("gpu-1", numa=1), device("gpu-2", taints=[TAINT])]
    constraint = {"requests": ["left", "right"], "matchAttribute": f"{GPU}/numa"}
    report = asking(
        request("left"),
        request("right"),
        cluster=state(resource_slice(listed)),
        constraints=[constraint, {**constraint, "matchAttribute": f"{GPU}/model"}],
    )
    assert [change.what for change in report.changes] == [
        "request left of claim ns/mine: tolerate k=v:NoSchedule",
        f"claim ns/mine: leave out the constraint matchAttribute {GPU}/numa",
    ]


def test_one_change_for_two_requests_is_told_once() -> None:
    holder = words.claim(name="holder")
    holder["metadata"]["namespace"] = "ns"
    chosen = {"request": "gpu", "driver": GPU, "pool": HOME, "device": "gpu-1"}
    holder["status"] = {"allocation": {"devices": {"results": [chosen]}}}
    cluster = state(resource_slice(devices(2)), holder)
    report = asking(request("left"), request("right"), cluster=cluster)
    assert [change.what for change in report.changes] == ["end claim ns/holder"]


LOOP: dict[str, Any] = {"kind": "List", "items": []}
LOOP["items"].append(LOOP)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (LOOP, "has a List that contains itself"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\ud800"}},
            r"Pod \\ud800 is malformed: .*surrogates",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": 3},
            "Pod without a name is malformed: Expected `object`",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "spec": {True: 1}},
            "Pod without a name is malformed: Only dicts with str",
        ),
        (
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": [], "spec": []},
            r"Job without a name: it has no spec\.template",
        ),
        (
            {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": 7}},
            r"CronJob without a name: it has no spec\.jobTemplate\.spec\.template",
        ),
    ],
)
def test_a_manifest_that_is_no_such_object_is_a_sentence(document: Any, message: str) -> None:
    with pytest.raises(Permanent, match=message):
        answer(state(), document)


def test_odd_metadata_of_a_workload_is_no_trouble() -> None:
    template = {"metadata": 5, "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": template},
    }
    assert answer(state(ONE), job).subject == "job ns/j"


@pytest.mark.parametrize("first", [0, 1])
def test_an_alternative_of_a_missing_class_stops_the_pod_although_another_one_fits(
    first: int,
) -> None:
    body = {"allocationMode": "ExactCount", "count": 1}
    names = [(words.CLASS, "there"), ("nope", "missing")]
    alternatives = [{"name": name, "deviceClassName": of, **body} for of, name in names]
    wanted = {"name": "gpu", "firstAvailable": [alternatives[first], alternatives[1 - first]]}
    report = asking(wanted, cluster=state(ONE))
    (node,) = report.nodes
    assert (report.exit_code, report.outcome) == (1, "devices do not fit")
    assert (node.devices, node.requests) == (
        (ClassMissing("nope", "the cluster has gpu"),),
        ("gpu/missing",),
    )
    assert not any(isinstance(one, CouldNotTell) for one in report.verdicts)


@pytest.mark.parametrize("consumed", ["s", "unknown"])
def test_from_a_slice_with_counters_no_device_is_taken(consumed: str) -> None:
    """A slice of Kubernetes 1.34 may be stored still. What its devices consume was never checked by a newer API server."""
    part = [{"counterSet": consumed, "counters": {"c": {"value": "1"}}}]
    counters = [{"name": "s", "counters": {"c": {"value": "4"}}}]
    old = resource_slice(devices(1, consumesCounters=part), pool="old")
    old["spec"]["sharedCounters"] = counters
    cluster = state(words.node("old"), ONE, old, holder("gpu-0", pool="old"))
    assert asking(request(), cluster=cluster).exit_code == 0
    report = asking(request(count=2), cluster=cluster)
    (there,) = (one for one in report.nodes if one.nodes == ("old",))
    assert [str(one) for one in there.devices] == [
        f"pool {GPU}/old is invalid: devices are in a slice with sharedCounters, where this release takes none"
    ]
    older = msgspec.structs.replace(cluster, kubernetes_version="v1.34.1", feature_gates=PARTS)
    if consumed == "s":
        report = asking(request(count=2), cluster=older)
        (there,) = (one for one in report.nodes if one.nodes == ("old",))
        assert [type(one) for one in there.devices] == [HeldByClaim]
