# SPDX-License-Identifier: Apache-2.0
"""How far does a slice with a quantity that cannot be parsed reach? Each node writes its own slices, and must not silence the answers for others."""

from typing import Any

import pytest

from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, devices, request, resource_slice
from tests.unit.explain.clusters import state
from tests.unit.explain.test_not_read import HUGE, asked, sharing, with_amount

ALL = words.claim(request(allocationMode="All"))


def into_the_pool(amount: str, *, generation: int, **fields: Any) -> dict[str, Any]:
    """A slice of the node `evil` in the pool with counters that HOME has."""
    bad = with_amount(amount, **fields)
    bad["metadata"]["name"] = "bad"
    bad["spec"]["pool"] = {
        "name": "shared",
        "generation": generation,
        "resourceSliceCount": 2 if generation == 1 else 3,
    }
    return bad


def of_home(generation: int, slices: int) -> list[dict[str, Any]]:
    found = sharing("4", at=HOME)
    for one in found:
        one["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": slices}
    return found


@pytest.mark.parametrize("amount", ["1Gi", HUGE])
def test_an_older_slice_of_another_node_leaves_a_pool_with_counters_as_it_is(amount: str) -> None:
    nodes = words.node("evil"), *of_home(5, 2)
    assert asked(state(*nodes, into_the_pool(amount, generation=1))).exit_code == 0


def test_a_slice_without_counters_leaves_those_of_its_pool_as_they_are() -> None:
    nodes = words.node("evil"), *of_home(5, 3)
    report = asked(state(*nodes, into_the_pool(HUGE, generation=5)))
    assert report.exit_code == 0
    takes = {"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]}
    report = asked(state(*nodes, into_the_pool(HUGE, generation=5, **takes)))
    assert report.exit_code == 2


@pytest.mark.parametrize(
    ("nodes", "constrained", "code"),
    [(["evil"], False, 0), (["evil"], True, 2), ([HOME, "evil"], False, 2)],
)
def test_all_devices_of_another_node_can_be_had_whatever_one_node_publishes(
    nodes: list[str], constrained: bool, code: int
) -> None:
    alike = {"constraints": [{"matchAttribute": f"{words.GPU}/numa"}]} if constrained else {}
    every = words.claim(request(allocationMode="All"), **alike)
    good = [resource_slice(devices(1), pool=name) for name in (HOME, "evil")]
    bad = [
        resource_slice(
            devices(1, capacity={"memory": {"value": HUGE}}), pool=f"bad-{name}", nodeName=name
        )
        for name in nodes
    ]
    assert asked(state(words.node("evil"), *good, *bad), about=(every,)).exit_code == code


@pytest.mark.parametrize(("amount", "code"), [("4", 1), (HUGE, 2)])
def test_a_pool_that_one_node_finds_invalid_is_left_out_there(amount: str, code: int) -> None:
    """Each node has a slice with counters of the same name, and says that there are fewer slices than the other node says."""
    named: list[dict[str, Any]] = []
    for first, node, count, counters in (("a", HOME, 5, amount), ("b", "evil", 4, "4")):
        some = sharing(counters, at=node)
        for device in some[1]["spec"]["devices"]:
            device["name"] = node
        for one in some:
            one["metadata"]["name"] = f"{first}-{one['metadata']['name']}"
            one["spec"]["pool"]["resourceSliceCount"] = count
            one["spec"] = {**one["spec"], "nodeName": node}
            one["spec"].pop("allNodes", None)
        named += some
    cluster = state(words.node("evil"), *named)
    assert asked(cluster).exit_code == code
