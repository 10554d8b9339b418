# SPDX-License-Identifier: Apache-2.0
"""Changes that help only together."""

from typing import Any

import pytest

from dra_driver.cli.render_explain import text
from dra_driver.explain import combined_changes, freed_nodes
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ClaimSubject, ManifestSubject, explain
from dra_driver.explain.verdict import NotEnoughDevices
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import FLEET, GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

MODEL = f'device.attributes["{GPU}"].model'
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
HELD = (holder("gpu-0", "h0"), holder("gpu-1", "h1"))
TWO = resource_slice(devices(2))


def asking(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> Report:
    return explain(cluster, ManifestSubject((words.claim(*requests, **more),), "ns", "f.yaml"))


def changes(report: Report) -> list[tuple[str, str]]:
    return [(change.what, change.on) for change in report.changes]


BOTH = [("end claims ns/h0, ns/h1", HOME)]


def test_all_claims_that_hold_what_one_request_needs_are_ended() -> None:
    report = asking(state(TWO, *HELD), request(count=2))
    assert changes(report) == BOTH
    assert report.claims[0].requests[0].verdicts == (NotEnoughDevices(2, 0),)
    assert "What to do" not in text(report, width=80, color=False)


def test_requests_are_given_different_devices() -> None:
    report = asking(state(TWO, *HELD), request("a"), request("b"))
    assert changes(report) == BOTH


def test_all_devices_are_freed_for_a_request_that_wants_them_all() -> None:
    report = asking(state(TWO, *HELD), request(allocationMode="All"))
    assert changes(report) == BOTH


@pytest.mark.parametrize("homes", [(HOME, "n2"), ("n2", HOME)])
def test_several_devices_are_of_the_node_with_the_closest_values(homes: tuple[str, str]) -> None:
    """And the value that all of them have is written."""
    small, large = (
        resource_slice([device(f"gpu-{n}", memory=one) for n, one in enumerate(amounts)], pool=home)
        for home, amounts in zip(homes, (["40Gi", "40Gi"], ["81559Mi", "79Gi"]), strict=True)
    )
    memory = f'device.capacity["{GPU}"].memory'
    wanted = request(cel=f'{memory}.compareTo(quantity("80Gi")) >= 0', count=2)
    report = asking(state(small, large, words.node("n2")), wanted)
    ((what, on),) = changes(report)
    assert (f'write {memory}.compareTo(quantity("79Gi")) >= 0' in what, on) == (True, homes[1])


def test_of_alternatives_the_one_that_misses_least_is_changed() -> None:
    wrong = words.selectors(f'{MODEL} == "X"')
    subs = [
        {"name": "more", "deviceClassName": "gpu", "count": 3},
        {"name": "far", "deviceClassName": "gpu", "count": 2, **wrong},
        {"name": "near", "deviceClassName": "gpu", "count": 2},
    ]
    report = asking(state(TWO, *HELD), {"name": "gpu", "firstAvailable": subs})
    assert changes(report) == BOTH


def test_the_selectors_of_several_requests_are_corrected_at_once() -> None:
    wanted = [
        request(name, cel=f'{MODEL} == "{value}"') for name, value in (("a", "X"), ("b", "Y"))
    ]
    (change,) = asking(state(TWO), *wanted).changes
    assert change.on == HOME
    assert change.what == "; ".join(
        f'request {name} of claim ns/mine: write {MODEL} == "H100" instead of {MODEL} == "{value}"'
        for name, value in (("a", "X"), ("b", "Y"))
    )


def test_what_one_request_misses_and_what_another_ones_device_is_used_for_go_together() -> None:
    listed = [device("gpu-0"), device("gpu-1", taints=[TAINT])]
    cluster = state(resource_slice(listed), HELD[0])
    report = asking(cluster, request("a"), request("b"))
    assert changes(report) == [
        ("request b of claim ns/mine: tolerate k=v:NoSchedule; end claim ns/h0", HOME)
    ]


def part(name: str, slices: str) -> dict[str, Any]:
    uses = [{"counterSet": "card", "counters": {"slices": {"value": slices}}}]
    return device(name, consumesCounters=uses)


def test_the_claims_on_a_counter_set_are_ended_with_the_others() -> None:
    whole = resource_slice(name="counters", slices=4)
    whole["spec"]["sharedCounters"] = [{"name": "card", "counters": {"slices": {"value": "2"}}}]
    parts = resource_slice([part("half-0", "1"), part("half-1", "1")], slices=4)
    other = resource_slice([device("gpu-0")], name="other", slices=4)
    last = resource_slice([part("big", "2")], name="zzz", slices=4)
    cluster = state(whole, parts, other, last, holder("big", "h"), holder("gpu-0", "g"))
    report = asking(cluster, *map(request, "abc"))
    assert changes(report) == [("end claims ns/h, ns/g", HOME)]


def test_a_device_that_is_shared_serves_several_requests() -> None:
    shared = device("gpu-0", allowMultipleAllocations=True, taints=[TAINT])
    wanted = request("a", capacity={"requests": {"memory": "1Gi"}})
    report = asking(state(resource_slice([shared])), wanted, {**wanted, "name": "b"})
    assert changes(report) == [
        (
            "request a of claim ns/mine: tolerate k=v:NoSchedule; request b of claim ns/mine: tolerate k=v:NoSchedule",
            HOME,
        )
    ]


def test_no_change_is_made_up_for_devices_that_are_not_there() -> None:
    assert asking(state(TWO, *HELD), request(count=3)).changes == ()
    assert (
        asking(state(TWO, *HELD), request("a", deviceClassName="none"), request("b")).changes == ()
    )
    never = request("b", allocationMode="All", cel=f'{MODEL} == "X"')
    assert all("end" not in what for what, _ in changes(asking(state(TWO, *HELD), never)))
    lost = resource_slice(devices(2, numa=1), slices=2)
    assert asking(state(lost, *HELD), request(count=2)).changes == ()


def test_a_recorded_request_for_less_than_no_device_misses_none() -> None:
    """As it can stand in a record that somebody wrote."""
    odd = words.claim(request("a", count=-1), request("b", count=2))
    odd["metadata"]["namespace"] = "ns"
    report = explain(state(TWO, *HELD, odd), ClaimSubject("ns", words.MINE))
    assert changes(report) == BOTH


def test_the_nodes_that_miss_least_are_tried() -> None:
    tainted = [resource_slice(devices(2, taints=[TAINT]), pool=name) for name in FLEET[:2]]
    held = [
        holder(f"gpu-{number}", f"h-{name}-{number}", pool=name)
        for name in FLEET
        for number in range(2)
    ]
    nodes = [words.node(name) for name in FLEET if name != HOME]
    last = resource_slice(devices(2), pool="fleet-2")
    report = asking(state(*nodes, *tainted, last, *held), request(count=2))
    assert changes(report) == [("end claims ns/h-fleet-2-0, ns/h-fleet-2-1", "fleet-2")]


def test_a_node_where_one_device_is_free_needs_only_one_claim_to_end() -> None:
    held = [holder(f"gpu-{number}", f"h{number}", pool="fleet-0") for number in range(2)]
    first = resource_slice(devices(2), pool="fleet-0")
    cluster = state(words.node("fleet-0"), first, TWO, *held, holder("gpu-1", "mine-alone"))
    report = asking(cluster, request("a"), request("b"))
    assert changes(report) == [("end claim ns/mine-alone", HOME)]


def test_of_more_devices_than_can_be_looked_at_none_is_proposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(combined_changes, "MOST_DEVICES", 1)
    monkeypatch.setattr(freed_nodes, "MOST_LOOKS", 1)
    assert asking(state(TWO, *HELD), request(count=2)).changes == ()
