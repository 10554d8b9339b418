# SPDX-License-Identifier: Apache-2.0
"""What is answered about a node where nobody knows whether the pod has room? It is no node that takes the pod, and none that does not."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.outcome import NodeGroup, Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.verdict import CouldNotTell, Fits
from dra_driver.model.api.core import Pod
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state
from tests.unit.explain.test_replicas import workload

OTHER = "other"
HUGE = "9e999999"
ANY = words.claim(request())
MODEL = words.claim(request(cel=f'device.attributes["{GPU}"].model == "a"'))
POD = words.pod(cpu="4")
UNKNOWN = {"memory": {"value": HUGE}}
RIGHT: dict[str, Any] = {"attributes": {"model": {"string": "a"}}}
WRONG: dict[str, Any] = {"attributes": {}}


def user(cpu: str, node: str) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "containers": [container]}
    return msgspec.convert(
        {"metadata": {"name": f"on-{node}", "namespace": "ns"}, "spec": spec}, Pod
    )


def cluster(here: Any, there: Any, *objects: Any, **cpu: str) -> ClusterState:
    """Two nodes, each with a device of these fields, and on each node of `cpu` a pod that asks for so much."""
    slices = [
        resource_slice(devices(1, **fields), pool=name)
        for name, fields in ((HOME, here), (OTHER, there))
    ]
    pods = tuple(user(amount, {"home": HOME}.get(name, name)) for name, amount in cpu.items())
    return msgspec.structs.replace(state(words.node(OTHER), *slices, *objects), pods=pods)


def asked(found: ClusterState, *about: Any) -> Report:
    return explain(found, ManifestSubject(about, "ns", "f.yaml"))


def groups(report: Report) -> dict[str, NodeGroup]:
    return {name: one for one in report.nodes for name in one.nodes}


@pytest.mark.parametrize(
    ("cpu", "code"),
    [
        ({}, 1),
        ({"home": "6"}, 0),
        ({"home": HUGE}, 2),
        ({"other": HUGE}, 1),
        ({"home": HUGE, "other": HUGE}, 2),
    ],
)
def test_an_error_stops_the_pod_only_if_a_node_with_it_certainly_takes_the_pod(
    cpu: dict[str, str], code: int
) -> None:
    report = asked(cluster(WRONG, RIGHT, **cpu), MODEL, POD)
    assert report.exit_code == code
    doubts = [one for one in report.verdicts if isinstance(one, CouldNotTell)]
    assert bool(doubts) == (code == 2)


def test_an_error_stops_a_claim_without_a_pod_whatever_runs_on_the_node() -> None:
    assert asked(cluster(WRONG, RIGHT, home=HUGE), MODEL).exit_code == 1


def test_where_no_node_has_devices_nobody_asks_whether_the_pod_has_room() -> None:
    assert asked(cluster(WRONG, WRONG, home=HUGE, other=HUGE), MODEL, POD).exit_code == 1


def test_an_error_on_such_a_node_does_not_make_sure_of_one_that_may_not_come_up() -> None:
    """The search may take a device of unknown amounts on one node before it comes to the error."""
    before = resource_slice(
        devices(1, **RIGHT, capacity=UNKNOWN), name="a", pool="a", nodeName=HOME
    )
    for cpu, code in (({}, 1), ({"other": HUGE}, 2)):
        assert asked(cluster(WRONG, WRONG, before, **cpu), MODEL, POD).exit_code == code


def test_pods_that_nobody_may_list_may_keep_the_pod_off_a_node_with_an_error() -> None:
    blind = NotRead(resource="pods", reason="forbidden")
    found = msgspec.structs.replace(cluster(WRONG, RIGHT), not_read=(blind,))
    assert asked(found, MODEL, POD).exit_code == 2


def test_such_a_node_is_not_counted_as_one_that_takes_the_pod() -> None:
    report = asked(cluster(RIGHT, RIGHT, home=HUGE), ANY, POD)
    assert report.summary == (
        "the devices fit on 1 of 2 nodes (and on 1 more, where nobody knows whether the pod has room)"
    )
    on = groups(report)
    (doubt,) = on[HOME].pod
    assert str(doubt).startswith(
        f"could not tell (malformed): pods ns/on-{HOME}: spec.containers[c]"
    )
    assert (on[HOME].devices, on[OTHER].pod) == ((), ())
    (fits,) = (one for one in report.verdicts if isinstance(one, Fits))
    assert [one.pool for one in fits.devices] == [OTHER]


def test_such_a_node_is_counted_beside_one_that_does_not_take_the_pod() -> None:
    found = cluster(RIGHT, RIGHT, words.node("third"), home=HUGE, other="6")
    third = resource_slice(devices(1, **RIGHT), pool="third")
    found = msgspec.structs.replace(
        found, resource_slices=(*found.resource_slices, *state(third).resource_slices)
    )
    assert asked(found, ANY, POD).summary == (
        "the devices fit on 1 of 3 nodes (and on 1 more, which would not take the pod, "
        "and on 1 more, where nobody knows whether the pod has room)"
    )


def test_a_claim_without_a_pod_needs_no_room() -> None:
    report = asked(cluster(RIGHT, RIGHT, home=HUGE), ANY)
    assert report.summary == "the devices fit on 2 of 2 nodes"
    assert not any(one.pod for one in report.nodes)


def test_a_change_that_helps_there_is_told_with_what_to_look_at() -> None:
    held = [holder("gpu-0", name="one"), holder("gpu-0", name="two", pool=OTHER)]
    words_of = [
        (one.what, one.on)
        for cpu in ({"home": HUGE}, {"home": HUGE, "other": HUGE})
        for one in asked(cluster(RIGHT, RIGHT, *held, **cpu), ANY, POD).changes
    ]
    look = "see whether the node has room for the pod, for that could not be counted"
    assert words_of == [("end claim ns/two", OTHER), (f"end claim ns/one; {look}", HOME)]


def test_devices_that_are_too_few_are_too_few_whether_or_not_there_is_room() -> None:
    template = {"resourceClaimTemplateName": words.MINE}
    codes = []
    for replicas in (1, 2, 3):
        pods = workload("Deployment", replicas=replicas, pod=words.pod(of=template, cpu="4"))
        report = asked(cluster(RIGHT, RIGHT, home=HUGE), words.template(), pods)
        codes.append(report.exit_code)
    assert codes == [0, 2, 1]
    assert report.summary.startswith("1 of 3 pods fit; the second: could not tell")
    assert report.summary.endswith("there are devices for 1 of the 2 pods that are left")


@pytest.mark.parametrize("spec", [{}, {"schedulingGates": [{"name": "g"}]}])
def test_devices_that_may_be_more_are_not_called_too_few(spec: dict[str, Any]) -> None:
    """Whether the first pod is held up by a gate, or may be by too little room: the others may get devices of unknown amounts."""
    template = {"resourceClaimTemplateName": words.MINE}
    pod = words.pod(of=template, cpu="4", **spec)
    report = asked(
        cluster(RIGHT, {"capacity": UNKNOWN}, home=HUGE),
        words.template(),
        workload("Deployment", replicas=2, pod=pod),
    )
    assert report.exit_code == 2
    doubts = [one.what for one in report.verdicts if isinstance(one, CouldNotTell)]
    assert any(one.startswith("resourceslices") for one in doubts)
    known = cluster(RIGHT, {"taints": [{"key": "k", "effect": "NoSchedule"}]}, home=HUGE)
    pods = workload("Deployment", replicas=2, pod=pod)
    assert asked(known, words.template(), pods).exit_code == 1
