# SPDX-License-Identifier: Apache-2.0
"""One call of the library after the other, where a call that fails costs one fact."""

from typing import Any

from dra_driver.backends.nvidia.hardware.nvml import (
    GPU_IS_LOST,
    GPU_NOT_FOUND,
    REOPEN,
    UNKNOWN,
    failed,
)

_FATAL = REOPEN | {GPU_IS_LOST, GPU_NOT_FOUND}


class Asker:
    """Calls functions for one object, and keeps the numbers of the errors by the function's name."""

    def __init__(self, nvml: Any, what: str) -> None:
        self.errors: dict[str, int] = {}
        self._nvml = nvml
        self._what = what

    def ask(self, function: str, *arguments: Any, fact: str = "") -> Any:
        """Call, and return the result; None if it failed. Raises Failed if no further call can succeed.

        `fact` is the name in `errors`, where another function asks for the same fact in another version of the library.
        """
        try:
            result = getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in _FATAL:
                raise failed(function, error.value, self._what) from error
            self.errors[fact or function] = error.value
            return None
        except UnicodeDecodeError:  # pynvml decodes texts, and the library's are not always any
            self.errors[fact or function] = UNKNOWN
            return None
        self.errors.pop(fact or function, None)
        return result

    def must(self, function: str, *arguments: Any) -> Any:
        """Call, and return the result. Raises Failed."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            raise failed(function, error.value, self._what) from error


def text(value: object) -> str:
    """A text of the library, as pynvml gives it."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
