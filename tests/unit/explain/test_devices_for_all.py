# SPDX-License-Identifier: Apache-2.0
"""What else is in the way of a workload's next pod does not hide that the devices are too few for all that are left."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.explain.outcome import PodCount, Report
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import device, resource_slice
from tests.unit.explain.clusters import state
from tests.unit.explain.test_replicas import (
    FROM_TEMPLATE,
    OTHER,
    TAINT,
    TWO,
    answer,
    workload,
)

LEFT = "there are devices for"
SIDE = "devices fit, something else is in the way"
MORE = resource_slice([device("gpu-0")], pool=OTHER)


def fleet(**other: Any) -> ClusterState:
    """Two devices on one node, and one on another node."""
    return state(TWO, words.node(OTHER, **other), MORE)


def told(report: Report) -> tuple[int, str, PodCount | None]:
    return report.exit_code, report.summary.partition("; ")[2], report.pods


def test_a_taint_is_in_the_way_only_if_there_are_devices_for_all_behind_it() -> None:
    repelled = "the devices fit on 1 of 2 nodes, and none of these takes the pod"
    enough = answer(fleet(taints=[TAINT]), workload("Deployment", replicas=3))
    assert told(enough) == (3, f"the third: {repelled}", PodCount(wanted=3, fit=2))
    report = answer(fleet(taints=[TAINT]), workload("Deployment", replicas=4))
    words_ = f"the third: {repelled}; {LEFT} 1 of the 2 pods that are left"
    assert told(report) == (1, words_, PodCount(wanted=4, fit=2))
    assert report.outcome == "devices do not fit"


@pytest.mark.parametrize(("replicas", "code"), [(2, 3), (3, 1)])
def test_a_gate_is_in_the_way_only_if_there_are_devices_for_all(replicas: int, code: int) -> None:
    gated = words.pod(of=FROM_TEMPLATE, schedulingGates=[{"name": "quota"}])
    report = answer(state(TWO), workload("Deployment", pod=gated, replicas=replicas))
    assert report.exit_code == code
    assert (f"{LEFT} 2 of the 3 pods" in report.summary) == (code == 1)


def test_each_node_of_a_daemon_needs_its_devices_whatever_is_in_the_way_of_one() -> None:
    """The second node has two devices, but the daemon's pod on the third gets none of them."""
    small, third = (
        {**words.node(name), "status": {"allocatable": {"cpu": "2", "pods": "9"}}}
        for name in (OTHER, "fleet-2")
    )
    pod = words.pod(of=FROM_TEMPLATE)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    two = resource_slice([device("gpu-0"), device("gpu-1")], pool=OTHER)
    enough = answer(state(TWO, small, two), workload("DaemonSet", pod=pod))
    assert (enough.exit_code, enough.outcome) == (3, SIDE)
    report = answer(state(TWO, small, two, third), workload("DaemonSet", pod=pod))
    assert (report.exit_code, report.pods) == (1, PodCount(wanted=3, fit=1))
    assert report.summary.endswith(f"; {LEFT} 1 of the 2 pods that are left")


def test_pods_that_need_no_devices_of_their_own_are_not_counted() -> None:
    plain = {"spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": "one"}}}
    report = answer(state(TWO), workload("Deployment", pod=plain, replicas=1_000_000))
    assert (report.exit_code, report.outcome) == (3, SIDE)
    gates = [{"name": "quota"}]
    shared = words.pod(of={"resourceClaimName": words.MINE}, schedulingGates=gates)
    report = answer(state(TWO), words.claim(), workload("Deployment", pod=shared, replicas=5))
    assert (report.exit_code, report.outcome) == (3, SIDE)


def test_devices_that_a_device_plugin_has_are_counted_too() -> None:
    asked = {"requests": {"vendor.example/gpu": "1"}, "limits": {"vendor.example/gpu": "1"}}
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": asked}],
        "schedulingGates": [{"name": "quota"}],
    }
    cluster = state()
    cluster.nodes[0].status.allocatable["vendor.example/gpu"] = "2"  # type: ignore[index]
    report = answer(cluster, workload("Deployment", pod={"spec": spec}, replicas=3))
    assert report.exit_code == 1
    assert report.summary.endswith(f"; {LEFT} 2 of the 3 pods that are left")


def test_time_that_is_over_before_all_are_counted_leaves_the_answer_open() -> None:
    def stopped_after(calls: int) -> Callable[[], bool]:
        left = iter(range(calls))
        return lambda: next(left, None) is None

    many = workload("Deployment", replicas=4)
    reports = [answer(fleet(taints=[TAINT]), many, cancelled=stopped_after(n)) for n in range(60)]
    assert reports[-1].exit_code == 1
    counting = [one for one in reports if "none of these takes the pod" in one.summary]
    assert {one.exit_code for one in counting} == {1, 2}
    assert {one.outcome for one in counting if LEFT not in one.summary} == {"could not tell"}
