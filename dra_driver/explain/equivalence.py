# SPDX-License-Identifier: Apache-2.0
"""Which nodes get the same answer? The allocator runs only once for such nodes.

Two nodes are equivalent if their devices are equal in everything that the claims depend on: the values that the selectors read,
the attributes that constraints compare, capacity, counters, taints, and whether the device is allocated. Names and serial numbers
may differ. So for 1,000 nodes of 3 models without allocated devices, the allocator runs 3 times.

The order of the devices is part of the key only if a selector ends with an error. The order then decides whether the search reaches
the device with the error before it has found enough others. A pool that cannot be used is part of the key even if its slices for
the node have no device.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.pools import ignored_because
from dra_driver.allocator.state import PoolID
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.facts.claim_state import skips_operations
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.unusable_pools import UnusablePools
from dra_driver.explain.selector_answers import SelectorAnswers
from dra_driver.model.api.core import Node

Signature = tuple[object, ...]


class EquivalentNodes(Struct):
    """Nodes that get the same answer, and the devices that the first of them can use."""

    nodes: list[Node]
    devices: list[SliceDevice] = field(default_factory=list)

    @property
    def example(self) -> Node:
        """The node on which the allocator is run."""
        return self.nodes[0]


class Compared(Struct, frozen=True):
    """The `attributes` that constraints compare; `everything`: attributes are derived from any of them."""

    attributes: tuple[str, ...]
    everything: bool

    @classmethod
    def by(cls, requests: Sequence[ClaimRequest]) -> "Compared":
        """Return what the claims of these requests compare."""
        derived = any(one.body.derived_attributes for one in requests)
        return cls(tuple(sorted(_compared(requests))), derived)


def equivalence_for(
    fleet: Fleet,
    nodes: DeviceNodes,
    answers: Sequence[SelectorAnswers],
    requests: Sequence[ClaimRequest],
) -> "NodeEquivalence":
    """Return the groups for these requests, with their answers; the same for all pods that ask for the same."""
    compared, distinct = Compared.by(requests), tuple(dict.fromkeys(answers))
    key = (NodeEquivalence, nodes, distinct, compared)
    return fleet.shared(key, lambda: NodeEquivalence(fleet, nodes, distinct, compared))


class NodeEquivalence:
    """Groups nodes by those properties of their devices on which the answer for the requests depends."""

    def __init__(
        self,
        fleet: Fleet,
        nodes: DeviceNodes,
        answers: Sequence[SelectorAnswers],
        compared: Compared,
    ) -> None:
        self._fleet = fleet
        self._device_nodes = nodes
        self._requests = answers
        self._compared = compared
        self._groups: dict[object, list[EquivalentNodes]] = {}
        self._numbers: dict[object, int] = {}
        self._own: dict[str, list[SliceDevice]] = {name: [] for name in nodes.nodes}
        self._shared: dict[frozenset[str] | None, list[SliceDevice]] = {}
        for device in fleet.all_devices:
            self._file(device)
        self._unusable = fleet.shared((UnusablePools, nodes), lambda: UnusablePools(fleet, nodes))

    def _file(self, device: SliceDevice) -> None:
        name = device.slice.spec.node_name
        if name:
            if name in self._own:
                self._own[name].append(device)
            return
        self._shared.setdefault(self._device_nodes.of(device), []).append(device)

    def groups(self, extra: Mapping[str, object]) -> list[EquivalentNodes]:
        """Return the groups of equivalent nodes. Nodes are only in one group if their values in `extra` (by node name) are equal."""
        key = tuple(extra.items())
        if key not in self._groups:
            self._groups[key] = self._grouped(extra)
        return self._groups[key]

    def _grouped(self, extra: Mapping[str, object]) -> list[EquivalentNodes]:
        groups: dict[Signature, EquivalentNodes] = {}
        shared = {nodes: self._signature(found) for nodes, found in self._shared.items()}
        for name, node in self._device_nodes.nodes.items():
            mine = [nodes for nodes in shared if nodes is None or name in nodes]
            features = skips_operations(node)
            usable = self.devices_on(node)
            in_order = self._in_order(usable) if self._some_fail(usable) else ()
            signature = (
                self._signature(self._own[name]),
                tuple(shared[nodes] for nodes in mine),
                in_order,
                self._unusable.on(name),
                features,
                extra.get(name),
            )
            group = groups.get(signature)
            if group is None:
                devices = [*self._own[name]]
                for nodes in mine:
                    devices += self._shared[nodes]
                group = groups[signature] = EquivalentNodes([], devices)
            group.nodes.append(node)
        return list(groups.values())

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that the report is about, by name."""
        return self._device_nodes.nodes

    def devices_on(self, node: Node) -> list[SliceDevice]:
        """Return the devices that a node can use."""
        name = node.metadata.name
        found = list(self._own[name])
        for nodes, devices in self._shared.items():
            if nodes is None or name in nodes:
                found += devices
        return found

    def place(self, node: Node) -> object:
        """Return a key that is equal for nodes that can use exactly the same devices."""
        name = node.metadata.name
        shared = tuple(nodes for nodes in self._shared if nodes is None or name in nodes)
        return name if self._own[name] else "", shared

    def _signature(self, devices: Sequence[SliceDevice]) -> Signature:
        # Sorted, because the names of pools and devices must make no difference. By pool, because allocationMode All and the
        # errors of pools depend on the pool.
        pools: dict[PoolID, list[int]] = {}
        for device in devices:
            pools.setdefault(device.slice.pool_id, []).append(self._number(self._look(device)))
        return tuple(
            sorted(
                (self._number(self._pool(pool)), *sorted(found)) for pool, found in pools.items()
            )
        )

    def _some_fail(self, devices: Sequence[SliceDevice]) -> bool:
        """Whether a selector has no answer for one of the devices, and may end the search."""
        return any(one.judged(device).unanswered for one in self._requests for device in devices)

    def _in_order(self, devices: Sequence[SliceDevice]) -> Signature:
        """The devices of a node in the order in which the search tries them. A sort keeps the order within a pool."""
        pools = self._fleet.pools
        found = sorted(
            devices,
            key=lambda one: (pools[one.slice.pool_id].has_binding_conditions, one.slice.pool_id),
        )
        positions: dict[PoolID, int] = {}
        return tuple(
            (positions.setdefault(one.slice.pool_id, len(positions)), self._number(self._look(one)))
            for one in found
        )

    def _number(self, look: object) -> int:
        # Numbers sort and compare faster than the values, and values of different types cannot be sorted.
        return self._numbers.setdefault(look, len(self._numbers))

    def _pool(self, pool_id: PoolID) -> object:
        if pool_id in self._fleet.unusable:
            return self._fleet.unusable[pool_id]
        sets = self._fleet.pools[pool_id].counter_sets
        if not sets:
            return None
        # Devices for other nodes may consume the same counters.
        left = self._fleet.ledger(pool_id)
        return tuple(
            (name, counter, left.left((name, counter)))
            for name in sorted(sets)
            for counter in sorted(sets[name].counters or ())
        )

    def _look(self, device: SliceDevice) -> object:
        published, held = device.device, self._fleet.held
        attributes: object = published.attributes if self._compared.everything else None
        compared = [device.attribute(name) for name in self._compared.attributes]
        rest = (
            device.slice.spec.skip_node_operations,
            ignored_because(device.slice, self._fleet.rules),
            published.capacity,
            published.consumes_counters,
            published.taints,
            published.binding_conditions,
            published.allow_multiple_allocations,
            published.binds_to_node,
        )
        return (
            tuple([request.look(device) for request in self._requests]),
            msgspec.json.encode((attributes, compared, rest)),
            device.id in held.devices,
            tuple(sorted(held.consumed(device.id).items())) if device.id in held.shares else None,
        )


def _compared(requests: Sequence[ClaimRequest]) -> frozenset[str]:
    """Return the attributes that constraints compare."""
    constraints = (
        one for request in requests for one in request.claim.spec.devices.constraints or ()
    )
    names = (one.match_attribute or one.distinct_attribute for one in constraints)
    return frozenset(name for name in names if name)
