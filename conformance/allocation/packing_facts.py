# SPDX-License-Identifier: Apache-2.0
"""Problems of packing: devices that look alike until something is taken from one of them.

Amounts have to be divided so that all fit, and first fit rarely does. Whoever leaves out devices that seem interchangeable has
to see here that they are not, or not any more.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from conformance.allocation.build import (
    DRIVER,
    amount,
    cel,
    claim,
    exactly,
    place,
    problem,
    shared,
    uses,
)
from conformance.allocation.counter_facts import GROUPS, PARTS, sets
from conformance.allocation.gated_facts import SHARES

Json = dict[str, Any]

STEPS = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
EACH = 12


def shares() -> Iterator[tuple[str, Json]]:
    """Amounts in shared devices; the first two are known to fool who looks at eligibility alone."""
    known = [((10, 15), (4, 5, 10, 6)), ((10, 10), (4, 5, 6, 5))]
    random = Random(1)
    while len(known) < EACH:
        sizes = [random.choice((8, 8, 10)) for _ in range(random.randint(2, 3))]
        amounts = [item for size in sizes for item in _divided(random, size)]
        random.shuffle(amounts)
        known.append((tuple(sizes), tuple(amounts)))
    for sizes, amounts in known:
        devices = [
            shared(f"dev-{at}", f"{size}Gi", STEPS, attributes={"size": {"int": size}})
            for at, size in enumerate(sizes)
        ]
        asked = [amount(f"r{at}", f"{wanted}Gi") for at, wanted in enumerate(amounts)]
        yield f"amounts {amounts} in {sizes}", problem(devices, claim(*asked), features=SHARES)


def parts() -> Iterator[tuple[str, Json]]:
    """Parts of several GPUs by size, each GPU a counter set of its own, some with groups."""
    random = Random(2)
    for number in range(EACH):
        gpus = random.randint(2, 3)
        devices = [_part(random, at, gpus) for at in range(random.randint(7, 11))]
        random.shuffle(devices)
        counters = [
            {"name": f"gpu-{gpu}", "counters": {"slots": {"value": str(random.choice((4, 5)))}}}
            for gpu in range(gpus)
        ]
        slices = [place("devices", devices, resourceSliceCount=2), sets("1")]
        slices[1]["spec"]["sharedCounters"] = counters
        sizes = [random.choice((1, 2, 2, 3)) for _ in range(random.randint(2, 4))]
        asked = [exactly(f"r{at}", selectors=[_of_size(size)]) for at, size in enumerate(sizes)]
        for features in (PARTS, GROUPS):
            state = "on" if features is GROUPS else "off"
            made = problem([], claim(*asked), slices=slices, features=features)
            yield f"parts {sizes} of {gpus} GPUs, {number}, groups {state}", made


def _part(random: Random, number: int, gpus: int) -> Json:
    size = random.choice((1, 2, 2, 3))
    groups = random.choice(((), ("r",), ("r", "b"), ("b",)))
    consumed = uses(str(size), f"gpu-{random.randrange(gpus)}", *groups)
    if number % 2:
        consumed[0].pop("compatibilityGroups", None)
    return {
        "name": f"part-{number}",
        "attributes": {"size": {"int": size}},
        "consumesCounters": consumed,
    }


def _of_size(size: int) -> Json:
    return cel(f'device.attributes["{DRIVER}"].size == {size}')


def _divided(random: Random, size: int) -> list[int]:
    """Amounts that fill the size exactly."""
    cut = random.randint(1, size - 1)
    return [cut, size - cut]


def facts() -> Iterator[Json]:
    """All of them."""
    for group in (shares, parts):
        for sentence, made in group():
            yield made | {"name": sentence}
