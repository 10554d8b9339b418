# SPDX-License-Identifier: Apache-2.0
"""The smallest set that cannot be had at once."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from dra_driver.explain.conflict import (
    ClaimPart,
    as_verdict,
    attributes_of,
    constraint_text,
    near_attribute,
    parts_of,
    smallest,
    with_attribute,
    without,
)
from dra_driver.explain.constraint_changes import of_constraints
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.remedy import fix
from dra_driver.model.api.resource_claim import DeviceConstraint, ResourceClaim
from tests.e2e.fleet import GPU, device, devices, request, resource_slice
from tests.unit.explain.clusters import claim, state

NUMA = {"matchAttribute": f"{GPU}/numa"}
APART = {"distinctAttribute": f"{GPU}/numa"}
TWO = (request("a"), request("b"))


def fleet(*numa: int) -> Fleet:
    return Fleet(state(resource_slice([device(f"gpu-{i}", numa=n) for i, n in enumerate(numa)])))


def fits(cluster: Fleet, claims: Sequence[ResourceClaim]) -> bool:
    return cluster.allocator.allocate(cluster.state.nodes[0], claims) is not None


def found(cluster: Fleet, *claims: ResourceClaim) -> list[ClaimPart]:
    assert not fits(cluster, claims)
    return smallest(claims, lambda some: fits(cluster, some))


def test_what_has_no_part_in_the_conflict_is_left_out() -> None:
    wanted = claim(*TWO, request("c"), constraints=[{**NUMA, "requests": ["a", "b"]}])
    assert found(fleet(0, 1, 2), wanted) == [
        ClaimPart(0, "request", 0),
        ClaimPart(0, "request", 1),
        ClaimPart(0, "constraint", 0),
    ]


def test_a_constraint_on_all_requests_stays_with_the_rest() -> None:
    assert found(fleet(0, 1), claim(*TWO, constraints=[NUMA]))[-1] == ClaimPart(0, "constraint", 0)
    same = claim(*TWO, constraints=[{**NUMA, "requests": []}, {**APART, "requests": ["a", "b"]}])
    kept = without([same], [ClaimPart(0, "request", 0)])[0].spec.devices
    assert [len(one.requests or ()) for one in kept.constraints] == [0, 1]
    gone = without([same], [ClaimPart(0, "request", 0), ClaimPart(0, "request", 1)])[0].spec.devices
    assert [one.match_attribute for one in gone.constraints] == [f"{GPU}/numa"]


def test_two_claims_can_want_the_same_device() -> None:
    claims = (claim(), claim())
    parts = found(fleet(0), *claims)
    assert parts == [ClaimPart(0, "request", 0), ClaimPart(1, "request", 0)]
    conflict = as_verdict(claims, parts, [])
    assert conflict.parts == ("claim mine, request gpu (1 x gpu)",) * 2
    too_few = "the devices that would do are too few for all of them, or share counters or capacity"
    assert conflict.detail == too_few
    alone = as_verdict(claims[:1], parts[:1], [])
    shared = "each of the devices can be had alone, but they share counters or capacity"
    assert alone.detail == shared


@pytest.mark.parametrize(
    ("shareable", "count", "told"), [(True, 2, True), (True, 1, False), (False, 2, False)]
)
def test_more_shares_of_one_device_need_more_requests(
    shareable: bool, count: int, told: bool
) -> None:
    listed = [device("gpu-0", allowMultipleAllocations=shareable)]
    cluster = Fleet(state(resource_slice(listed)))
    wanted = claim(request(count=count))
    verdict = as_verdict([wanted], [ClaimPart(0, "request", 0)], list(cluster.devices.values()))
    once = "one request gets a device that can be shared only once: write a request for each share"
    assert (verdict.detail == once) is told


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        (APART, True),
        ({**APART, "requests": ["gpu"]}, True),
        ({**APART, "requests": ["gpu/first"]}, True),
        ({**APART, "requests": ["other"]}, False),
        (NUMA, False),
    ],
)
def test_a_request_for_each_share_does_not_help_where_a_constraint_wants_different_devices(
    constraint: dict[str, Any], told: bool
) -> None:
    listed = [device("gpu-0", allowMultipleAllocations=True)]
    cluster = Fleet(state(resource_slice(listed)))
    wanted = claim(request(count=2), request("other"), constraints=[constraint])
    verdict = as_verdict([wanted], [ClaimPart(0, "request", 0)], list(cluster.devices.values()))
    assert ("distinctAttribute" in verdict.detail) is told
    assert fix(verdict).startswith("ask for fewer devices" if told else "write a request for each")


@pytest.mark.parametrize(
    ("constraint", "words"), [(NUMA, "matchAttribute"), (APART, "distinctAttribute")]
)
def test_a_conflict_is_told_with_the_values_that_there_are(
    constraint: dict[str, str], words: str
) -> None:
    cluster = fleet(0, 0, 1)
    claims = [claim(request(count=3), constraints=[constraint])]
    conflict = as_verdict(claims, parts_of(claims), list(cluster.devices.values()))
    assert conflict.parts == ("request gpu (3 x gpu)", f"{words} {GPU}/numa")
    assert conflict.detail == f"{GPU}/numa: 0 (2), 1 (1)"


def test_an_attribute_that_a_device_lacks_is_told() -> None:
    cluster = Fleet(state(resource_slice(devices(2))))
    claims = [claim(*TWO, constraints=[{"matchAttribute": f"{GPU}/rack"}])]
    conflict = as_verdict(claims, parts_of(claims), list(cluster.devices.values()))
    assert conflict.detail == f"{GPU}/rack: not set (2)"


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_an_attribute_that_no_device_has_may_be_mistyped(kind: str) -> None:
    attributes = {"numa": {"int": 0}, "other.example.com/link": {"int": 1}}
    listed = [device("a", attributes=attributes), device("b", attributes=None)]
    given = list(Fleet(state(resource_slice(listed))).devices.values())
    wanted = claim(*TWO, constraints=[{kind: f"{GPU}/nuna"}, NUMA])
    first, second = wanted.spec.devices.constraints
    published = attributes_of(given)
    assert [near_attribute(one, published) for one in (first, second)] == [f"{GPU}/numa", ""]
    detail = as_verdict([wanted], [ClaimPart(0, "constraint", 0)], given).detail
    assert detail == f"{GPU}/nuna: not set (2), did you mean {GPU}/numa?"
    right = with_attribute(wanted, 0, f"{GPU}/numa").spec.devices.constraints
    assert [constraint_text(one) for one in right] == [
        f"{kind} {GPU}/numa",
        f"matchAttribute {GPU}/numa",
    ]


def test_a_constraint_can_be_empty() -> None:
    assert constraint_text(DeviceConstraint()) == "without an attribute"
    assert near_attribute(DeviceConstraint(), []) == ""


def test_values_that_are_cut_say_so() -> None:
    claims = [claim(*TWO, constraints=[NUMA])]
    (eight, nine) = (
        as_verdict(claims, parts_of(claims), list(fleet(*range(count)).devices.values())).detail
        for count in (8, 9)
    )
    assert eight.endswith("7 (1)")
    assert nine.endswith("7 (1), …")


@pytest.mark.parametrize("known", range(4))
def test_once_something_is_not_known_in_time_nothing_more_is_left_out(known: int) -> None:
    wanted = claim(*TWO, request("c"), constraints=[{**NUMA, "requests": ["a", "b"]}])
    cluster, looks = fleet(0, 1, 2), itertools.count()
    parts = smallest([wanted], lambda some: fits(cluster, some) if next(looks) < known else None)
    every = parts_of([wanted])
    assert parts == (every if known < 3 else [one for one in every if one.index != 2])


def test_a_conflict_of_very_many_parts_names_the_first() -> None:
    claims = (claim(),) * 40
    words = as_verdict(claims, parts_of(claims), []).parts
    assert len(words) == 33
    assert words[-1] == "8 more requests and constraints"


def test_constraints_are_changed_as_long_as_there_is_time() -> None:
    wanted = claim(*TWO, constraints=[{"matchAttribute": f"{GPU}/nuna"}, NUMA])
    ends = iter([False, True])
    found = of_constraints({"ns/mine": wanted}, [f"{GPU}/numa"], lambda: next(ends))
    assert [one.what for one in found] == [
        f"claim ns/mine: write {GPU}/numa instead of {GPU}/nuna",
        f"claim ns/mine: leave out the constraint matchAttribute {GPU}/nuna",
    ]
