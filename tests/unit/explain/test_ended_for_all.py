# SPDX-License-Identifier: Apache-2.0
"""What helps all pods of a workload or a file: which claims have to end, and what is told of a change tried for one pod."""

from collections.abc import Collection
from typing import Any

import pytest

from dra_driver.explain.ended_for_all import MOST_ENDED, end_for_all
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.outcome import ClaimReport, DeviceGroup, Report, RequestReport
from dra_driver.explain.remedy import fix
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CountersUsedUp,
    HeldByClaim,
    Tainted,
    Verdict,
)
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state
from tests.unit.explain.test_help_where import GONE, OTHER, TAINT, THIRD, of, pods
from tests.unit.explain.test_replicas import answer, workload

FOUR = resource_slice(devices(4))


def helps(report: Report) -> list[tuple[str, str, str]]:
    return [(one.kind, one.what, one.on) for one in report.changes]


def test_a_claim_is_ended_for_all_pods_of_a_workload() -> None:
    cluster = state(FOUR, of("a", "gpu-0"), of("b", "gpu-1"))
    report = answer(cluster, workload("Job", parallelism=3))
    assert helps(report) == [
        ("end", "end claim ns/a, used by ns/p-a: all 3 pods fit then", ""),
        ("", "job ns/train: 2 pods instead of 3", ""),
    ]
    assert report.changes[0].ends == ("ns/a",)
    four = answer(cluster, workload("Job", parallelism=4))
    assert helps(four)[0][1] == "end claims ns/a, ns/b, used by ns/p-a, ns/p-b: all 4 pods fit then"
    assert helps(answer(cluster, workload("Job", parallelism=5))) == [
        ("", "job ns/train: 2 pods instead of 5", "")
    ]


def test_a_claim_is_ended_for_all_pods_of_a_file() -> None:
    cluster = state(resource_slice(devices(2)), of("a", "gpu-0"))
    report = answer(cluster, *words.user("x"), *words.user("y"))
    assert helps(report) == [("end", "end claim ns/a, used by ns/p-a: all 2 pods fit then", "")]


def test_a_claim_that_ends_by_itself_is_waited_for() -> None:
    claims = [of("a", "gpu-0"), of("b", "gpu-1")]
    cluster = pods(state(FOUR, *claims), **{"p-b": {"metadata": dict(GONE)}})
    report = answer(cluster, workload("Job", parallelism=3))
    assert helps(report)[0] == ("wait", "wait until pod ns/p-b is gone: all 3 pods fit then", "")


def test_if_one_pod_fits_the_workload_may_have_one() -> None:
    report = answer(state(resource_slice(devices(1))), workload("Job", parallelism=2))
    assert helps(report) == [("", "job ns/train: 1 pod instead of 2", "")]


def test_the_change_for_the_only_pod_of_a_workload_is_told_as_for_a_pod() -> None:
    cluster = state(resource_slice(devices(1)), of("a", "gpu-0"))
    report = answer(cluster, workload("Deployment", replicas=1))
    assert helps(report) == [("end", "end claim ns/a, used by ns/p-a", words.HOME)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_change_that_was_tried_for_the_first_pod_says_no_more(count: int) -> None:
    wanted = request(cel=f'device.attributes["{GPU}"].model == "H10O"')
    made = workload("Job", parallelism=2, pod=words.pod(of={"resourceClaimTemplateName": "typo"}))
    cluster = state(resource_slice(devices(count)))
    report = answer(cluster, words.template(wanted, name="typo"), made)
    told = [what for kind, what, on in helps(report) if kind == "correct" and not on]
    assert len(told) == 1
    assert told[0].endswith(
        'instead of device.attributes["gpu.example.com"].model == "H10O": at least 1 pod fits then'
    )


PART = device("part-0", attributes={"model": {"string": "part"}})
WHOLE = words.template(request(cel=f'device.attributes["{GPU}"].model == "H100"'), name="whole")
DAEMON = workload("DaemonSet", pod=words.pod(of={"resourceClaimTemplateName": "whole"}))


def fleet(*more: Any) -> ClusterState:
    """One node with a GPU, one with a part of one, and one without."""
    others = [words.node(OTHER), words.node(THIRD), resource_slice([PART], pool=OTHER)]
    return state(resource_slice(devices(1)), *others, *more)


def test_of_a_daemon_set_all_nodes_without_devices_are_told_with_their_reasons() -> None:
    report = answer(fleet(), WHOLE, DAEMON)
    assert report.summary.startswith(f"1 of 3 pods fit; those on {OTHER}, {THIRD}: ")
    assert {one.nodes for one in report.nodes} == {(OTHER,), (THIRD,)}
    (told,) = report.claims[0].requests[0].verdicts
    where = f"no device on nodes {OTHER}, {THIRD} matches "
    assert str(told).startswith(where)
    assert fix(told).startswith("other nodes may have such devices")
    by = "let it choose only nodes where the devices fit, by nodeSelector or affinity"
    assert helps(report) == [
        ("", f"daemonset ns/train: {by} ({words.HOME}): 1 pod instead of 3", "")
    ]


def test_a_daemon_set_is_told_which_taints_of_nodes_with_devices_it_does_not_tolerate() -> None:
    repels = words.node("n4", taints=[TAINT])
    report = answer(fleet(repels, resource_slice(devices(1), pool="n4")), WHOLE, DAEMON)
    also = "n4 if it tolerates gpu=here:NoSchedule (spec.tolerations)"
    assert f"({words.HOME}, and {also}): 1 pod instead of 3" in helps(report)[0][1]
    only = state(repels, resource_slice(devices(1), pool="n4"))
    assert helps(answer(only, WHOLE, DAEMON))[0][1].endswith(f"nodeSelector or affinity ({also})")


def test_a_daemon_set_without_any_node_is_not_told_to_choose_one() -> None:
    report = answer(state(resource_slice([PART])), WHOLE, DAEMON)
    assert report.summary.startswith(f"0 of 1 pods fit; that on node {words.HOME}: ")
    assert all("choose" not in one.what for one in report.changes)


def test_a_claim_is_ended_for_all_pods_of_a_daemon_set() -> None:
    more = [words.node(OTHER), resource_slice(devices(1), pool=OTHER), of("a", "gpu-0", OTHER)]
    report = answer(state(resource_slice(devices(1)), *more), WHOLE, DAEMON)
    assert helps(report)[0][1] == "end claim ns/a, used by ns/p-a: all 2 pods fit then"


def test_of_a_daemon_set_among_other_pods_the_nodes_are_told_too() -> None:
    report = answer(fleet(), WHOLE, DAEMON, *words.user("x"))
    those = f"those on {OTHER}, {THIRD} of daemonset ns/train"
    order = "of the file fit, in every order that was tried"
    assert report.summary.startswith(f"2 of 4 pods {order}; {those}: ")


def in_the_way(*reasons: Verdict) -> Report:
    groups = tuple(
        DeviceGroup(verdict=one, count=1, examples=(str(n),)) for n, one in enumerate(reasons)
    )
    claims = (ClaimReport(name="c", requests=(RequestReport(name="r", asks="", devices=groups),)),)
    return Report(subject="s", outcome="devices do not fit", exit_code=1, summary="", claims=claims)


@pytest.mark.parametrize(
    ("reasons", "needed", "found"),
    [
        ("abcdefgh", "a", "a"),
        ("abcdefgh", "ab", "ab"),
        ("abcdefgh", "ah", "ah"),
        ("abcdefgh", "h", "h"),
        ("abcdefghi", "i", ""),
        ("abcdefgh", "x", ""),
        ("", "", ""),
    ],
)
def test_as_few_claims_as_possible_are_ended(reasons: str, needed: str, found: str) -> None:
    names = [f"ns/{one}" for one in reasons]
    holders = Holders(state(*(holder(f"gpu-{n}", one) for n, one in enumerate(reasons))))
    tried: list[int] = []

    def all_fit(ended: Collection[str]) -> bool:
        tried.append(len(ended))
        return {f"ns/{one}" for one in needed} <= set(ended)

    change = end_for_all(in_the_way(*map(HeldByClaim, names)), holders, names, all_fit)
    assert (change.ends if change else ()) == tuple(f"ns/{one}" for one in found)
    assert max(tried, default=0) <= MOST_ENDED
    assert len(tried) <= 12


def test_claims_on_a_counter_or_a_capacity_are_ended_and_only_those_of_the_cluster() -> None:
    holders = Holders(state(*(holder(f"gpu-{n}", one) for n, one in enumerate("abc"))))
    report = in_the_way(
        CountersUsedUp("s", "c", "2", "1", ("ns/a",)),
        CapacityConsumed("m", "2", "1", ("ns/b",)),
        HeldByClaim("ns/simulated"),
        Tainted("k=v:NoSchedule"),
    )
    seen: list[Collection[str]] = []

    def all_fit(ended: Collection[str]) -> bool:
        seen.append(ended)
        return False

    assert end_for_all(report, holders, {"ns/a", "ns/b", "ns/c"}, all_fit) is None
    assert seen == [["ns/a"], ["ns/a", "ns/b"]]
