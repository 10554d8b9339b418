# SPDX-License-Identifier: Apache-2.0
"""Would the API server accept this counter set, and what this device consumes?

Each rule looks at one object alone. Whether the counters of all devices add up is in `dra_driver.planning.counters`.

Source: validateCounterSet, validateDeviceCounterConsumption and their declarative rules in pkg/apis/resource of Kubernetes 1.37.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from dra_driver.model.api.resource_slice import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
)
from dra_driver.model.quantity import Quantity

COUNTERS_PER_SET = 32
CONSUMPTIONS_PER_DEVICE = 2
GROUPS_PER_CONSUMPTION = 2

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NO_LABEL = "is no DNS label of at most 63 characters"
_NOTHING = Quantity.parse("0")


def amount(counter: Counter) -> Quantity:
    """Return the value of a counter. Raises ValueError."""
    return _parsed(str(counter.value))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Quantity:
    return Quantity.parse(
        text
    )  # hundreds of partitions have the same few amounts, and each publication checks them all


def wrong_set(counter_set: CounterSet) -> Iterator[str]:
    """Yield what is wrong with a counter set."""
    if not _LABEL.fullmatch(counter_set.name):
        yield f"the name {counter_set.name[:80]!a} {_NO_LABEL}"
    yield from _wrong_counters(counter_set.counters or {}, COUNTERS_PER_SET)


def _wrong_counters(counters: Mapping[str, Counter], most: int) -> Iterator[str]:
    if not counters:
        yield "it has no counter"
    if len(counters) > most:
        yield f"more than {most} counters"
    for name, counter in counters.items():
        if not _LABEL.fullmatch(name):
            yield f"the counter name {name[:80]!a} {_NO_LABEL}"
        try:
            if amount(counter) < _NOTHING:
                yield f"counter {name}: {counter.value} is negative"
        except ValueError as error:
            yield f"counter {name}: {error}"


def wrong_consumption(device: Device) -> Iterator[str]:
    """Yield what is wrong with the consumesCounters of one device, without a look at the sets."""
    consumptions = device.consumes_counters or []
    if len(consumptions) > CONSUMPTIONS_PER_DEVICE:
        yield f"more than {CONSUMPTIONS_PER_DEVICE} counter sets"
    names = [one.counter_set for one in consumptions]
    for name, one in zip(names, consumptions, strict=True):
        path = f"[{name[:80]}]"
        if not _LABEL.fullmatch(name):
            yield f"the set name {name[:80]!a} {_NO_LABEL}"
        if names.count(name) > 1:
            yield f"{path}: it is there twice"
        yield from (
            f"{path}: {wrong}" for wrong in _wrong_counters(one.counters or {}, COUNTERS_PER_SET)
        )
        yield from (f"{path}.compatibilityGroups: {wrong}" for wrong in _wrong_groups(one))


def _wrong_groups(consumption: DeviceCounterConsumption) -> Iterator[str]:
    groups = consumption.compatibility_groups or []
    if len(groups) > GROUPS_PER_CONSUMPTION:
        yield f"more than {GROUPS_PER_CONSUMPTION} groups"
    for group in groups:
        if not _LABEL.fullmatch(group):
            yield f"{group[:80]!a} {_NO_LABEL}"
        if groups.count(group) > 1:
            yield f"{group!a} is there twice"
