# SPDX-License-Identifier: Apache-2.0
"""Which devices would the scheduler allocate to these claims on this node?

This module is the entry point of the package. The caller makes one Allocator for one state of the cluster, and then calls
`allocate` for each node. The Allocator prepares slices, pools and selectors once, because they are the same for all nodes
and claims.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (Allocate).
"""

from collections.abc import Callable, Iterable, Sequence
from operator import is_

from dra_driver.allocator.constraints import AnyConstraint, AttributeLookup, constraints_of
from dra_driver.allocator.counters import AvailableCounters
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.eligibility import DevicesInUse, Eligibility
from dra_driver.allocator.failures import NodeAllocationError, PoolUnusable, ResultMaxSizeExceeded
from dra_driver.allocator.features import ENABLED_BY_DEFAULT, Implementation, Rules
from dra_driver.allocator.pools import Pool, SliceIndex
from dra_driver.allocator.requests import Choice, Request, RequestValidator, object_name
from dra_driver.allocator.results import allocation_result
from dra_driver.allocator.search import MAX_RESULTS, Search
from dra_driver.allocator.search_input import SearchInput
from dra_driver.allocator.selectors import Selectors
from dra_driver.allocator.state import AllocatedState
from dra_driver.cel.cancellation import Check, never
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.gates import NEWEST

NO_SHARE_ID = "00000000-0000-0000-0000-000000000000"
"""The default share ID. It is fixed, so that two runs on the same objects give equal results."""


class Allocator:
    """The scheduler's allocator for one state of the cluster. Not safe for two threads at the same time.

    `slices`, `classes` and `allocated` describe that state. Without `implementation`, the scheduler's own rule chooses
    an implementation for the enabled `features`. `minor` is the release of the scheduler, 37 for 1.37. Raises AllocationError if no
    implementation supports all these features.
    """

    def __init__(  # noqa: PLR0913 - the state of the cluster, and which scheduler it has
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        allocated: AllocatedState | None = None,
        *,
        features: frozenset[str] = ENABLED_BY_DEFAULT,
        implementation: Implementation | None = None,
        minor: int = NEWEST,
        new_share_id: Callable[[], str] = lambda: NO_SHARE_ID,
    ) -> None:
        self.rules = Rules.of(features, implementation, minor)
        self.slices = SliceIndex(slices, self.rules)
        self.devices_in_use = DevicesInUse(allocated or AllocatedState(), self.rules)
        self.selectors = Selectors(self.rules)
        # If two classes have the same name, the first one is used.
        self.requests = RequestValidator(
            self.rules, {one.metadata.name: one for one in reversed(list(classes))}
        )
        self._new_share_id = new_share_id
        self._known_pools: dict[str, _NodePools] = {}
        self._available_counters: dict[Pool, AvailableCounters] = {}
        self._last: tuple[tuple[ResourceClaim, ...], list[list[Choice]]] = ((), [])

    def allocate(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        *,
        cancelled: Check = never,
        prune: bool = True,
    ) -> list[AllocationResult] | None:
        """Return one result for each claim, in the order of the claims. None if the claims do not fit on the node.

        Raises AllocationError if the scheduler would give up the pod on all nodes, and NodeAllocationError if the scheduler would
        only skip this node. Raises AllocationCancelled as soon as `cancelled` returns True.
        `prune=False` makes the search try every combination. The result is the same; tests compare both results.
        """
        node_pools = self._node_pools(node)
        eligibility = self.eligibility(node, cancelled)
        choices, constraints = self._read(claims, node_pools.pools, eligibility)
        search_input = self._input(node_pools, eligibility, cancelled)
        search = Search(search_input, choices, constraints, prune=prune)
        if not search.run():
            # The scheduler reports an invalid pool only if the claims do not fit without it.
            if any(pool.invalid_because for pool in node_pools.pools):
                raise NodeAllocationError("invalid resource pools were encountered")
            return None
        return [
            allocation_result(
                claim,
                choices[index],
                search.results[index],
                rules=self.rules,
                node_name=node.metadata.name,
                new_share_id=self._new_share_id,
            )
            for index, claim in enumerate(claims)
        ]

    def after(self, allocated: AllocatedState) -> "Allocator":
        """Return an Allocator for the same slices and classes, but with other allocated devices.

        The new Allocator shares the prepared slices, classes and compiled selectors with this one.
        """
        # __init__ would prepare all slices again, and explain calls this method once for each trial.
        other = object.__new__(Allocator)
        devices_in_use = DevicesInUse(allocated, self.rules)
        other.__dict__ = {
            **self.__dict__,
            "devices_in_use": devices_in_use,
            "_available_counters": {},
        }
        return other

    def eligibility(self, node: Node, cancelled: Check = never) -> Eligibility:
        """Return the checks of single devices for this node."""
        return Eligibility(self.rules, self.selectors, self.devices_in_use, node, cancelled)

    def available_counters(self, pool: Pool) -> AvailableCounters:
        """Return the counters of the pool that are available before the search. The caller must not change them."""
        if pool not in self._available_counters:
            self._available_counters[pool] = AvailableCounters(
                pool, self.devices_in_use.is_allocated
            )
        return self._available_counters[pool]

    def _node_pools(self, node: Node) -> "_NodePools":
        node_pools = self._known_pools.get(node.metadata.name)
        # The caller may try the same node with other labels. That is another object with the same name.
        if node_pools is None or node_pools.node is not node:
            node_pools = self._known_pools[node.metadata.name] = _NodePools(
                node, self.slices.gather_pools(node)
            )
        return node_pools

    def _read(
        self, claims: Sequence[ResourceClaim], pools: list[Pool], eligibility: Eligibility
    ) -> tuple[list[list[Choice]], list[list[AnyConstraint]]]:
        """Read and validate the requests and the constraints of each claim."""
        # A caller usually tries the same claims on many nodes. Then the requests are validated only for the first node.
        last, choices = self._last
        if len(last) == len(claims) and all(map(is_, last, claims)):
            return choices, [constraints_of(claim, self.rules) for claim in claims]
        reader = _RequestReader(self.requests, pools, eligibility)
        choices, constraints = [], []
        for index, claim in enumerate(claims):
            choices.append(reader.choices(index, claim))
            constraints.append(constraints_of(claim, self.rules))
        # The devices of allocationMode All belong to one node, so these requests cannot be kept.
        if not reader.node_matters:
            self._last = (tuple(claims), choices)
        return choices, constraints

    def _input(
        self, node_pools: "_NodePools", eligibility: Eligibility, cancelled: Check
    ) -> SearchInput:
        counters = node_pools.counters
        if counters is None:
            own = {pool: self.available_counters(pool).copy() for pool in node_pools.usable}
            counters = [own[pool] for pool in node_pools.usable for _ in pool.devices]
            # Without counter sets the search changes no counter, so the next search may use the same objects.
            if not any(pool.counter_sets for pool in node_pools.usable):
                node_pools.counters = counters
        return SearchInput(
            self.rules,
            node_pools.devices,
            counters,
            eligibility,
            self.devices_in_use,
            AttributeLookup(self.selectors, self.rules, cancelled),
            cancelled,
        )


class _NodePools:
    """The pools and devices of one node. They do not depend on what is allocated."""

    def __init__(self, node: Node, pools: list[Pool]) -> None:
        self.node = node
        self.pools = pools
        self.usable = [pool for pool in pools if pool.usable]
        self.devices: list[SliceDevice] = [
            device for pool in self.usable for device in pool.devices
        ]
        self.counters: list[AvailableCounters] | None = None
        """For each device the counters of its pool. None if a pool has counters: then each search makes copies."""


class _RequestReader:
    """Reads and validates the requests of claims, for the pools of one node."""

    def __init__(
        self, requests: RequestValidator, pools: list[Pool], eligibility: Eligibility
    ) -> None:
        self.node_matters = False
        """Whether a request has allocationMode All. Its devices differ from node to node."""
        self._requests = requests
        self._pools = pools
        self._eligibility = eligibility

    def choices(self, claim_index: int, claim: ResourceClaim) -> list[Choice]:
        """Return the requests of one claim. Raises ResultMaxSizeExceeded if they need more devices than one claim may have."""
        name = object_name(claim.metadata)
        found: list[Choice] = []
        fewest = 0
        for index, request in enumerate(claim.spec.devices.requests or ()):
            prioritized = bool(request.first_available)
            alternatives: list[Request] = []
            for alternative, spec in self._requests.specs(name, request):
                one = self._requests.request(
                    spec,
                    claim=name,
                    place=(claim_index, index),
                    name=alternative,
                    parent=request.name if prioritized else "",
                )
                if one.wants_all:
                    self._find_all(one)
                alternatives.append(one)
            wanted = alternatives[0].count
            # Only one subrequest is allocated, so the claim needs at least the devices of the smallest subrequest.
            if prioritized:
                wanted = min(one.count for one in alternatives)
            # The scheduler refuses such a claim before the search, because the claim cannot fit on any node.
            if wanted > MAX_RESULTS - fewest:
                raise ResultMaxSizeExceeded(
                    f"claim {name}, request {request.name}: adding {wanted} devices exceeds"
                    f" the claim limit of {MAX_RESULTS}, with {fewest} already accounted for",
                    fewest + wanted,
                )
            fewest += wanted
            found.append(Choice(request.name, alternatives, prioritized=prioritized))
        return found

    def _find_all(self, request: Request) -> None:
        self.node_matters = True
        start = 0
        for pool in self._pools:
            # As long as some devices are unknown, the request cannot get all devices. The scheduler makes this an error.
            if pool.incomplete_for_all or pool.invalid_because:
                state = "being updated" if pool.incomplete_for_all else "invalid"
                raise PoolUnusable(
                    f"{request}: asks for all devices, but resource pool {pool.id}"
                    f" is currently {state}"
                )
            for position, device in enumerate(pool.devices, start):
                if self._eligibility.unselectable(request, device) is not None:
                    continue
                # The scheduler ignores here what other claims consume. allocateDevice checks that later.
                if self._eligibility.short_of_capacity(request, device, fresh=True) is None:
                    request.all_devices.append(position)
            start += len(pool.devices)
        request.count = len(request.all_devices)
