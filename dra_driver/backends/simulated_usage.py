# SPDX-License-Identifier: Apache-2.0
"""What is measured on simulated devices: a curve of time, so that dashboards show something on a laptop.

A device that was set up for a claim has load, each device in another phase of the same curve; the others idle. The same time gives the
same values.
"""

import math

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.quantity import Quantity
from dra_driver.model.usage import CORRECTED, MEMORY_CLOCK, SM_CLOCK, UNCORRECTED, DeviceUsage

PERIOD_SECONDS = 600.0
_PHASE = 0.61803  # of the period, for each further device: no two of few devices are in step
_IDLE_WATTS, _LIMIT_WATTS = 70.0, 700.0
_IDLE_CELSIUS, _CELSIUS = 30.0, 45.0  # and so much more under full load
_IDLE_HERTZ, _FULL_HERTZ = 345e6, 1980e6
_MEMORY_HERTZ = 2619e6
_IDLE_MEMORY, _LOADED_MEMORY = 0.01, 0.6  # of the whole; the curve adds a third of the rest
_NANO = 10**9
_HOT = 0.9  # of the load: from here on the power limit slows the device down


def usage_of_device(
    device: AllocatableDevice, number: int, now: float, *, loaded: bool
) -> DeviceUsage:
    """Return the values of one device at `now`, in seconds. `number` is its place among the devices."""
    turn = now / PERIOD_SECONDS + number * _PHASE
    wave = (1.0 - math.cos(2.0 * math.pi * turn)) / 2.0
    load = 0.5 + wave / 2.0 if loaded else 0.0
    total = _memory(device)
    filled = _LOADED_MEMORY + (1.0 - _LOADED_MEMORY) * wave / 3.0 if loaded else _IDLE_MEMORY
    return DeviceUsage(
        utilization_ratio=load,
        memory_utilization_ratio=load * 0.6,
        memory_used_bytes=None if total is None else int(total * filled),
        memory_total_bytes=total,
        temperature_celsius=_IDLE_CELSIUS + _CELSIUS * load,
        power_watts=_IDLE_WATTS + (_LIMIT_WATTS - _IDLE_WATTS) * load,
        power_limit_watts=_LIMIT_WATTS,
        clocks_hertz={
            SM_CLOCK: _FULL_HERTZ if loaded else _IDLE_HERTZ,
            MEMORY_CLOCK: _MEMORY_HERTZ,
        },
        ecc_errors={CORRECTED: 0, UNCORRECTED: 0},
        throttled={"sw_power_cap": load > _HOT, "hw_thermal_slowdown": False},
    )


def _memory(device: AllocatableDevice) -> int | None:
    found = (device.api.capacity or {}).get("memory")
    return None if found is None else Quantity.parse(str(found.value)).nanos // _NANO
