# SPDX-License-Identifier: Apache-2.0
"""Counter sets and their consumers in few words: `counter_set("gpu-0", memory="80")`, `uses("gpu-0", memory="10")`."""

from typing import Any

from dra_driver.model.api.resource_slice import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
)
from dra_driver.model.device import AllocatableDevice, attributes


def _counters(values: dict[str, str]) -> dict[str, Counter]:
    return {name.replace("_", "-"): Counter(value=value) for name, value in values.items()}


def counter_set(name: str, **values: str) -> CounterSet:
    """A set; in the names of counters "_" is written for "-"."""
    return CounterSet(name=name, counters=_counters(values))


def uses(name: str, groups: list[str] | None = None, **values: str) -> DeviceCounterConsumption:
    """What a device consumes of one set."""
    return DeviceCounterConsumption(
        counter_set=name, counters=_counters(values), compatibility_groups=groups
    )


def part(
    name: str, *consumed: DeviceCounterConsumption, uuid: str = "", **said: Any
) -> AllocatableDevice:
    """A device that consumes this; `said` are its attributes."""
    return AllocatableDevice(
        Device(
            name=name,
            attributes=attributes(said) or None,
            consumes_counters=list(consumed) or None,
        ),
        uuid or f"uuid-of-{name}",
    )


def gpu(
    index: int, parts: int, *, memory: str = "80"
) -> tuple[CounterSet, list[AllocatableDevice]]:
    """A GPU whose whole device consumes everything, and that many partitions of an equal size."""
    name = f"gpu-{index}"
    whole = part(name, uses(name, memory=memory))
    return counter_set(name, memory=memory), [
        whole,
        *(part(f"{name}-part-{at}", uses(name, memory="1")) for at in range(parts)),
    ]
