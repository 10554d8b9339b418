# SPDX-License-Identifier: Apache-2.0
"""That claims have all devices hides no cause that would be there without them, and their end is not advised where it cannot help."""

from collections.abc import Mapping
from typing import Any

import pytest

from dra_driver.cli.render_explain import text
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.verdict import CapacityTooSmall, HeldByClaim, Verdict
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, request, resource_slice
from tests.unit.explain.clusters import claim, explained, holder, state

OTHER = "fleet-0"
NAME = "end claim ns/holder"
CHOICES = {"validValues": ["10Gi", "20Gi"], "default": "10Gi"}
LOST = {"key": f"{GPU}/lost", "value": "true", "effect": "NoExecute"}
TYPO, RIGHT = f"{GPU}/nuna", f"{GPU}/numa"


def wants(count: int = 1, **amounts: str) -> dict[str, Any]:
    return request(capacity={"requests": amounts}, count=count)


def asking(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> Report:
    return explain(cluster, ManifestSubject((words.claim(*requests, **more),), "ns", "f.yaml"))


def helps(report: Report) -> list[str]:
    return [one.what.removeprefix("request gpu of claim ns/mine: ") for one in report.changes]


def reasons(cluster: ClusterState, wanted: Mapping[str, Any]) -> tuple[Verdict, ...]:
    asked, fleet = explained(cluster, claim(dict(wanted)))
    return asked.reasons(fleet.all_devices[0])


@pytest.mark.parametrize(
    ("amounts", "found"),
    [
        ({"memory": "2Ti"}, [CapacityTooSmall("memory", "2Ti", "80Gi")]),
        ({"vram": "1Gi"}, [CapacityTooSmall("vram", "1Gi")]),
        ({"parts": "15Gi"}, []),
        ({"parts": "30Gi"}, [CapacityTooSmall("parts", "30Gi", "20Gi", "10Gi, 20Gi")]),
        ({"memory": "80Gi"}, []),
        ({}, []),
    ],
)
def test_a_held_device_that_is_too_small_is_too_small_first(
    amounts: dict[str, str], found: list[Verdict]
) -> None:
    capacity = {"memory": {"value": "80Gi"}, "parts": {"value": "20Gi", "requestPolicy": CHOICES}}
    cluster = state(resource_slice([device("gpu-0", capacity=capacity)]), holder("gpu-0"))
    assert reasons(cluster, wants(1, **amounts)) == (*found, HeldByClaim("ns/holder"))


def test_what_cannot_be_counted_is_no_reason_against_a_held_device() -> None:
    """The search does not count it, so it does not fail."""
    endless = {"validRange": {"min": "1", "step": "0"}}
    broken = device("gpu-0", capacity={"memory": {"value": "80Gi", "requestPolicy": endless}})
    cluster = state(resource_slice([broken]), holder("gpu-0"))
    assert reasons(cluster, wants(memory="30Gi")) == (HeldByClaim("ns/holder"),)


def test_as_much_as_the_largest_held_device_has_is_asked_for() -> None:
    small = resource_slice([device("gpu-0", memory="40Gi")], pool=OTHER)
    large = resource_slice([device("gpu-0")])
    held = (holder("gpu-0"), holder("gpu-0", "other", pool=OTHER))
    nodes = (words.node(OTHER), small, large, *held)
    report = asking(state(*nodes), wants(memory="2Ti"))
    assert helps(report) == [f"ask for memory 80Gi instead of 2Ti; {NAME}"]
    assert [str(one.devices[0]) for one in report.nodes] == [
        "memory 80Gi < 2Ti",
        "memory 40Gi < 2Ti",
    ]
    free = asking(state(*nodes[:-1]), wants(memory="2Ti"))
    assert helps(free) == ["ask for memory 40Gi instead of 2Ti"]


def test_the_end_of_a_claim_is_not_advised_where_its_device_is_of_no_use() -> None:
    lost = resource_slice([device("gpu-0", taints=[LOST])])
    shown = text(asking(state(lost, holder("gpu-0")), request()), width=200, color=False)
    advice = shown[shown.index("What to do") + 1 :]
    assert len(advice) == 1
    assert "repair what the taint says" in advice[0]


def of_two(*constraints: dict[str, str]) -> Report:
    """Two devices are asked for, and both are held."""
    listed = [device("gpu-0", numa=0), device("gpu-1", numa=0)]
    held = (holder("gpu-0"), holder("gpu-1", "other"))
    return asking(
        state(resource_slice(listed), *held), request(count=2), constraints=list(constraints)
    )


def test_a_mistyped_constraint_is_corrected_also_where_all_devices_are_held() -> None:
    report = of_two({"matchAttribute": TYPO})
    ends = "end claims ns/holder, ns/other"
    assert helps(report) == [f"claim ns/mine: write {RIGHT} instead of {TYPO}; {ends}"]
    assert [(one.on, one.ends) for one in report.changes] == [(HOME, ("ns/holder", "ns/other"))]
    assert report.no_help == f"{ends}: not enough, because of matchAttribute {TYPO}"
    assert "What to do" not in text(report, width=80, color=False)


def test_a_constraint_that_nothing_meets_is_left_out_also_where_all_devices_are_held() -> None:
    ends = "end claims ns/holder, ns/other"
    distinct = f"distinctAttribute {RIGHT}"
    leave = f"claim ns/mine: leave out the constraint {distinct}"
    assert helps(of_two({"distinctAttribute": RIGHT})) == [f"{leave}; {ends}"]
    other = {"matchAttribute": "example.com/zone"}
    both = of_two({"distinctAttribute": RIGHT}, other)
    also = "claim ns/mine: leave out the constraint matchAttribute example.com/zone"
    assert helps(both) == [f"{leave}; {also}; {ends}"]


def test_more_than_the_largest_node_has_is_told_although_all_are_held() -> None:
    listed = [device("gpu-0"), device("gpu-1", taints=[LOST]), device("gpu-2", memory="10Gi")]
    cluster = state(resource_slice(listed), holder("gpu-0"))

    def told(count: int, **amounts: str) -> str:
        report = asking(cluster, wants(count, **amounts))
        (verdict,) = report.claims[0].requests[0].verdicts
        return str(verdict).partition(", ")[2]

    assert told(4) == "1 can be had; the node with the most has 3 that match"
    assert told(3) == "1 can be had"
    assert told(3, memory="20Gi") == "none can be had; the node with the most has 2 that match"
    last = [device("gpu-2", memory="10Gi")]
    few = asking(state(resource_slice(last), holder("gpu-2")), request(count=2))
    assert str(few.claims[0].requests[0].verdicts[0]).endswith(
        "; the node with the most has 1 that matches"
    )
    shown = text(few, width=200, color=False)
    assert "ask for at most 1 in this request, or add nodes that have more" in shown[-1]
    none = asking(state(resource_slice(last)), request(count=2)).claims[0].requests[0].verdicts
    assert str(none[0]) == "2 devices are needed on one node, 1 can be had"


def test_partitions_that_exclude_each_other_are_not_the_most_that_can_be_had() -> None:
    counters = [{"name": "card", "counters": {"parts": {"value": "2"}}}]
    taken = [{"counterSet": "card", "counters": {"parts": {"value": "1"}}}]
    more = {"consumesCounters": taken, "attributes": {"model": {"string": "part"}}}
    parts = [device(f"part-{number}", **more) for number in range(4)]
    two = {"pool": "card", "slices": 2, "nodeName": HOME}
    whole = resource_slice([device("gpu-0"), device("gpu-1")])
    cluster = state(
        resource_slice([], name="counters", sharedCounters=counters, **two),
        resource_slice(parts, name="parts", **two),
        whole,
        holder("gpu-0"),
    )

    def told(model: str, count: int) -> str:
        cel = f'device.attributes["{GPU}"].model == "{model}"'
        report = asking(cluster, request(count=count, cel=cel))
        return str(report.claims[0].requests[0].verdicts[0]).partition(", ")[2]

    assert told("part", 5) == "2 can be had"
    assert told("H100", 3) == "1 can be had; the node with the most has 2 that match"
