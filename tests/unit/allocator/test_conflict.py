# SPDX-License-Identifier: Apache-2.0
"""The smallest set that cannot be had at once."""

from collections.abc import Sequence

import pytest

from dra_driver.allocator.conflict import Part, parts_of, smallest, told, without
from dra_driver.allocator.fleet import Fleet
from dra_driver.model.api.resource_claim import ResourceClaim
from tests.e2e.fleet import GPU, device, devices, request, resource_slice
from tests.unit.allocator.clusters import claim, state

NUMA = {"matchAttribute": f"{GPU}/numa"}
APART = {"distinctAttribute": f"{GPU}/numa"}
TWO = (request("a"), request("b"))


def fleet(*numa: int) -> Fleet:
    return Fleet(state(resource_slice([device(f"gpu-{i}", numa=n) for i, n in enumerate(numa)])))


def fits(cluster: Fleet, claims: Sequence[ResourceClaim]) -> bool:
    return cluster.allocator.allocate(cluster.state.nodes[0], claims) is not None


def found(cluster: Fleet, *claims: ResourceClaim) -> list[Part]:
    assert not fits(cluster, claims)
    return smallest(claims, lambda some: fits(cluster, some))


def test_what_has_no_part_in_the_conflict_is_left_out() -> None:
    wanted = claim(*TWO, request("c"), constraints=[{**NUMA, "requests": ["a", "b"]}])
    assert found(fleet(0, 1, 2), wanted) == [
        Part(0, "request", 0),
        Part(0, "request", 1),
        Part(0, "constraint", 0),
    ]


def test_a_constraint_on_all_requests_stays_with_the_rest() -> None:
    assert found(fleet(0, 1), claim(*TWO, constraints=[NUMA]))[-1] == Part(0, "constraint", 0)
    same = claim(*TWO, constraints=[{**NUMA, "requests": []}, {**APART, "requests": ["a", "b"]}])
    kept = without([same], [Part(0, "request", 0)])[0].spec.devices
    assert [len(one.requests or ()) for one in kept.constraints] == [0, 1]
    gone = without([same], [Part(0, "request", 0), Part(0, "request", 1)])[0].spec.devices
    assert [one.match_attribute for one in gone.constraints] == [f"{GPU}/numa"]


def test_two_claims_can_want_the_same_device() -> None:
    claims = (claim(), claim())
    parts = found(fleet(0), *claims)
    assert parts == [Part(0, "request", 0), Part(1, "request", 0)]
    conflict = told(claims, parts, [])
    assert conflict.parts == ("claim mine, request gpu (1 x gpu)",) * 2
    assert conflict.detail == "the devices that would do are too few, or share counters"


@pytest.mark.parametrize(
    ("constraint", "words"), [(NUMA, "matchAttribute"), (APART, "distinctAttribute")]
)
def test_a_conflict_is_told_with_the_values_that_there_are(
    constraint: dict[str, str], words: str
) -> None:
    cluster = fleet(0, 0, 1)
    claims = [claim(request(count=3), constraints=[constraint])]
    conflict = told(claims, parts_of(claims), list(cluster.devices.values()))
    assert conflict.parts == ("request gpu (3 x gpu)", f"{words} {GPU}/numa")
    assert conflict.detail == f"{GPU}/numa: 0 (2), 1 (1)"


def test_an_attribute_that_a_device_lacks_is_told() -> None:
    cluster = Fleet(state(resource_slice(devices(2))))
    claims = [claim(*TWO, constraints=[{"matchAttribute": f"{GPU}/rack"}])]
    conflict = told(claims, parts_of(claims), list(cluster.devices.values()))
    assert conflict.detail == f"{GPU}/rack: not set (2)"
