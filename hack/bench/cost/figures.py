# SPDX-License-Identifier: Apache-2.0
"""How are times compared so that the comparison means something?

Only ratios of things that were done in turn, in one loop, on one machine are held against a target: a machine that is
busy with other work is slow for both halves. A loop is repeated; the ratio of the medians of each repeat is one value,
their median is the figure, and their lowest and highest say how much noise there is. Percentiles are over all repeats.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Times:
    """Seconds of one thing, by repeat."""

    what: str
    repeats: list[list[float]] = field(default_factory=list)

    def begin_repeat(self) -> None:
        """What is added from now on belongs to the next repeat."""
        self.repeats.append([])

    def add(self, seconds: float) -> None:
        """One more."""
        self.repeats[-1].append(seconds)

    @property
    def all(self) -> list[float]:
        """Every value, in order of size."""
        return sorted(seconds for repeat in self.repeats for seconds in repeat)

    def quantile(self, share: float) -> float:
        """The value that this share of all values does not exceed, between two values in proportion."""
        values = self.all
        place = share * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        return values[below] + (values[above] - values[below]) * (place - below)

    @property
    def medians(self) -> list[float]:
        """The median of each repeat."""
        return [statistics.median(repeat) for repeat in self.repeats]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient, and its lowest and highest value over the repeats."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(upper: Times, lower: Times) -> Ratio:
    """How many times as long `upper` takes as `lower`, which was measured in the same loop."""
    return ratio_of(high / low for high, low in zip(upper.medians, lower.medians, strict=True))


def ratio_of(quotients: Iterable[float]) -> Ratio:
    """The median of the repeats' quotients with their spread."""
    found = sorted(quotients)
    return Ratio(statistics.median(found), found[0], found[-1])


def in_turn(actions: Sequence[Callable[[], object]], rounds: int) -> None:
    """Do all of them in each round, each round beginning with another one, so that none always follows the same."""
    for number in range(rounds):
        start = number % len(actions)
        for action in (*actions[start:], *actions[:start]):
            action()
