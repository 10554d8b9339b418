# SPDX-License-Identifier: Apache-2.0
"""On which nodes has the least to end, and on which nodes does the end of certain claims help?

Equivalent nodes differ in who has their devices. So all of them are compared by the cheapest claims that free what is needed there.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.change_places import Place
from dra_driver.explain.cheapest_ends import CheapestEnds, Ends
from dra_driver.explain.costs import cost_of
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.proposals import Candidate
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.tried_nodes import TriedNodes
from dra_driver.model.api.core import Node

MOST_PLACES = 2
"""The largest number of equivalent nodes for which a combination of changes is searched."""
MOST_SETS = 3
"""Of this many nodes the cheapest claims are tried: of those where all end by themselves, and of the others."""
MOST_TRIED = 24
"""On so many nodes of each place the end of claims is tried."""
MOST_LOOKS = 100_000
"""So many times a device is looked at for a request, to find the cheapest claims; on nodes after these the claims on all devices count."""


class _Ranked(NamedTuple):
    """A node with the cheapest claims that free what is needed there; None if their end is not enough, or was not looked for."""

    place: Place
    node: Node
    ends: Ends | None
    cost: int

    @property
    def rank(self) -> tuple[bool, int]:
        return self.ends is None, self.cost


class FreedNodes:
    """The nodes in `where`, for one pod or claim."""

    def __init__(
        self,
        facts: Facts,
        nodes: NodesExplained,
        requests: Sequence[RequestExplained],
        where: Sequence[Place],
    ) -> None:
        self._fleet = facts.fleet
        self._usable_from = facts.nodes.of
        self._nodes = nodes
        self._requests = requests
        self._where = where

    @cached_property
    def nearest(self) -> Sequence[tuple[TriedNodes, Sequence[SliceDevice]]]:
        """The devices of a few nodes of each group: those where the least has to end. On equivalent nodes others have the devices."""
        return [
            (one.place.tried, self._devices_on(one.place, one.node))
            for ranked in self._ranked
            for one in nsmallest(MOST_PLACES, ranked, key=lambda one: one.rank)
        ]

    def candidates(self) -> Iterator[Candidate]:
        """Yield the cheapest claims of a few nodes: of those where all end by themselves, and of those where some have to be ended."""
        found: dict[bool, list[tuple[int, Ends, Place]]] = {True: [], False: []}
        for ranked in self._ranked:
            for place, _, ends, cost in ranked:
                if ends is not None and ends.claims:
                    found[self._all_end(ends)].append((place.cost + cost, ends, place))
        for some in found.values():
            for _, ends, place in nsmallest(MOST_SETS, some, key=lambda one: one[0]):
                yield Candidate("", {}, ended=ends.claims, first=place.tried)

    def with_devices_of(self, claims: Sequence[str]) -> Iterator[tuple[Place, Node]]:
        """Yield the nodes that can use a device of each of these claims; in a place without such a node, those that can of most.

        The nodes of a place that can use devices for all nodes only are all the same: then it is one of them.
        """
        usable = [self._where_usable(name) for name in claims]
        everywhere = sum(one is None for one in usable)
        counts = Counter(name for some in usable for name in some or ())
        for place in self._where:
            most = max(counts[one.metadata.name] for one in place.nodes)
            if most:
                best = (one for one in place.nodes if counts[one.metadata.name] == most)
                yield from ((place, node) for node in islice(best, MOST_TRIED))
            elif everywhere:
                yield place, place.nodes[0]

    def _where_usable(self, claim: str) -> frozenset[str] | None:
        """Return the names of the nodes that can use a device of the claim; None means all nodes."""
        found: frozenset[str] = frozenset()
        for one in self._fleet.holders.devices_of(claim):
            device = self._fleet.devices.get(one)
            names = frozenset() if device is None else self._usable_from(device)
            if names is None:
                return None
            found |= names
        return found

    @cached_property
    def _ranked(self) -> Sequence[Sequence[_Ranked]]:
        """The nodes of each place."""
        finder = CheapestEnds(self._fleet, self._requests)
        held = self._fleet.held
        looks = MOST_LOOKS if held.devices or held.shares else 0
        found: list[list[_Ranked]] = []
        for place in self._where:
            found.append([])
            for node in place.nodes:
                devices = self._devices_on(place, node)
                looks -= len(devices) * len(self._requests)
                ends = finder.on(devices) if looks >= 0 else None
                cost = self._cost_of_all(devices) if ends is None else ends.cost
                found[-1].append(_Ranked(place, node, ends, cost))
        return found

    def _devices_on(self, place: Place, node: Node) -> Sequence[SliceDevice]:
        return self._nodes.devices_on(place.tried, node)

    def _all_end(self, ends: Ends) -> bool:
        return all(self._fleet.holders.named(one).ends for one in ends.claims)

    def _cost_of_all(self, devices: Sequence[SliceDevice]) -> int:
        holders = self._fleet.holders
        there = {one.claim: one for device in devices for one in self._fleet.holders_of(device.id)}
        return sum([cost_of(holders.held_by(one)) for one in there.values()])
