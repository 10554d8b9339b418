# SPDX-License-Identifier: Apache-2.0
"""What the library measures on a GPU now, and how much memory its MIG devices use.

A function that this GPU or library does not have is not asked again. On MIG devices only the memory is asked: the library has the other
values of their GPU only.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any

from dra_driver.backends.nvidia.facts import Memory, Usage
from dra_driver.backends.nvidia.hardware.ask import Asker
from dra_driver.backends.nvidia.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    OTHER_VERSION,
)

_NEVER = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, OTHER_VERSION})
_GPU_SENSOR = 0
_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_VOLATILE = 0  # nvmlEccCounterType_t: since the driver was loaded
_MEMORY_V2 = 0x02000028


class UsageReader:
    """Reads usage, and keeps which functions each device does not have."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._mutex = Lock()
        self._without: dict[str, set[tuple[object, ...]]] = {}  # by UUID: functions and arguments

    def read(self, uuid: str, handle: Any, migs: Sequence[str]) -> Usage:
        """Return what is measured. `migs` are the UUIDs of its MIG devices. Raises Failed if the GPU is lost."""
        asker = Asker(self._nvml, f"GPU {uuid}")

        def ask(function: str, *arguments: object) -> Any:
            return self._ask(asker, uuid, handle, (function, *arguments))

        rates = ask("nvmlDeviceGetUtilizationRates")
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # its name before the driver 535
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Usage(
            gpu_percent=None if rates is None else rates.gpu,
            memory_percent=None if rates is None else rates.memory,
            memory=self._memory(asker, uuid, handle),
            temperature=ask("nvmlDeviceGetTemperature", _GPU_SENSOR),
            power_milliwatts=ask("nvmlDeviceGetPowerUsage"),
            power_limit_milliwatts=ask("nvmlDeviceGetEnforcedPowerLimit"),
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", _SM_CLOCK),
            memory_clock_mhz=ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            clock_reasons=reasons,
            ecc_corrected=ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
            ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
            mig_memory=self._of_migs(asker, migs),
        )

    def _of_migs(self, asker: Asker, migs: Sequence[str]) -> dict[str, Memory]:
        found: dict[str, Memory] = {}
        for uuid in migs:
            handle = asker.ask("nvmlDeviceGetHandleByUUID", uuid)
            memory = None if handle is None else self._memory(asker, uuid, handle)
            if memory is not None:
                found[uuid] = memory
        return found

    def _memory(self, asker: Asker, uuid: str, handle: Any) -> Memory | None:
        function = "nvmlDeviceGetMemoryInfo"
        found = self._ask(asker, uuid, handle, (function, _MEMORY_V2))
        if found is None:
            found = self._ask(asker, uuid, handle, (function,))
        return None if found is None else Memory(total=found.total, used=found.used)

    def _ask(self, asker: Asker, uuid: str, handle: Any, call: tuple[object, ...]) -> Any:
        with self._mutex:
            without = self._without.setdefault(uuid, set())
        if call in without:
            return None
        function, *arguments = call
        found = asker.ask(str(function), handle, *arguments)
        if found is None and asker.errors[str(function)] in _NEVER:
            without.add(call)
        return found
