# SPDX-License-Identifier: Apache-2.0
"""Which name is free for a new claim or template?"""

from collections import Counter
from collections.abc import Iterable

Place = tuple[str, str]
"""A namespace and a name."""


class Names:
    """The names of claims and templates that there are. Finding the next one takes no longer after thousands of the same name."""

    def __init__(self, taken: Iterable[Place] = ()) -> None:
        self._taken = set(taken)
        self._last: Counter[Place] = Counter()

    def add(self, taken: Iterable[Place]) -> None:
        """Add names that are taken."""
        self._taken.update(taken)

    def new(self, namespace: str, name: str) -> str:
        """Take a name, or the first one of `NAME-2`, `NAME-3`, … that is free, and return it."""
        wanted = (namespace, name)
        while True:
            self._last[wanted] += 1
            number = self._last[wanted]
            place = (namespace, f"{name}-{number}" if number > 1 else name)
            if place not in self._taken:
                self._taken.add(place)
                return place[1]
