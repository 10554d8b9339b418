# SPDX-License-Identifier: Apache-2.0
"""Makes random allocation problems, so that every two features meet.

The pairs of features are gone through in turn; each problem is made with two features wished for and looked at: one that
does not have both is thrown away and made again. The same seed gives the same problems.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from conformance.allocation import claims, fleet
from conformance.allocation.features import GATE_OF, GATES, PAIRS, SUPPORTED, devices, features_of
from conformance.allocation.fleet import Dice

Json = dict[str, Any]

TRIES = 30
# A pair is given up with what was made last; the table of pairs tells.
DROPPED_GATE, WRONG_IMPLEMENTATION, FURTHER_GATES = 0.04, 0.01, 0.6


def problems(seed: int, size: int) -> Iterator[Json]:
    """So many problems."""
    random = Random(seed)
    pairs: list[tuple[str, str]] = []
    for number in range(size):
        if not pairs:
            pairs = random.sample(PAIRS, len(PAIRS))
        yield _problem(random, f"random-{seed}-{number}", pairs.pop())


def _problem(random: Random, name: str, pair: tuple[str, str]) -> Json:
    further = random.sample(sorted(GATE_OF), random.choice((0, 0, 1, 2)))
    wishes = frozenset((*pair, *further))
    barred = _barred(random, pair)
    made: Json = {}
    for _ in range(TRIES):
        made = _draw(Dice(random, wishes, barred), name)
        if features_of(made).issuperset(pair):
            break
    return _without_a_gate(random, made)


def _barred(random: Random, pair: tuple[str, str]) -> frozenset[str]:
    """What an implementation cannot do that can do the pair; often one that cannot do everything."""
    needed = {GATE_OF[name] for name in pair if name in GATE_OF}
    able = [gates for gates in SUPPORTED.values() if needed <= gates]
    gates = random.choice(able)
    return frozenset(name for name, gate in GATE_OF.items() if gate not in gates)


def _draw(dice: Dice, name: str) -> Json:
    slices = fleet.slices(dice)
    holders: Json = {"slices": slices}
    offer = list(devices(holders))
    wanted = claims.Demand(dice, offer).claims()
    made: Json = {
        "name": name,
        "impl": "",
        "features": [],
        "classes": claims.classes(dice),
        "slices": slices,
        "node": fleet.node(dice),
        "claims": wanted,
        **claims.allocated(dice, offer),
    }
    made["impl"], made["features"] = _gates(dice, made)
    if made["impl"] == "stable":
        _in_order_of_pools(made)
    return made


def _gates(dice: Dice, made: Json) -> tuple[str, list[str]]:
    """The gates that the problem needs, most often some more, and an implementation that has them."""
    needed = {GATE_OF[name] for name in features_of(made | {"features": GATES}) if name in GATE_OF}
    able = [name for name, gates in SUPPORTED.items() if needed <= gates]
    implementation = dice.random.choice(able)
    if dice.often(FURTHER_GATES):
        others = sorted(SUPPORTED[implementation] - needed)
        needed |= set(dice.random.sample(others, dice.random.randint(0, len(others))))
    return implementation, [gate for gate in GATES if gate in needed]


def _without_a_gate(random: Random, made: Json) -> Json:
    """Some problems meet a cluster that has a needed gate off, or an implementation that cannot do it."""
    if made["features"] and random.random() < DROPPED_GATE:
        made["features"].remove(random.choice(made["features"]))
    if random.random() < WRONG_IMPLEMENTATION:
        made["impl"] = random.choice(sorted(SUPPORTED))
    return made


def _in_order_of_pools(made: Json) -> None:
    """The stable implementation goes through pools as a Go map does: from anywhere, but in the order of their arrival.

    Arriving in the order of their names they can be gone through in that order, which is what other implementations do.
    """
    made["slices"].sort(key=lambda one: (one["spec"]["driver"], one["spec"]["pool"]["name"]))
