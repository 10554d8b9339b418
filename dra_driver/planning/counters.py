# SPDX-License-Identifier: Apache-2.0
"""Do the counters of an inventory add up?

Partitions of one GPU consume the same counters, and so exclude each other. The scheduler refuses a whole pool if one device names a
counter set or a counter that the pool does not have. So a bad set costs itself and the devices that consume it, and a device that
consumes wrongly costs only itself.

Source: checkSharedCounters and validation.go of k8s.io/dynamic-resource-allocation/resourceslice 0.37.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.slices import Problem
from dra_driver.planning.counter_rules import amount, wrong_set
from dra_driver.planning.device_values import typed

PARENT_UUID = "parentUUID"
"""The attribute of a partition that has the UUID of the whole device."""

_SET_LEFT_OUT = "the set and the devices that consume it were left out, all others are published; correct it in the backend"
_DEVICE_LEFT_OUT = "the device was left out, all others are published; correct it in the backend"

Sets = Mapping[str, CounterSet]
Report = Callable[[Problem], None]


def good_sets(found: object, report: Report) -> dict[str, CounterSet]:
    """Return the good counter sets by name. A name that two sets have is reported, and counts for neither of them.

    A backend is other people's code, so `found` may be of any type.
    """
    if not isinstance(found, tuple | list):
        wrong = f"a {type(found).__name__} is no tuple of CounterSets"
        report(Problem(DeviceName("counter_sets"), "type", wrong, _SET_LEFT_OUT, "field"))
        return {}
    good: dict[str, CounterSet] = {}
    names = [str(getattr(entry, "name", "")) for entry in found]
    for name, entry in zip(names, found, strict=True):
        converted, wrong = typed(entry, CounterSet)
        if converted is None:
            wrong = wrong or "it is None"
        wrong = wrong or next(wrong_set(converted), "")
        if not wrong and names.count(name) > 1:
            wrong = "two sets have this name"
        if wrong:
            report(Problem(DeviceName(name), "counters", wrong, _SET_LEFT_OUT, "counter set"))
        else:
            good[name] = converted
    return good


def names_known(device: Device, sets: Sets) -> bool:
    """Whether all counter sets and counters that the device consumes exist."""
    return next(_unknown(device, sets), None) is None


def _unknown(device: Device, sets: Sets) -> Iterator[str]:
    for one in device.consumes_counters or ():
        there = sets.get(one.counter_set)
        if there is None:
            yield f"[{one.counter_set}]: there is no good counter set of this name"
        else:
            for name in sorted((one.counters or {}).keys() - (there.counters or {}).keys()):
                yield f"[{one.counter_set}]: the set has no counter {name!a}"


def _beyond(device: Device, sets: Sets) -> Iterator[str]:
    for one in device.consumes_counters or ():
        there = sets[one.counter_set].counters or {}
        for name, counter in (one.counters or {}).items():
            if amount(counter) > amount(there[name]):
                found = f"{counter.value} is more than the {there[name].value} of the set"
                yield f"[{one.counter_set}].{name}: {found}"


def adding_up(
    devices: Iterable[tuple[AllocatableDevice, Device]], sets: Sets, report: Report
) -> list[Device]:
    """Return the devices whose counters add up. Each pair is a device as it was found, and as it shall be published.

    A whole device must consume counters if its partitions do: otherwise the scheduler would give both away.
    """
    pairs = list(devices)
    parents = {_parent(device) for _, device in pairs if device.consumes_counters} - {None}
    good: list[Device] = []
    for found, device in pairs:
        wrong = next(_unknown(device, sets), "") or next(_beyond(device, sets), "")
        if not device.consumes_counters and found.uuid in parents:
            wrong = "its partitions consume counters, so the whole device must consume them too"
        if wrong:
            report(Problem(found.name, "consumesCounters", wrong, _DEVICE_LEFT_OUT))
        else:
            good.append(device)
    return good


def _parent(device: Device) -> str | None:
    """The UUID of the whole device, if the device is a partition that says so."""
    for name, attribute in (device.attributes or {}).items():
        if name.rpartition("/")[2] == PARENT_UUID:
            return attribute.string_value
    return None
