# SPDX-License-Identifier: Apache-2.0
"""Under which names does this node publish? Fixed ones, and another one where a stranger has taken one.

Which one was taken instead is found again after a restart by what our own slices are called.
"""

from collections.abc import Collection

from dra_driver.model.ids import DriverName, NodeName
from dra_driver.planning.reconcile import NAME_VARIANTS, slice_name


class SliceNames:
    """The names of one pool's slices. Used by one thread."""

    def __init__(self, driver: DriverName, node: NodeName) -> None:
        self._driver = driver
        self._node = node
        self._variants: dict[int, int] = {}  # by index; the others have the first name

    def choose(self, count: int, present: Collection[str]) -> tuple[str, ...]:
        """The names of `count` slices. `present` are those of our own slices."""
        return tuple(self._choose(index, present) for index in range(count))

    def evade(self, name: str, names: tuple[str, ...]) -> str:
        """Somebody else has `name`, one of `names`: the name that is tried next. After the last one comes the first again."""
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
