# SPDX-License-Identifier: Apache-2.0
"""Who has how much of the time, when several subjects are explained in it? Whatever one asks for, it takes no more from the others.

Each subject has a quick turn: all of them together a quarter of the time. Who has no answer then has a long turn, in what is left. In
both, each namespace has an equal part of the time that is left, and each of its subjects an equal part of that. So what one does not
use goes to the others, and a thousand subjects of one namespace take no more than one. No part is shorter than an ordinary subject
needs in a large cluster. So if there are very many, the last have no turn.

A search cannot be halted and go on later: a long turn begins anew.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from dra_driver.explain.outcome import Report

QUICK = 1 / 4
"""The part of the time for all quick turns."""
SHORTEST = (1 / 40, 1 / 4)
"""The shortest quick turn, and the shortest long one, as parts of the time."""


class Time(Struct, frozen=True):
    """The time for all subjects: `now` returns seconds that only grow, and at `until` the time is over."""

    now: Callable[[], float]
    until: float

    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self.now() > self.until


ENDLESS = Time(lambda: 0.0, math.inf)


class Told(Struct, frozen=True):
    """The answer about the subject at this `place`; None if it had no turn.

    `slow_seconds` is what it took besides a quick turn that was long enough; 0.0 for most subjects. `had_turn`: it has its answer, or its
    long turn was not cut short by the end of the time.
    """

    place: int
    report: Report | None = None
    slow_seconds: float = 0.0
    had_turn: bool = False


class _Stop:
    """Says whether a turn is over, and remembers it."""

    def __init__(self, turn: Time) -> None:
        self._turn = turn
        self.said = False

    def __call__(self) -> bool:
        self.said = self.said or self._turn.is_over()
        return self.said


def by_turns(
    namespaces: Sequence[str], explain: Callable[[int, Callable[[], bool]], Report], time: Time
) -> Iterator[Told]:
    """Yield the answer about each subject, as soon as it has it; those that were stopped, at the end.

    `namespaces` has that of each subject. `explain` gets the place of one, and what returns True when its turn is over.
    """
    begun = time.now()
    whole = time.until - begun
    left = {place: Told(place) for place in range(len(namespaces))}
    if len(left) > 1:
        quick = Time(time.now, begun + QUICK * whole)
        yield from _answers(left, namespaces, explain, quick, SHORTEST[0] * whole)
    # Those that had no turn yet come first: they may be quick.
    left = dict(sorted(left.items(), key=lambda one: one[1].report is not None))
    yield from _answers(left, namespaces, explain, time, SHORTEST[1] * whole, is_long=True)
    yield from left.values()


def _answers(
    left: dict[int, Told],
    namespaces: Sequence[str],
    explain: Callable[[int, Callable[[], bool]], Report],
    time: Time,
    shortest: float,
    *,
    is_long: bool = False,
) -> Iterator[Told]:
    """Yield the answers of those that are done, and take them out of `left`, which has what is known of the others."""
    for place, end in _turns(list(left), namespaces, time, shortest):
        before, begun, stop = left[place], time.now(), _Stop(Time(time.now, end))
        report = explain(place, stop)
        took = time.now() - begun
        if stop.said and before.report is not None and report.outcome == "could not tell":
            report = before.report
        is_slow = stop.said or is_long
        seconds = before.slow_seconds + (took if is_slow else 0.0)
        had_turn = not stop.said or (is_long and end < time.until)
        left[place] = Told(place, report, seconds, had_turn)
        if not stop.said:
            yield left.pop(place)


def _turns(
    places: Sequence[int], namespaces: Sequence[str], time: Time, shortest: float
) -> Iterator[tuple[int, float]]:
    """Yield each place that has a turn, with the end of the turn."""
    of_namespace: dict[str, list[int]] = {}
    for place in places:
        of_namespace.setdefault(namespaces[place], []).append(place)
    for before, own in enumerate(of_namespace.values()):
        until = _end(time, time.until, len(of_namespace) - before, shortest)
        for number, place in enumerate(own):
            if time.now() > until:
                break
            yield place, _end(time, until, len(own) - number, shortest)


def _end(time: Time, until: float, left: int, shortest: float) -> float:
    """Return when the part of one of those that are `left` ends."""
    now = time.now()
    return min(until, now + max(shortest, (until - now) / left))
