# SPDX-License-Identifier: Apache-2.0
"""Which devices may be listed beside each other? The kubelet gives out all units that are listed, so no hardware may be listed twice.

The scheduler sees counters, and gives a partition to a pod only while nobody has the whole device. The kubelet sees a list of units.
So of devices that are the same hardware, the driver lists the one that comes first, and none of the others. Two things say that devices are
the same hardware: the pieces of it that the backend names, and the counters that they consume.
"""

from collections.abc import Mapping

from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import Piece
from dra_driver.planning.counter_rules import amount


class Listed:
    """The hardware of the devices that are listed so far. `add` lists one more, if its hardware is free."""

    def __init__(self, sets: Mapping[str, CounterSet]) -> None:
        self._pieces: dict[str, dict[str, DeviceName]] = {}
        self._left = {
            (name, counter): amount(value).nanos
            for name, one in sets.items()
            for counter, value in (one.counters or {}).items()
        }

    def add(self, found: AllocatableDevice, published: Device) -> bool:
        """List the device and return True; or return False if a listed device has some of its hardware."""
        pieces = found.resource.pieces
        wanted = _consumed(published)
        if self.overlaps(pieces) or any(
            nanos > self._left[counter] for counter, nanos in wanted.items()
        ):
            return False
        for parent, part in pieces:
            self._pieces.setdefault(parent, {})[part] = found.name
        for counter, nanos in wanted.items():
            self._left[counter] -= nanos
        return True

    def overlaps(self, pieces: frozenset[Piece]) -> frozenset[DeviceName]:
        """The listed devices that have some of these pieces."""
        return frozenset(
            name
            for parent, part in pieces
            for taken, name in self._pieces.get(parent, {}).items()
            if not part or not taken or part == taken
        )


def _consumed(device: Device) -> dict[tuple[str, str], int]:
    """What the device takes of each counter, in billionths."""
    return {
        (one.counter_set, name): amount(counter).nanos
        for one in device.consumes_counters or ()
        for name, counter in (one.counters or {}).items()
    }
