# SPDX-License-Identifier: Apache-2.0
"""How are devices and counter sets divided into slices?

From Kubernetes 1.35 on, counter sets are in slices of their own, at most eight in one, and devices in other slices of the same pool.
In 1.33 and 1.34 a device must be in the slice of the counter sets that it consumes. So there all devices that are connected by
counter sets are in one slice, and devices beyond the limits of this slice cannot be published.

Source: validateResourceSliceSpec in pkg/apis/resource/validation of Kubernetes 1.33 to 1.37.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.slices import Problem, SliceContent

# The API allows 128 devices, but only 64 if one of them has taints, counters or a list. With 64 always, a new taint moves no device
# to another slice.
DEVICES_PER_SLICE = 64
SETS_PER_SLICE = 8
# Of 1.33 and 1.34.
OLD_DEVICES_PER_SLICE = 128
OLD_COUNTERS_PER_SLICE = 32
OLD_CONSUMED_PER_SLICE = 1024

_WITHHELD = "it is not published; Kubernetes 1.35 and later have room for it, or let the backend offer fewer partitions of one device"

Report = Callable[[Problem], None]
Sets = Mapping[str, CounterSet]


def apart(devices: Sequence[Device], sets: Sets) -> list[SliceContent]:
    """Return slices of devices, in their order, and then slices of the counter sets that these devices consume.

    Without devices there is one empty slice: it shows the cluster that the node has no devices.
    """
    used = {one.counter_set for device in devices for one in device.consumes_counters or ()}
    wanted = [one for name, one in sets.items() if name in used]
    return [
        *_cut(devices),
        *(
            SliceContent(shared_counters=wanted[start : start + SETS_PER_SLICE])
            for start in range(0, len(wanted), SETS_PER_SLICE)
        ),
    ]


def _cut(devices: Sequence[Device]) -> Iterator[SliceContent]:
    for start in range(0, max(len(devices), 1), DEVICES_PER_SLICE):
        yield SliceContent(devices=list(devices[start : start + DEVICES_PER_SLICE]))


class _Group(Struct):
    """Devices that must be in one slice, because counter sets connect them."""

    sets: list[str] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    consumed: int = 0


def together(devices: Sequence[Device], sets: Sets, report: Report) -> list[SliceContent]:
    """Return slices with the devices and the counter sets that they consume, as 1.33 and 1.34 need it.

    A device that has no room in the slice of its counter sets is reported and left out.
    """
    fitting = [group for group in _groups(devices) if _has_room(group, sets, report)]
    for group in fitting:
        _limit(group, report)
    return [_content(group, sets) for group in _packed(fitting, sets)]


def _groups(devices: Sequence[Device]) -> list[_Group]:
    """Return the groups in the order of their first devices. Devices without counters are one group each."""
    group_of: dict[str, _Group] = {}
    groups: list[_Group] = []
    for device in devices:
        names = [one.counter_set for one in device.consumes_counters or ()]
        joined = [group_of[name] for name in names if name in group_of]
        group = joined[0] if joined else _Group()
        if not joined:
            groups.append(group)
        for other in joined[1:]:
            if other is not group:
                group.sets += other.sets
                group.devices += other.devices
                groups.remove(other)
        group.sets += [name for name in names if name not in group.sets]
        group.devices.append(device)
        group_of |= dict.fromkeys(group.sets, group)
    return groups


def _has_room(group: _Group, sets: Sets, report: Report) -> bool:
    count = _counters(group, sets)
    if count <= OLD_COUNTERS_PER_SLICE:
        return True
    found = f"{count} counters that devices connect, and Kubernetes 1.34 allows {OLD_COUNTERS_PER_SLICE} in one slice"
    for device in group.devices:
        report(Problem(DeviceName(device.name), "consumesCounters", found, _WITHHELD))
    return False


def _limit(group: _Group, report: Report) -> None:
    """Leave out the devices beyond the limits."""
    kept: list[Device] = []
    for device in group.devices:
        consumed = sum(len(one.counters or ()) for one in device.consumes_counters or ())
        wrong = ""
        if len(kept) >= OLD_DEVICES_PER_SLICE:
            wrong = f"more than {OLD_DEVICES_PER_SLICE} devices consume counters that must be in one slice"
        elif group.consumed + consumed > OLD_CONSUMED_PER_SLICE:
            wrong = f"the devices of one slice consume more than {OLD_CONSUMED_PER_SLICE} counters"
        if wrong:
            report(Problem(DeviceName(device.name), "consumesCounters", wrong, _WITHHELD))
        else:
            kept.append(device)
            group.consumed += consumed
    group.devices = kept


def _packed(groups: Sequence[_Group], sets: Sets) -> list[_Group]:
    """Put groups together, in their order, while a slice has room; a large group has a slice of its own."""
    packed = [_Group()]
    for group in groups:
        last = packed[-1]
        room = (
            len(last.devices) + len(group.devices) <= DEVICES_PER_SLICE
            and _counters(last, sets) + _counters(group, sets) <= OLD_COUNTERS_PER_SLICE
            and last.consumed + group.consumed <= OLD_CONSUMED_PER_SLICE
        )
        if not room and last.devices:
            last = _Group()
            packed.append(last)
        last.sets += group.sets
        last.devices += group.devices
        last.consumed += group.consumed
    return packed


def _counters(group: _Group, sets: Sets) -> int:
    return sum(len(sets[name].counters or ()) for name in group.sets)


def _content(group: _Group, sets: Sets) -> SliceContent:
    return SliceContent(
        devices=group.devices, shared_counters=[sets[name] for name in group.sets] or None
    )
