# SPDX-License-Identifier: Apache-2.0
"""What to do is what the reader can do: nobody edits a claim that the scheduler writes, and without a constraint none is blamed."""

from typing import Any

import msgspec
import pytest

from dra_driver.cli.render_explain import text
from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import ROWS, fix
from dra_driver.explain.report import ManifestSubject, PodSubject, explain
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CapacityConsumed,
    ClaimMissing,
    ConstraintConflict,
    PoolIncomplete,
    SelectorError,
    Tainted,
    TooManyDevices,
    Verdict,
)
from dra_driver.explain.verdicts.claim import OF_ANOTHER_POD
from dra_driver.explain.verdicts.request import ONLY_ONCE, SHARED, TOO_FEW
from dra_driver.model.api.core import Pod
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

RESOURCE = f"deviceclass.resource.kubernetes.io/{words.CLASS}"
TAINTS = [{"key": "team", "value": "a", "effect": "NoSchedule"}]


def extended(cluster: ClusterState, count: int = 1) -> Report:
    limits = {RESOURCE: str(count)}
    container = {"name": "c", "resources": {"requests": limits, "limits": limits}}
    made = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}
    pod = msgspec.convert({**made, "spec": {"containers": [container]}}, Pod)
    return explain(msgspec.structs.replace(cluster, pods=(pod,)), PodSubject("ns", "p"))


def helps(report: Report) -> list[str]:
    return [one.what for one in report.changes]


def test_a_toleration_needs_a_claim_that_somebody_writes() -> None:
    report = extended(state(resource_slice([device("gpu-0", taints=TAINTS)])))
    assert "; ".join(helps(report)) == (
        "request container-0-request-0 for the extended resources of pod ns/p: "
        "write a ResourceClaim in their place, and there tolerate team=a:NoSchedule"
    )
    assert [one.of_scheduler for one in report.claims] == [True]


def test_the_count_of_an_extended_resource_can_be_changed_where_it_is() -> None:
    report = extended(state(resource_slice(devices(1))), count=2)
    assert helps(report) == [
        "request container-0-request-0 for the extended resources of pod ns/p: ask for 1 instead of 2"
    ]


def test_a_toleration_is_written_into_a_claim_of_ones_own() -> None:
    tainted = state(resource_slice([device("gpu-0", taints=TAINTS)]))
    report = explain(tainted, ManifestSubject((words.claim(),), "ns", "f.yaml"))
    assert helps(report) == ["request gpu of claim ns/mine: tolerate team=a:NoSchedule"]
    assert [one.of_scheduler for one in report.claims] == [False]


@pytest.mark.parametrize(
    "reason", [Tainted("k:NoSchedule"), TooManyDevices(33), CapacityConsumed("m", "2", "1", ("c",))]
)
def test_nobody_is_told_to_edit_the_claim_that_the_scheduler_writes(reason: Verdict) -> None:
    assert fix(reason) == ROWS[type(reason)].fix
    assert "in place of the extended resource" in fix(reason, of_scheduler=True)
    late = ClaimMissing("c", "does not exist")
    assert fix(late, of_scheduler=True) == fix(late)


@pytest.mark.parametrize("detail", [TOO_FEW, SHARED, ONLY_ONCE])
def test_where_no_constraint_is_no_constraint_is_blamed(detail: str) -> None:
    assert "constraint" not in fix(ConstraintConflict(("request gpu",), detail))
    assert "constraint" in fix(ConstraintConflict(("matchAttribute a",), "a: 1 (2)"))


def test_devices_that_exclude_each_other_are_asked_for_by_count() -> None:
    takes = [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]
    counters: dict[str, Any] = resource_slice(name="counters", slices=2)
    counters["spec"]["sharedCounters"] = [{"name": "card", "counters": {"slices": {"value": "1"}}}]
    parts = [device(f"gpu-{n}", consumesCounters=takes) for n in range(2)]
    every = words.claim(request(allocationMode="All"))
    cluster = state(counters, resource_slice(parts, slices=2))
    report = explain(cluster, ManifestSubject((every,), "ns", "f.yaml"))
    (reason,) = report.claims[0].requests[0].verdicts
    assert fix(reason).startswith("ask for a count that can be had at once")
    assert {fix(one) for one in report.verdicts} == {fix(reason)}
    assert fix(AllUnsatisfied("another")) == ROWS[AllUnsatisfied].fix


def test_a_claim_of_another_pod_is_deleted_not_created() -> None:
    assert fix(ClaimMissing("c", OF_ANOTHER_POD)).startswith("delete this claim")
    assert fix(ClaimMissing("c", "is being deleted, kept by a/b")).startswith(
        "wait until it is gone"
    )


BROKEN = [{"key": "gpu.dra-driver.dev/unhealthy", "effect": "NoSchedule"}]
REPAIR = "repair what the taint says, or add nodes; a pod on this device would fail"
HOLDS = "ask for fewer, or free devices on one node; `explain` shows what holds the others"


def advised(*slices: dict[str, Any], count: int, also: int = 0) -> list[str]:
    """The advice about requests for devices of these slices."""
    requests = [request(count=count), *([request("b", count=also)] if also else [])]
    asked = ManifestSubject((words.claim(*requests),), "ns", "f.yaml")
    shown = text(explain(state(*slices), asked), width=500, color=False)
    return [one.partition(": ")[2] for one in shown[shown.index("What to do") + 1 :]]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_if_all_are_tainted_it_is_no_help_to_ask_for_fewer(count: int) -> None:
    listed = [device(f"gpu-{n}", taints=BROKEN) for n in range(4)]
    assert advised(resource_slice(listed), count=count) == [REPAIR]
    more = "ask for at most 4 in this request, or add nodes that have more"
    assert advised(resource_slice(listed), count=6) == [more, REPAIR]
    beside = "ask for at most 4 in this request, fewer if others need the same devices, or add nodes that have more"
    assert advised(resource_slice(listed), count=6, also=1) == [beside, REPAIR]


def test_how_many_a_pool_has_that_is_not_complete_is_not_known() -> None:
    wait = ROWS[PoolIncomplete].fix
    pool = resource_slice(devices(4), slices=2)
    assert advised(pool, count=6) == [wait]
    assert advised(pool, count=4) == [wait]
    other = resource_slice(devices(1), pool="other", nodeName=None, allNodes=True)
    held = holder("gpu-0", pool="other")
    assert advised(pool, other, held, count=4) == [HOLDS, wait]


def test_a_guard_is_advised_only_where_something_is_missing() -> None:
    guarded = fix(SelectorError("request", 0, "x", "no such key: model"))
    assert guarded == ROWS[SelectorError].fix
    other = fix(SelectorError("request", 0, "x", "no such overload"))
    assert other.startswith("correct the condition")
    assert "has(…) is no help" in other
