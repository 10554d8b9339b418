# SPDX-License-Identifier: Apache-2.0
"""Which free devices would the scheduler choose, although a claim has their hardware? They get a taint.

After a new partitioning, or when MIG mode is switched, new devices are hardware that a claim still has under the name of an earlier
device. The state refuses them a second owner, so each pod that gets one fails. Counters tell the scheduler this if both devices are in
the slices and need more of a counter together than its set has.
"""

from collections.abc import Mapping

from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Piece
from dra_driver.model.quantity import Quantity
from dra_driver.planning.counter_rules import amount
from dra_driver.planning.slices import PoolPlan

Occupied = Mapping[DeviceName, frozenset[Piece]]
"""What claims occupy, by the device that they own."""


def unseen(inventory: Inventory, occupied: Occupied, plan: PoolPlan) -> frozenset[DeviceName]:
    """Return the published devices without owner that overlap with an owned one, where the counters of the plan do not exclude this."""
    owned: dict[str, dict[DeviceName, frozenset[Piece]]] = {}
    for name, pieces in occupied.items():
        for parent, _ in pieces:
            owned.setdefault(parent, {})[name] = pieces
    if not owned:
        return frozenset()
    published, sets = plan.devices, plan.counter_sets
    return frozenset(
        found.name
        for found in inventory.devices
        if found.name in published and found.name not in occupied
        if any(
            overlap(found.resource.pieces, pieces)
            and not _exclude(published[found.name], published.get(name), sets)
            for name, pieces in owned.get(found.resource.parent, {}).items()
        )
    )


def overlap(one: frozenset[Piece], other: frozenset[Piece]) -> bool:
    """Whether two devices have hardware in common."""
    return bool(one & other) or any(
        (parent, "") in whole for whole, some in ((one, other), (other, one)) for parent, _ in some
    )


def _exclude(one: Device, other: Device | None, sets: Mapping[str, CounterSet]) -> bool:
    """Whether both devices together need more of a counter than there is."""
    mine, others = _uses(one), _uses(other)
    return any(
        mine[key].nanos + others[key].nanos > amount((sets[key[0]].counters or {})[key[1]]).nanos
        for key in mine.keys() & others.keys()
    )


def _uses(device: Device | None) -> dict[tuple[str, str], Quantity]:
    """What a published device consumes, by counter set and counter; nothing for a device that is not published."""
    consumed = (device and device.consumes_counters) or ()
    return {
        (one.counter_set, name): amount(counter)
        for one in consumed
        for name, counter in (one.counters or {}).items()
    }
