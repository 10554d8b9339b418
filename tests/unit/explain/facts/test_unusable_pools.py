# SPDX-License-Identifier: Apache-2.0
"""Which nodes see the same pools that cannot be used, and how often a slice is looked at to find that out."""

from typing import Any

import pytest

from dra_driver.allocator import devices
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.unusable_pools import UnusablePools
from dra_driver.explain.report import ClaimSubject
from dra_driver.explain.several import explain_several
from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, device, node, request, resource_slice
from tests.unit.explain.clusters import state


def selector(value: str, operator: str = "In") -> dict[str, Any]:
    chosen = {"key": "rack", "operator": operator, "values": [value]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}}


def lacking(name: str, pool: str = "p", **where: Any) -> dict[str, Any]:
    """A slice of a pool that is not complete."""
    return resource_slice([], name=name, pool=pool, slices=9, **where)


def alike(*objects: dict[str, Any]) -> list[list[str]]:
    """The names of the nodes, those together that see the same pools."""
    cluster = state(*objects, *(node(name, labels={"rack": name}) for name in "ab"))
    reach = DeviceNodes(cluster.nodes)
    found = UnusablePools(Fleet(cluster), reach)
    groups: dict[int, list[str]] = {}
    for name in reach.nodes:
        groups.setdefault(found.on(name), []).append(name)
    return list(groups.values())


@pytest.mark.parametrize(
    ("slices", "groups"),
    [
        ([], [[HOME, "a", "b"]]),
        ([lacking("x", nodeName="a")], [[HOME, "b"], ["a"]]),
        ([lacking("x", nodeName="gone")], [[HOME, "a", "b"]]),
        ([lacking("x", allNodes=True)], [[HOME, "a", "b"]]),
        ([lacking("x", perDeviceNodeSelection=True)], [[HOME, "a", "b"]]),
        ([lacking("x", **selector("a"))], [[HOME, "b"], ["a"]]),
        ([lacking("x", **selector("a", "Sideways"))], [[HOME, "a", "b"]]),
        # It counts which pools they are, and not how a slice chooses its nodes.
        ([lacking("x", nodeName="a"), lacking("y", **selector("b"))], [[HOME], ["a", "b"]]),
        ([lacking("x", nodeName="a"), lacking("y", "q", nodeName="b")], [[HOME], ["a"], ["b"]]),
        (
            [lacking("x", nodeName="a"), lacking("y", allNodes=True), lacking("z", nodeName="b")],
            [[HOME], ["a", "b"]],
        ),
    ],
)
def test_nodes_are_alike_if_they_see_the_same_unusable_pools(
    slices: list[dict[str, Any]], groups: list[list[str]]
) -> None:
    assert alike(*slices) == groups


def test_a_part_of_a_pool_counts_on_its_nodes_only() -> None:
    # For b there are two slices and the pool should have one; for the others the pool is whole.
    shared = resource_slice([device("x")], name="shared", pool="p", allNodes=True)
    more = resource_slice([device("y")], name="more", pool="p", nodeName="b")
    assert alike(shared, more) == [[HOME, "a"], ["b"]]


def comparisons(monkeypatch: pytest.MonkeyPatch, nodes: int, slices: int) -> int:
    """How often a slice is compared with a node, to explain two claims in a cluster where one node publishes useless slices."""
    mine = [words.claim(request(cel=cel), name=cel) for cel in ("false", "1 == 2")]
    for one in mine:
        one["metadata"]["namespace"] = "ns"
    cluster = state(
        *(lacking(f"s{number}", "mine", nodeName="a") for number in range(slices)),
        *(node(name) for name in ["a", *map(str, range(nodes))]),
        *mine,
    )
    seen = []
    with monkeypatch.context() as patch:
        whole = devices.node_matches
        patch.setattr(devices, "node_matches", lambda *a, **k: seen.append(1) or whole(*a, **k))
        found = explain_several(cluster, [ClaimSubject("ns", one) for one in ("false", "1 == 2")])
    assert [one.outcome for one in found.items] == ["devices do not fit"] * 2
    return len(seen)


def test_slices_of_one_node_are_not_compared_with_the_other_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert comparisons(monkeypatch, 3, 20) == comparisons(monkeypatch, 30, 20)
    assert comparisons(monkeypatch, 3, 20) < 5 * 20
