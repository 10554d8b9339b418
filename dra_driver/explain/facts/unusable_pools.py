# SPDX-License-Identifier: Apache-2.0
"""Which pools that cannot be used does the scheduler find for each node? It finds them by their slices, with or without devices.

One node may publish thousands of slices of pools that never become complete. So this is found out once for all nodes and all
subjects, and no slice is compared with a node that another slice of the same kind was compared with.
"""

from collections import Counter

from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet, Unusable

Slices = Counter[Unusable]
"""The number of slices, by why their pool cannot be used."""


class UnusablePools:
    """The pools of a fleet that cannot be used, for each of some nodes."""

    def __init__(self, fleet: Fleet, nodes: DeviceNodes) -> None:
        found: dict[frozenset[str] | None, Slices] = {}
        for pool_id, why in fleet.unusable.items():
            for part in fleet.pools[pool_id].slices:
                found.setdefault(nodes.reading(part), Counter())[why] += 1
        kinds: dict[frozenset[tuple[Unusable, int]], int] = {}
        self._kinds = [
            kinds.setdefault(frozenset(one.items()), len(kinds)) for one in found.values()
        ]
        self._known: dict[tuple[int, ...], int] = {}
        self._places: dict[str, list[int]] = {}
        for place, names in enumerate(found):
            for name in nodes.nodes if names is None else names:
                self._places.setdefault(name, []).append(place)

    def on(self, name: str) -> int:
        """Return a number. Nodes with the same number have as many slices of the same of these pools."""
        kinds = tuple(sorted(self._kinds[place] for place in self._places.get(name, ())))
        return self._known.setdefault(kinds, len(self._known))
