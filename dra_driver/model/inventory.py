# SPDX-License-Identifier: Apache-2.0
"""What this node has, at one moment, from one backend."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.slices import Problem


@dataclass(frozen=True, slots=True)
class Inventory:
    """All devices of one scan, in the backend's order, which is the order the scheduler tries them in.

    `config_kinds` names opaque configuration kinds that this backend's devices understand besides the driver's own
    DeviceConfig. Construction refuses two devices of one name: nobody could tell which one a claim means.

    `scanned` is False as long as nobody has looked: then it says nothing about what is there, and nothing must be withdrawn,
    refused for good or published by it. `left_out` names devices that the backend told in a form that nothing can be done with.
    """

    devices: tuple[AllocatableDevice, ...] = ()
    config_kinds: frozenset[str] = frozenset()
    scanned: bool = True
    left_out: tuple[Problem, ...] = ()
    by_name: Mapping[DeviceName, AllocatableDevice] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {device.name: device for device in self.devices}
        if len(by_name) != len(self.devices):
            names = [device.name for device in self.devices]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(
                f"device names must be unique on a node; found twice: {', '.join(twice)}"
            )
        object.__setattr__(self, "by_name", by_name)
