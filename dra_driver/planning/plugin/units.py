# SPDX-License-Identifier: Apache-2.0
"""What are the units of a resource called? The kubelet keeps these IDs as long as a pod lives, so a device always gets the same ones.

An ID is the device's UUID: vendors' own plugins use it, and it stays if devices are numbered anew. A UUID that is missing, too long,
or not unique is replaced by the device's name. A share has `::` and its number after it, as in NVIDIA's plugin.
"""

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ShareId, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import LONGEST_UNIT_ID, Sharing, Unit

_MARK = "::"
# The mark may not be part of a UUID: the ID of one device would look like the share of another.
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]|:(?![:]|$))*")
_DIGEST_LENGTH = 8
_NOTHING: Mapping[str, str] = MappingProxyType({})
_ONE_GIB: Mapping[str, str] = MappingProxyType({"memory": "1Gi"})
_SHARES = {Sharing.REPLICAS: ("replica", _NOTHING), Sharing.MEMORY: ("memory", _ONE_GIB)}


class UnitName(NamedTuple):
    """The parts of an ID: its device, by UUID or by name, and the number of the share; None for a whole device."""

    device: str
    number: int | None


def unit_of(unit: str) -> UnitName:
    """Read an ID, also one that is not listed any more."""
    device, mark, number = unit.rpartition(_MARK)
    # An ID may be from another plugin, and Python refuses to read a number of many digits.
    is_number = len(number) <= LONGEST_UNIT_ID and number.isascii() and number.isdecimal()
    if mark and device and is_number:
        return UnitName(device, int(number))
    return UnitName(unit, None)


class UnitIds:
    """The IDs of the units of an inventory's devices."""

    def __init__(self, inventory: Inventory) -> None:
        self._devices = inventory.devices
        uuids = Counter(device.uuid for device in inventory.devices)
        # The name of another device is no ID: that device may need it.
        self._good = {
            device.name
            for device in inventory.devices
            if uuids[device.uuid] == 1
            and _SAFE.fullmatch(device.uuid)
            and (device.uuid not in inventory.by_name or device.uuid == device.name)
        }

    def whole(self, device: AllocatableDevice) -> Unit:
        """Return the only unit of a device that is not shared."""
        return Unit(UnitId(self._base(device, 0)), device.name)

    def shares(self, device: AllocatableDevice, sharing: Sharing, count: int) -> tuple[Unit, ...]:
        """Return so many shares of a device. `sharing` is REPLICAS or MEMORY."""
        word, amounts = _SHARES[sharing]
        base = self._base(device, len(f"{_MARK}{count - 1}"))
        return tuple(
            Unit(
                UnitId(f"{base}{_MARK}{number}"),
                device.name,
                ShareId(f"{word}-{number}"),
                amounts,
            )
            for number in range(count)
        )

    def device_of(self, unit: str) -> AllocatableDevice | None:
        """Return the device of an ID, even if its resource is shared in another way by now; None if the device is gone."""
        base = unit_of(unit).device
        return next((one for one in self._devices if self._is(one, base)), None)

    def _is(self, device: AllocatableDevice, base: str) -> bool:
        by_uuid = base == device.uuid and device.name in self._good
        return by_uuid or base == device.name or base.endswith(f"-{_digest(device.name)}")

    def _base(self, device: AllocatableDevice, suffix: int) -> str:
        room = LONGEST_UNIT_ID - suffix
        if device.name in self._good and len(device.uuid) <= room:
            return device.uuid
        if len(device.name) <= room:
            return device.name
        return f"{device.name[: room - _DIGEST_LENGTH - 1]}-{_digest(device.name)}"


def _digest(name: str) -> str:
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
