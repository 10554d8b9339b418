# SPDX-License-Identifier: Apache-2.0
"""Choose the names of this node's slices: always the same, unless an object of somebody else has a name already.

Then the driver uses another variant of the name. After a restart it finds the variant by the names of its own slices.
"""

from collections.abc import Collection

from dra_driver.model.ids import DriverName, NodeName
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name


class SliceNames:
    """Chooses the names of one pool's slices. Only one thread uses it."""

    def __init__(self, driver: DriverName, node: NodeName) -> None:
        self._driver = driver
        self._node = node
        self._variants: dict[
            int, int
        ] = {}  # by the slice's index; a slice without an entry has variant 0

    def choose(self, count: int, present: Collection[str]) -> tuple[str, ...]:
        """Return the names of `count` slices. `present` are the names of the driver's own slices at the API server."""
        return tuple(self._choose(index, present) for index in range(count))

    def evade(self, name: str, names: tuple[str, ...]) -> str:
        """Replace `name`, which another object has; `names` are the names of all slices. Returns the variant to try next. The first
        variant follows the last one.
        """
        index = names.index(name)
        self._variants[index] = (self._variants.get(index, 0) + 1) % NAME_VARIANTS
        return self._name(index, self._variants[index])

    def _choose(self, index: int, present: Collection[str]) -> str:
        if index not in self._variants:
            found = (
                variant for variant in range(NAME_VARIANTS) if self._name(index, variant) in present
            )
            if (variant := next(found, None)) is not None:
                self._variants[index] = variant
        return self._name(index, self._variants.get(index, 0))

    def _name(self, index: int, variant: int) -> str:
        return slice_name(index, self._driver, self._node, variant=variant)
