# SPDX-License-Identifier: Apache-2.0
"""What the library measures on a GPU now, and how much memory its MIG devices use.

A function that this GPU or library does not have is not asked again, until the GPU is divided in another way: a GPU in MIG mode has no
utilization, for example. On MIG devices only the memory is asked: the library has the other values of their GPU only.
"""

from threading import Lock
from typing import Any

from msgspec import Struct, field

from dra_driver.backends.nvidia.facts import Memory, Mig, Usage
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


class _Known(Struct):
    """What a GPU and its MIG devices do not have: UUIDs with functions and their arguments, for as long as it is divided in this way."""

    mig: Mig | None
    without: set[tuple[object, ...]] = field(default_factory=set)


class UsageReader:
    """Reads usage, and keeps which functions each device does not have."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._mutex = Lock()
        self._known: dict[str, _Known] = {}  # by the UUID of the GPU

    def read(self, uuid: str, handle: Any, mig: Mig | None) -> Usage:
        """Return what is measured. `mig` is how the GPU is divided. Raises Failed if the GPU is lost."""
        asker = Asker(self._nvml, f"GPU {uuid}")
        with self._mutex:
            known = self._known.get(uuid)
            if known is None or known.mig != mig:
                known = self._known[uuid] = _Known(mig)
        without = known.without

        def ask(function: str, *arguments: object) -> Any:
            return _ask(asker, without, uuid, handle, function, *arguments)

        rates = ask("nvmlDeviceGetUtilizationRates")
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # its name before the driver 535
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Usage(
            gpu_percent=None if rates is None else rates.gpu,
            memory_percent=None if rates is None else rates.memory,
            memory=_memory(asker, without, uuid, handle),
            temperature=ask("nvmlDeviceGetTemperature", _GPU_SENSOR),
            power_milliwatts=ask("nvmlDeviceGetPowerUsage"),
            power_limit_milliwatts=ask("nvmlDeviceGetEnforcedPowerLimit"),
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", _SM_CLOCK),
            memory_clock_mhz=ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            clock_reasons=reasons,
            ecc_corrected=ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
            ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
            mig_memory=_of_migs(asker, known),
        )


def _of_migs(asker: Asker, known: _Known) -> dict[str, Memory]:
    found: dict[str, Memory] = {}
    for one in () if known.mig is None else known.mig.devices:
        handle = asker.ask("nvmlDeviceGetHandleByUUID", one.uuid)
        memory = None if handle is None else _memory(asker, known.without, one.uuid, handle)
        if memory is not None:
            found[one.uuid] = memory
    return found


def _memory(
    asker: Asker, without: set[tuple[object, ...]], uuid: str, handle: Any
) -> Memory | None:
    function = "nvmlDeviceGetMemoryInfo"
    found = _ask(asker, without, uuid, handle, function, _MEMORY_V2)
    if found is not None:
        return Memory(total=found.total, free=found.free, used=found.used, reserved=found.reserved)
    found = _ask(asker, without, uuid, handle, function)
    return None if found is None else Memory(total=found.total, free=found.free, used=found.used)


def _ask(
    asker: Asker,
    without: set[tuple[object, ...]],
    uuid: str,
    handle: Any,
    function: str,
    *arguments: object,
) -> Any:
    call = (uuid, function, *arguments)
    if call in without:
        return None
    found = asker.ask(function, handle, *arguments)
    if found is None and asker.errors[function] in _NEVER:
        without.add(call)
    return found
