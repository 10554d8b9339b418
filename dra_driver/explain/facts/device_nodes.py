# SPDX-License-Identifier: Apache-2.0
"""From which nodes can a device be used?

The search asks this for one node at a time. In a large cluster most slices name their one node, and few node selectors differ, so
each selector is matched with the nodes once.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.nodes import selector_matches
from dra_driver.model.api.core import Node, NodeSelector, NodeSelectorRequirement

Choice = tuple[str | None, bool | None, NodeSelector | None]


class DeviceNodes:
    """The nodes that the report is about, and which devices they can use."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: Mapping[str, Node] = {node.metadata.name: node for node in nodes}
        self._known: dict[bytes, frozenset[str]] = {}

    def of(self, device: SliceDevice) -> frozenset[str] | None:
        """The names of the nodes that can use the device; None means all."""
        name, everywhere, selector = choice(device)
        if name:
            return frozenset((name,)) & self.nodes.keys()
        if everywhere:
            return None
        return self._selected(selector) if selector else frozenset()

    def _selected(self, selector: NodeSelector) -> frozenset[str]:
        key = msgspec.json.encode(selector)
        known = self._known.get(key)
        if known is None:
            known = frozenset(name for name, node in self.nodes.items() if _matches(node, selector))
            self._known[key] = known
        return known


def choice(device: SliceDevice) -> Choice:
    """The node name, all-nodes flag and node selector that count: the slice's, or the device's where the slice says so."""
    source = device.device if device.slice.spec.per_device_node_selection else device.slice.spec
    return source.node_name, source.all_nodes, source.node_selector


def where_usable(device: SliceDevice) -> str:
    """The nodes that a device is for, in words."""
    name, everywhere, selector = choice(device)
    if name:
        return f"node {name}"
    if everywhere:
        return "all nodes"
    return selector_text(selector) if selector else "no node"


def selector_text(selector: NodeSelector) -> str:
    """A node selector in words."""
    terms = [
        " and ".join(_requirement(one) for one in requirements)
        for term in selector.node_selector_terms or ()
        if (requirements := [*(term.match_expressions or ()), *(term.match_fields or ())])
    ]
    return "nodes with " + " or ".join(terms) if terms else "no node"


def _requirement(requirement: NodeSelectorRequirement) -> str:
    values = requirement.values or []
    if requirement.operator == "In" and len(values) == 1:
        key = "name" if requirement.key == "metadata.name" else requirement.key
        return f"{key}={values[0]}"
    listed = f" ({', '.join(values)})" if values else ""
    return f"{requirement.key} {requirement.operator}{listed}"


def _matches(node: Node, selector: NodeSelector) -> bool:
    try:
        return selector_matches(node, selector)
    except AllocationError:  # a malformed selector; the search itself stops on it and says so
        return False
