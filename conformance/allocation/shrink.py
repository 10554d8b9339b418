# SPDX-License-Identifier: Apache-2.0
"""Makes a problem smaller as long as something holds of it, usually that two implementations answer differently.

The problem is a tree of objects and lists. Parts are taken out, the large ones first, until no single part can go any more.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Place = tuple[str | int, ...]

# Without these an object is none that an API server would store.
KEPT = frozenset(
    {"metadata", "name", "spec", "devices", "exactly", "deviceClassName", "allocationMode"}
)
KEPT |= {
    "driver",
    "pool",
    "generation",
    "resourceSliceCount",
    "cel",
    "expression",
    "value",
    "effect",
}
KEPT |= {
    "counterSet",
    "counters",
    "key",
    "operator",
    "nodeSelectorTerms",
    "opaque",
    "default",
    "min",
}
KEPT |= {"impl", "features", "classes", "slices", "node", "claims"}
KEPT |= {"allocatedDevices", "allocatedSharedDeviceIDs", "allocatedCapacity"}
MOST_TRIES = 4_000


def shrink(problem: Json, holds: Callable[[Json], bool]) -> Json:
    """The smallest problem found of which `holds` is true; it is true of the one given."""
    tries = 0
    smallest = problem
    while True:
        before = smallest
        for place in list(_places(smallest)):
            candidate = _without(smallest, place)
            if candidate is None:
                continue
            tries += 1
            if tries > MOST_TRIES:
                return smallest
            if holds(candidate):
                smallest = candidate
        if smallest is before:
            return smallest


def _places(problem: Json) -> Iterator[Place]:
    """Where something could be taken out, large parts first; of a list the last ones first."""
    yield from sorted(_below(problem, ()), key=lambda place: (len(place), _key(place)))


def _key(place: Place) -> tuple[str, ...]:
    return tuple(f"{99999 - part:05}" if isinstance(part, int) else part for part in place)


def _below(value: Any, place: Place) -> Iterator[Place]:
    parts: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    for name, part in parts:
        if name not in KEPT:
            yield (*place, name)
        yield from _below(part, (*place, name))


def _without(problem: Json, place: Place) -> Json | None:
    """A copy without what is at the place; None if nothing is there any more."""
    made = copy.deepcopy(problem)
    holder: Any = made
    try:
        for part in place[:-1]:
            holder = holder[part]
        del holder[place[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return made
