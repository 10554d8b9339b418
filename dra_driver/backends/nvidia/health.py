# SPDX-License-Identifier: Apache-2.0
"""How healthy is each GPU and MIG device, and which taints does it get?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dra_driver.backends.nvidia.facts import HardwareEvent, Node
from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.health import HEALTHY, Health


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the driver says about one device: for `AllocatableDevice.health`, `api.taints` and `errors`.

    `errors` counts what the hardware reported since the driver started, by name ("xid-31").
    """

    health: Health = HEALTHY
    taints: tuple[DeviceTaint, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """What an admin can choose: see `options.py`. Temperatures are in degrees Celsius; 0 switches the limit off."""

    max_temperature: int = 90
    temperature_hysteresis: int = 5
    ignored_xids: frozenset[int] = frozenset()
    hold_seconds: float = 60.0


class HealthBook:
    """Remembers each device. `note` may be called by any thread; `judge` by one at a time. `clock` is monotonic seconds."""

    def __init__(self, rules: Rules, *, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock

    def note(self, event: HardwareEvent) -> None:
        """Remember an event. The next `judge` counts it."""

    def judge(self, node: Node) -> Mapping[str, Verdict]:
        """Return the verdicts by the UUID of each GPU and MIG device of this look; a GPU without UUID has its `pci_bus_id` instead."""
        return {
            uuid: Verdict()
            for gpu in node.gpus
            for uuid in (
                gpu.uuid or gpu.pci_bus_id,
                *(one.uuid for one in (gpu.mig.devices if gpu.mig else ())),
            )
        }
