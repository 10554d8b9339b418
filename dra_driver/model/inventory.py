# SPDX-License-Identifier: Apache-2.0
"""The devices of this node at one moment, as one backend found them, or as all backends of the process found them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.api.resource_slice import CounterSet
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.slices import Problem


@dataclass(frozen=True, slots=True)
class Inventory:
    """All devices of one scan, in the backend's order. The scheduler tries the devices in this order.

    Two devices of one name are an error: it would not be clear which one a claim has.

    `scanned` is False before the first scan. Such an inventory is empty because nothing is known, so no decision may follow from
    it: no slice is written, no device removed, and no claim refused for good. `left_out` are the devices that the backend
    returned in a form that the driver cannot use, and hardware that the backend itself cannot offer, with the reason.

    `counter_sets` are the amounts that devices consume together (`Device.consumes_counters`), for example the memory slices of one
    GPU. `partition_type_attribute` names the string attribute that says what kind of partition a device is; without a domain it is
    the driver's own. `skip_node_operations` are the calls of the kubelet that these devices do not need ("*": none).

    Two fields are only in the inventory of several backends (`dra_driver.planning.combine`). `unanswered` are the backends that were
    not scanned successfully yet. `had` is the backend that had each name first; "" if this is not known.
    """

    devices: tuple[AllocatableDevice, ...] = ()
    scanned: bool = True
    left_out: tuple[Problem, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    partition_type_attribute: str = ""
    skip_node_operations: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    had: Mapping[DeviceName, str] = field(default_factory=dict, repr=False, compare=False)
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

    def may_exist(self, name: DeviceName) -> bool:
        """Whether a device that is not in this inventory may exist, because its backend has not answered yet."""
        if name in self.by_name or not self.unanswered:
            return False
        return self.had.get(name, "") in ("", *self.unanswered)

    def awaited(self) -> tuple[DeviceName, ...]:
        """The devices that were published before the start, and whose backend has not answered yet."""
        return tuple(name for name in self.had if self.may_exist(name))

    def missing(self) -> tuple[DeviceName, ...]:
        """The devices that were published or scanned before, and whose backend has answered without them. Those of a backend that an
        admin took away are not among them.
        """
        return tuple(
            name
            for name, backend in self.had.items()
            if backend and name not in self.by_name and not self.may_exist(name)
        )

    def config_kinds(self) -> tuple[ConfigKind, ...]:
        """The kinds of configuration of all devices, each once."""
        kinds = {id(device.config_kinds): device.config_kinds for device in self.devices}
        return tuple(dict.fromkeys(kind for some in kinds.values() for kind in some))
