# SPDX-License-Identifier: Apache-2.0
"""Of devices with too little capacity left, the one that has most left is advised: less is given up, and the smaller user ends."""

from typing import Any

import pytest

from dra_driver.explain.misses import missed
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import FLEET, HOME, device, request, resource_slice
from tests.unit.explain.clusters import claim, explained, holder, state

OTHER = FLEET[0]
STEPS = {"validRange": {"min": "5", "max": "80", "step": "5"}, "default": "5"}
CHOICES = {"validValues": ["20", "60"], "default": "20"}


def nic(name: str, policy: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A card of 100 that can be shared."""
    capacity = {"bw": {"value": "100", **({"requestPolicy": policy} if policy else {})}}
    return device(name, allowMultipleAllocations=True, capacity=capacity, **more)


def share(claim: str, of: str, amount: str, *pods: str, pool: str = HOME) -> dict[str, Any]:
    made = holder(of, claim, pool=pool, shareID=f"id-{claim}", consumedCapacity={"bw": amount})
    made["status"]["reservedFor"] = [{"resource": "pods", "name": p, "uid": p} for p in pods]
    return made


def wants(amount: str, **more: Any) -> dict[str, Any]:
    return request(capacity={"requests": {"bw": amount}}, **more)


def asking(cluster: ClusterState, *requests: dict[str, Any]) -> Report:
    return explain(cluster, ManifestSubject((words.claim(*requests),), "ns", "f.yaml"))


def helps(report: Report) -> list[tuple[str, str]]:
    place = "request gpu of claim ns/mine: "
    return [(one.what.removeprefix(place), one.on) for one in report.changes]


BOTH = (share("much", "a", "99", "x"), share("little", "b", "5", "y"))


def test_the_largest_rest_is_offered_and_the_smaller_user_ends() -> None:
    report = asking(state(resource_slice([nic("a"), nic("b")]), *BOTH), wants("100"))
    assert helps(report) == [
        ("end claim ns/little, used by ns/y", HOME),
        ("ask for bw 95 instead of 100", HOME),
    ]


def test_the_largest_rest_of_all_nodes_is_offered() -> None:
    slices = [resource_slice([nic("a")], pool=OTHER), resource_slice([nic("b")])]
    users = (share("much", "a", "99", "x", pool=OTHER), share("little", "b", "5", "y"))
    report = asking(state(words.node(OTHER), *slices, *users), wants("100"))
    assert [on for _, on in helps(report)] == [HOME, HOME]


def test_a_claim_that_nobody_uses_ends_first_whatever_it_has() -> None:
    unused = share("much", "b", "99")
    report = asking(
        state(resource_slice([nic("a"), nic("b")]), share("little", "a", "5", "x"), unused),
        wants("100"),
    )
    assert [what for what, _ in helps(report)] == [
        "end claim ns/much",
        "ask for bw 95 instead of 100",
    ]


@pytest.mark.parametrize(
    ("policy", "asked", "most"), [(STEPS, "100", "70"), (CHOICES, "80", "60"), (STEPS, "200", "70")]
)
def test_the_largest_rest_is_what_the_policy_allows(
    policy: dict[str, Any], asked: str, most: str
) -> None:
    listed = [nic(name, policy) for name in "ab"]
    taken = (share("much", "a", "75", "x"), share("little", "b", "26", "y"))
    report = asking(state(resource_slice(listed), *taken), wants(asked))
    assert f"ask for bw {most} instead of {asked}" in [what for what, _ in helps(report)]


def test_a_request_for_several_devices_asks_for_what_so_many_have() -> None:
    listed = [nic(name) for name in "abc"]
    taken = (*BOTH, share("half", "c", "50", "z"))
    report = asking(state(resource_slice(listed), *taken), wants("100", count=2))
    assert ("ask for bw 50 instead of 100", HOME) in helps(report)


def test_if_all_devices_are_asked_for_the_smallest_rest_counts() -> None:
    listed = [nic(name) for name in "ab"]
    taken = (share("much", "b", "70", "y"), share("little", "a", "30", "x"))
    report = asking(state(resource_slice(listed), *taken), wants("90", allocationMode="All"))
    assert ("ask for bw 30 instead of 90", HOME) in helps(report)


def test_a_device_that_is_empty_of_what_is_asked_for_is_not_offered() -> None:
    report = asking(state(resource_slice([nic("a")]), share("all", "a", "100", "x")), wants("1"))
    assert helps(report) == [("end claim ns/all, used by ns/x", HOME)]


def test_two_requests_end_the_claims_that_cost_least() -> None:
    listed = [nic(name) for name in "abc"]
    taken = (share("used", "a", "9", "x"), share("left", "b", "9"), share("idle", "c", "9"))
    report = asking(state(resource_slice(listed), *taken), wants("100", count=2))
    assert helps(report)[0] == ("end claims ns/left, ns/idle", HOME)


def test_two_devices_that_are_too_small_are_asked_for_what_both_have() -> None:
    listed = [
        device(name, allowMultipleAllocations=True, capacity={"bw": {"value": value}})
        for name, value in (("a", "30"), ("b", "70"), ("c", "50"))
    ]
    report = asking(state(resource_slice(listed)), wants("100", count=2))
    assert helps(report) == [("ask for bw 50 instead of 100", HOME)]


def test_what_is_not_only_short_of_capacity_has_no_rest_to_offer() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    listed = [nic("a"), nic("b", taints=[taint])]
    taken = (share("much", "a", "99", "x"), share("little", "b", "5", "y"))
    report = asking(state(resource_slice(listed), *taken), wants("100"))
    assert helps(report) == [
        ("end claim ns/much, used by ns/x", HOME),
        ("ask for bw 1 instead of 100", HOME),
    ]


def test_to_end_who_has_a_device_costs_the_same_as_to_end_who_has_its_capacity() -> None:
    """Else the one way would always come before the other."""
    cluster = state(
        resource_slice([device("held"), nic("short")]),
        holder("held", "h"),
        share("much", "short", "99"),
    )
    found, fleet = explained(cluster, claim(wants("100")))
    held, short = (missed(found, one) for one in fleet.devices.values())
    assert held.ends == short.ends > 0
