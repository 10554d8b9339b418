# SPDX-License-Identifier: Apache-2.0
"""From which nodes devices can be used."""

from typing import Any

import pytest

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.facts.device_nodes import DeviceNodes, where_usable
from dra_driver.explain.facts.fleet import Fleet
from tests.e2e.fleet import HOME, device, devices, node, resource_slice
from tests.unit.explain.clusters import state


def reached(**where: Any) -> tuple[DeviceNodes, SliceDevice]:
    listed = where.pop("listed", devices(1))
    cluster = state(resource_slice(listed, **where), node("m", labels={"zone": "a"}))
    (found,) = Fleet(cluster).devices.values()
    return DeviceNodes(cluster.nodes), found


def selector(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    part = {"key": key, "operator": operator}
    if values:
        part["values"] = list(values)
    return {"nodeSelectorTerms": [{"matchExpressions": [part]}]}


@pytest.mark.parametrize(
    ("where", "nodes", "words"),
    [
        ({"nodeName": HOME}, {HOME}, f"node {HOME}"),
        ({"nodeName": "gone"}, set(), "node gone"),
        ({"allNodes": True}, None, "all nodes"),
        ({"nodeSelector": selector("In", "a")}, {"m"}, "nodes with zone=a"),
        ({"nodeSelector": selector("In", "a", "b")}, {"m"}, "nodes with zone In (a, b)"),
        ({"nodeSelector": selector("Exists")}, {"m"}, "nodes with zone Exists"),
        ({"nodeSelector": selector("Odd", "a")}, set(), "nodes with zone Odd (a)"),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, set(), "no node"),
        ({"perDeviceNodeSelection": True, "listed": [device("a", nodeName="m")]}, {"m"}, "node m"),
        ({"perDeviceNodeSelection": True}, set(), "no node"),
    ],
)
def test_the_slice_or_the_device_chooses(
    where: dict[str, Any], nodes: set[str] | None, words: str
) -> None:
    reach, found = reached(**where)
    assert (reach.of(found), where_usable(found)) == (nodes, words)
    assert reach.of(found) == nodes  # the second time from memory


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"nodeSelector": selector("In", "A")}, "node m has zone=a"),
        ({"nodeSelector": selector("In", "a")}, ""),
        ({"nodeSelector": selector("In", "a", key="rack")}, "no node has the label rack"),
        ({"nodeSelector": selector("Exists", key="rack")}, ""),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, ""),
        ({"nodeName": "gone"}, ""),
    ],
)
def test_the_label_that_a_node_has_otherwise_is_told(where: dict[str, Any], words: str) -> None:
    reach, found = reached(**where)
    assert reach.near_miss(found) == words
    assert reach.near_miss(found) == words  # the second time from memory
    assert DeviceNodes(()).near_miss(found) == ""
