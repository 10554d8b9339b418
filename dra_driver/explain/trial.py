# SPDX-License-Identifier: Apache-2.0
"""What would the scheduler answer on each node? ClaimRequest once for all nodes that cannot differ.

Two nodes get the same answer if their devices are equal in everything that the claims look at: what the selectors see,
the attributes of constraints, capacity, counters, taints, and whether somebody holds them. Names and serial numbers are
no part of that, so a thousand nodes are a few questions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import (
    AllocationCancelled,
    AllocationError,
    NodeAllocationError,
    TooManyAsked,
)
from dra_driver.allocator.features import OPTIONAL_NODE_OPERATIONS
from dra_driver.allocator.state import PoolID
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.reasons import RequestExplained
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, ResourceClaim

ClaimsOn = Callable[[Node], Sequence[ResourceClaim]]
Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """`results` where the claims fit; else `error`, or that nobody knows (`cancelled`).

    `failure` is the kind of an error that stops the pod on all nodes, `too_many` how many devices a claim asks for that asks
    for more than it can hold.
    """

    results: Sequence[AllocationResult] | None = None
    error: str = ""
    failure: type[AllocationError] | None = None
    cancelled: bool = False
    too_many: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is a device for everything."""
        return self.results is not None

    @property
    def fatal(self) -> bool:
        """Whether the error stops the pod on all nodes."""
        return self.failure is not None


@dataclass(slots=True)
class EquivalentNodes:
    """Nodes that get the same answer, and the devices that one of them can use."""

    nodes: list[Node]
    devices: list[SliceDevice] = field(default_factory=list)

    @property
    def example(self) -> Node:
        """The node that is asked."""
        return self.nodes[0]


def ask(
    allocator: Allocator,
    node: Node,
    claims: Sequence[ResourceClaim],
    cancelled: Callable[[], bool],
) -> TrialResult:
    """The scheduler's answer for one node."""
    try:
        return TrialResult(allocator.allocate(node, claims, cancelled=cancelled))
    except AllocationCancelled:
        return TrialResult(error="the search took too long", cancelled=True)
    except NodeAllocationError as error:
        return TrialResult(error=str(error))
    except AllocationError as error:
        needed = error.needed if isinstance(error, TooManyAsked) else 0
        return TrialResult(error=str(error), failure=type(error), too_many=needed)


class NodeEquivalence:
    """Sorts nodes by what the requests can see of them."""

    def __init__(
        self, fleet: Fleet, reach: DeviceNodes, requests: Sequence[RequestExplained]
    ) -> None:
        self._fleet = fleet
        self._reach = reach
        self._requests = requests
        self._attributes = sorted(_compared([request.asked for request in requests]))
        self._everything = any(request.asked.body.derived_attributes for request in requests)
        self._numbers: dict[object, int] = {}
        self._own: dict[str, list[SliceDevice]] = {name: [] for name in reach.nodes}
        self._shared: dict[frozenset[str] | None, list[SliceDevice]] = {}
        for device in fleet.devices.values():
            self._file(device)

    def _file(self, device: SliceDevice) -> None:
        name = device.slice.spec.node_name
        if name:
            if name in self._own:
                self._own[name].append(device)
            return
        self._shared.setdefault(self._reach.of(device), []).append(device)

    def alike(self, extra: Mapping[str, object]) -> list[EquivalentNodes]:
        """The nodes in groups; `extra` is what else tells nodes apart, by name."""
        groups: dict[Signature, EquivalentNodes] = {}
        shared = {nodes: self._signature(found) for nodes, found in self._shared.items()}
        for name, node in self._reach.nodes.items():
            mine = [nodes for nodes in shared if nodes is None or name in nodes]
            features = OPTIONAL_NODE_OPERATIONS in (node.status.declared_features or ())
            signature = (
                self._signature(self._own[name]),
                tuple(shared[nodes] for nodes in mine),
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
        """The nodes that are looked at, by name."""
        return self._reach.nodes

    def devices_on(self, node: Node) -> list[SliceDevice]:
        """The devices that a node can use."""
        name = node.metadata.name
        found = list(self._own[name])
        for nodes, devices in self._shared.items():
            if nodes is None or name in nodes:
                found += devices
        return found

    def place(self, node: Node) -> object:
        """Equal for nodes that can use the very same devices."""
        name = node.metadata.name
        shared = tuple(nodes for nodes in self._shared if nodes is None or name in nodes)
        return name if self._own[name] else "", shared

    def _signature(self, devices: Sequence[SliceDevice]) -> Signature:
        pools: dict[PoolID, list[int]] = {}
        for device in devices:
            pools.setdefault(device.slice.pool_id, []).append(self._number(self._look(device)))
        return tuple(
            sorted(
                (self._number(self._pool(pool)), *sorted(found)) for pool, found in pools.items()
            )
        )

    def _number(self, look: object) -> int:
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
        attributes: object = published.attributes if self._everything else None
        compared = [device.attribute(name) for name in self._attributes]
        rest = (
            device.slice.spec.skip_node_operations,
            device.slice.spec.per_device_node_selection,
            published.capacity,
            published.consumes_counters,
            published.taints,
            published.binding_conditions,
            published.allow_multiple_allocations,
            published.binds_to_node,
        )
        return (
            tuple(request.look(device) for request in self._requests),
            msgspec.json.encode((attributes, compared, rest)),
            device.id in held.devices,
            tuple(sorted(held.consumed(device.id).items())) if device.id in held.shares else None,
        )


def _compared(requests: Sequence[ClaimRequest]) -> set[str]:
    """The attributes that constraints compare."""
    found: set[str] = set()
    for asked in requests:
        for constraint in asked.claim.spec.devices.constraints or ():
            name = constraint.match_attribute or constraint.distinct_attribute
            if name:
                found.add(name)
    return found
