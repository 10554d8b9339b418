# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's library measures, for the driver's metrics: one request for each GPU, and patience with those that hang.

A call that hangs costs the hardware process and its deadline, for everybody. So a GPU that did not answer is asked less and less often and
after all others, one that hung twice in a row not before `HUNG_AGAIN_SECONDS` are over, and after one that hung nobody is asked for a while.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from math import inf

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.facts import Memory, Usage
from dra_driver.errors import DriverError
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.usage import (
    CORRECTED,
    MEMORY_CLOCK,
    SM_CLOCK,
    UNCORRECTED,
    DeviceUsage,
)

AGAIN_SECONDS = (30.0, 60.0, 120.0, 300.0)
"""After the first, second, … failure in a row: how long a GPU is not asked."""
HUNG_SECONDS = 5.0
"""A GPU that fails after so long has hung."""
HUNG_AGAIN_SECONDS = 6 * 3600.0
"""How long a GPU is not asked that has hung twice in a row."""
REASONS: Mapping[str, int] = {
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""nvmlClocksEventReasons. An idle GPU (0x1) is not slowed down by anything."""
_PERCENT, _MILLI, _MEGA = 100.0, 1000.0, 1e6


class _Failures(Struct, frozen=True):
    """How often a GPU failed in a row, and until when it is not asked."""

    times: int
    until: float


class UsageOfGpus:
    """Asks for the usage of all GPUs. Only one thread calls it."""

    def __init__(
        self,
        hardware: Hardware,
        *,
        clock: Callable[[], float] = time.monotonic,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._hardware = hardware
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._failures: dict[str, _Failures] = {}
        self._quiet_until = -inf

    def read(self, devices: Iterable[AllocatableDevice]) -> Mapping[DeviceName, DeviceUsage]:
        """Return the usage of these devices; those of a GPU that does not answer are left out."""
        by_gpu: dict[str, list[AllocatableDevice]] = {}
        for device in devices:
            by_gpu.setdefault(device.resource.parent, []).append(device)
        self._failures = {uuid: one for uuid, one in self._failures.items() if uuid in by_gpu}
        found: dict[DeviceName, DeviceUsage] = {}
        if self._clock() < self._quiet_until:
            return found
        for uuid in sorted(by_gpu, key=lambda uuid: uuid in self._failures):
            begun = self._clock()
            failures = self._failures.get(uuid)
            if failures is not None and begun < failures.until:
                continue
            try:
                usage = self._hardware.usage(uuid)
            except DriverError as error:
                hung = self._clock() - begun >= HUNG_SECONDS
                self._fails(uuid, error, hung=hung)
                if hung:
                    self._quiet_until = self._clock() + AGAIN_SECONDS[0]
                    break
                continue
            self._failures.pop(uuid, None)
            found |= {device.name: _of(device, usage) for device in by_gpu[uuid]}
        return found

    def _fails(self, uuid: str, error: DriverError, *, hung: bool) -> None:
        times = self._failures[uuid].times + 1 if uuid in self._failures else 1
        seconds = AGAIN_SECONDS[min(times, len(AGAIN_SECONDS)) - 1]
        if hung and times > 1:
            seconds = HUNG_AGAIN_SECONDS
        if times == 1 or seconds == HUNG_AGAIN_SECONDS:
            self._log.warning(
                "usage_not_measured",
                gpu=uuid,
                hung=hung,
                error=str(error),
                again_in_seconds=seconds,
            )
        self._failures[uuid] = _Failures(times, self._clock() + seconds)


def _of(device: AllocatableDevice, usage: Usage) -> DeviceUsage:
    return _of_partition(device, usage) if device.resource.parts else _of_gpu(usage)


def _of_gpu(usage: Usage) -> DeviceUsage:
    errors = {CORRECTED: usage.ecc_corrected, UNCORRECTED: usage.ecc_uncorrected}
    return DeviceUsage(
        utilization_ratio=_divided(usage.gpu_percent, _PERCENT),
        memory_utilization_ratio=_divided(usage.memory_percent, _PERCENT),
        memory_used_bytes=_used(usage.memory),
        memory_total_bytes=_total(usage.memory),
        memory_reserved_bytes=_reserved(usage.memory),
        temperature_celsius=usage.temperature,
        power_watts=_divided(usage.power_milliwatts, _MILLI),
        power_limit_watts=_divided(usage.power_limit_milliwatts, _MILLI),
        clocks_hertz=_clocks(usage),
        ecc_errors={kind: count for kind, count in errors.items() if count is not None},
        throttled=_throttled(usage),
    )


def _of_partition(device: AllocatableDevice, usage: Usage) -> DeviceUsage:
    """The memory is its own; temperature and clocks are those of its GPU. Load, power and errors are known of the whole GPU only."""
    memory = usage.mig_memory.get(device.uuid)
    return DeviceUsage(
        memory_used_bytes=_used(memory),
        memory_total_bytes=_total(memory),
        memory_reserved_bytes=_reserved(memory),
        temperature_celsius=usage.temperature,
        clocks_hertz=_clocks(usage),
        throttled=_throttled(usage),
    )


def _clocks(usage: Usage) -> Mapping[str, float]:
    clocks = {SM_CLOCK: usage.sm_clock_mhz, MEMORY_CLOCK: usage.memory_clock_mhz}
    return {name: mhz * _MEGA for name, mhz in clocks.items() if mhz is not None}


def _throttled(usage: Usage) -> Mapping[str, bool]:
    reasons = usage.clock_reasons
    if reasons is None:
        return {}
    return {name: bool(reasons & bit) for name, bit in REASONS.items()}


def _divided(value: int | None, by: float) -> float | None:
    return None if value is None else value / by


def _used(memory: Memory | None) -> int | None:
    return None if memory is None else memory.used


def _total(memory: Memory | None) -> int | None:
    return None if memory is None else memory.total


def _reserved(memory: Memory | None) -> int | None:
    return None if memory is None else memory.reserved
