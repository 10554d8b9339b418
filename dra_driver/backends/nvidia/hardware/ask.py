# SPDX-License-Identifier: Apache-2.0
"""One call of the library after the other, where a call that fails costs one fact."""

from typing import Any

from dra_driver.backends.nvidia.hardware.nvml import (
    GPU_IS_LOST,
    GPU_NOT_FOUND,
    REOPEN,
    failed,
)

_FATAL = REOPEN | {GPU_IS_LOST, GPU_NOT_FOUND}
# The symbols that pynvml's functions call, where their names differ.
_SYMBOLS = {
    "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetGpuInstancePossiblePlacements": "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
}


class Asker:
    """Calls functions for one object, and keeps the numbers of the errors by the symbol's name."""

    def __init__(self, nvml: Any, what: str) -> None:
        self.errors: dict[str, int] = {}
        self._nvml = nvml
        self._what = what

    def ask(self, function: str, *arguments: Any, symbol: str = "") -> Any:
        """Call, and return the result; None if it failed. Raises Failed if no further call can succeed."""
        symbol = symbol or _SYMBOLS.get(function, function)
        try:
            result = getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in _FATAL:
                raise failed(symbol, error.value, self._what) from error
            self.errors[symbol] = error.value
            return None
        self.errors.pop(symbol, None)
        return result

    def must(self, function: str, *arguments: Any) -> Any:
        """Call, and return the result. Raises Failed."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            symbol = _SYMBOLS.get(function, function)
            raise failed(symbol, error.value, self._what) from error


def text(value: object) -> str:
    """A text of the library, as pynvml gives it."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
