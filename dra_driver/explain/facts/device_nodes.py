# SPDX-License-Identifier: Apache-2.0
"""From which nodes can a device be used?

The search answers this for one node at a time; this module answers it for all nodes. In a large cluster most slices name one
node, and there are only a few different node selectors. So each selector is compared with the nodes once.
"""

from collections.abc import Iterable, Mapping

import msgspec

from dra_driver.allocator.devices import PoolSlice, SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.node_problems import selector_problems
from dra_driver.allocator.nodes import selector_matches
from dra_driver.model.api.core import Node, NodeSelector, NodeSelectorRequirement

Choice = tuple[str | None, bool | None, NodeSelector | None]
_NOWHERE: frozenset[str] = frozenset()


class DeviceNodes:
    """Tells which of the nodes in the report can use a device."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: Mapping[str, Node] = {node.metadata.name: node for node in nodes}
        self._known: dict[bytes, frozenset[str]] = {}
        self._near: dict[bytes, str] = {}

    def of(self, device: SliceDevice) -> frozenset[str] | None:
        """Return the names of the nodes that can use the device; None means all nodes."""
        return self._within(device.slice, self._chosen(device))

    def reading(self, part: PoolSlice) -> frozenset[str] | None:
        """Return the names of the nodes for which the scheduler reads the slice; None means all nodes.

        It reads a slice whose devices choose their nodes, and fails on each node at a selector that is malformed.
        """
        name, selector = part.spec.node_name, part.spec.node_selector
        found: frozenset[str] | None
        if name:
            found = self._only(name)
        elif part.spec.all_nodes or selector is None or any(selector_problems(selector)):
            found = None
        else:
            found = self._selected(selector)
        return self._within(part, found)

    def _within(self, part: PoolSlice, found: frozenset[str] | None) -> frozenset[str] | None:
        if part.only is None:
            return found
        return part.only & (frozenset(self.nodes) if found is None else found)

    def _only(self, name: str) -> frozenset[str]:
        return frozenset((name,)) if name in self.nodes else _NOWHERE

    def _chosen(self, device: SliceDevice) -> frozenset[str] | None:
        name, everywhere, selector = choice(device)
        if name:
            return self._only(name)
        if everywhere:
            return None
        return self._selected(selector) if selector else _NOWHERE

    def is_for_none(self, device: SliceDevice) -> bool:
        """Return whether no node can use the device."""
        name = choice(device)[0]
        return name not in self.nodes if name else self.of(device) == _NOWHERE

    def near_miss(self, device: SliceDevice) -> str:
        """Return which value nodes have for the first label that the device's selector asks for in vain; "" without such a label."""
        selector = choice(device)[2]
        if selector is None:
            return ""
        key = msgspec.json.encode(selector)
        if key not in self._near:
            labels = (
                one
                for term in selector.node_selector_terms or ()
                for one in term.match_expressions or ()
                if one.operator == "In"
            )
            told = (self._other_value(one) for one in labels)
            self._near[key] = next((one for one in told if one), "")
        return self._near[key]

    def _other_value(self, wanted: NodeSelectorRequirement) -> str:
        """Return a node's value for the label; "" if a node has a value that is asked for."""
        values = {
            name: (one.metadata.labels or {}).get(wanted.key) for name, one in self.nodes.items()
        }
        if not values or set(values.values()) & set(wanted.values or ()):
            return ""
        for name, value in values.items():
            if value is not None:
                return f"node {name} has {wanted.key}={value}"
        return f"no node has the label {wanted.key}"

    def _selected(self, selector: NodeSelector) -> frozenset[str]:
        key = msgspec.json.encode(selector)
        known = self._known.get(key)
        if known is None:
            known = frozenset(name for name, node in self.nodes.items() if _matches(node, selector))
            self._known[key] = known
        return known


def choice(device: SliceDevice) -> Choice:
    """Return the nodeName, allNodes and nodeSelector of the device, if the slice has perDeviceNodeSelection; else of the slice."""
    source = device.device if device.slice.spec.per_device_node_selection else device.slice.spec
    return source.node_name, source.all_nodes, source.node_selector


def where_usable(device: SliceDevice) -> str:
    """Return text that says on which nodes a pod can use the device."""
    name, everywhere, selector = choice(device)
    if name:
        return f"node {name}"
    if everywhere:
        return "all nodes"
    return selector_text(selector) if selector else "no node"


def selector_text(selector: NodeSelector) -> str:
    """Return a node selector as text."""
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
    except AllocationError:
        # The selector is malformed. The search stops with this error, too, and the report shows that one.
        return False
