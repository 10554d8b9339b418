# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA library in this process: which file, when it is opened, and what its errors mean.

The file is loaded by its absolute path below the driver root, before pynvml asks for "libnvidia-ml.so.1": the loader then finds it by
its SONAME, without a search path. A library cannot be unloaded safely, so another file
means another process (`Replaced`), and the end of the process is what closes it.
"""

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import Struct

from dra_driver.backends.nvidia.facts import Installation
from dra_driver.backends.nvidia.hardware.wire import Failure

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 1, 2, 3, 4, 6
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, MISMATCH, OTHER_VERSION, GPU_NOT_FOUND, UNKNOWN = 15, 18, 25, 28, 999

REOPEN = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, MISMATCH})
"""After these the library answers nothing more: another process opens it anew."""

_NO_GPUS = 1  # NVML_INIT_FLAG_NO_GPUS: also succeeds while all GPUs belong to another driver
_MEANINGS: Mapping[int, tuple[str, str]] = {
    UNINITIALIZED: ("the library was closed", "it is opened again at the next look"),
    NOT_SUPPORTED: ("this GPU or driver cannot do that", "leave out what asks for it"),
    NO_PERMISSION: (
        "the device files may not be opened",
        "let the container `hardware` run privileged, or the driver as root",
    ),
    8: ("a power cable is missing", "check the power connectors of the GPU"),
    DRIVER_NOT_LOADED: (
        "the kernel module nvidia is not loaded",
        "load it (`modprobe nvidia`), or wait for the GPU operator; this is tried again",
    ),
    TIMEOUT: ("the kernel driver did not answer in time", "see `dmesg` of the node"),
    LIBRARY_NOT_FOUND: (
        "there is no libnvidia-ml.so.1",
        "install NVIDIA's driver, or name its place (driverRoot)",
    ),
    FUNCTION_NOT_FOUND: ("the library is too old for this", "install a newer driver of NVIDIA"),
    GPU_IS_LOST: (
        "the GPU has fallen off the bus",
        "see `dmesg` of the node (Xid 79), and restart the node; if it comes back, replace the GPU",
    ),
    16: ("the GPU must be reset", "end what runs on it, then `nvidia-smi --gpu-reset`"),
    MISMATCH: (
        "the library and the kernel module are of different versions",
        "finish the upgrade: load the module of the installed version, or restart the node",
    ),
    19: ("the GPU is in use", "end what runs on it"),
    23: ("the kernel driver has no memory or resources left", "see `dmesg` of the node"),
    GPU_NOT_FOUND: ("the GPU is not there any more", "see `dmesg` of the node"),
    UNKNOWN: (
        "the library does not say why; mostly the device files of /dev cannot be opened, or the driver is being replaced",
        "see `dmesg` of the node; restart the container `hardware` if `nvidia-smi` works on the node",
    ),
}


class Failed(Exception):
    """A request cannot be answered."""

    def __init__(self, message: str, *, code: int | None = None, retry: bool = False) -> None:
        super().__init__(message)
        self.failure = Failure(message, code, retry)


class Replaced(Exception):
    """The library's file or the kernel module was replaced: only another process can open the new one."""


class Found(Struct, frozen=True):
    """What was found on the node: the installation, and the library's path as this process sees it (empty: there is none)."""

    installation: Installation
    library: str = ""


def failed(function: str, code: int, what: str) -> Failed:
    """The error of a call, as a sentence."""
    meaning, step = _MEANINGS.get(
        code, ("this code is not known", "look it up in nvml.h, and see `dmesg` of the node")
    )
    return Failed(
        f"{function} for {what} failed with NVML error {code}: {meaning}; {step}",
        code=code,
        retry=code not in {INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION},
    )


class Library:
    """The open library. `nvml` is the module pynvml, or what tests put in its place."""

    def __init__(
        self,
        nvml: Any,
        find: Callable[[], Found],
        *,
        load: Callable[[str], object] | None = None,
    ) -> None:
        self._nvml = nvml
        self._find = find
        self._load = load or _load
        self._mutex = Lock()
        self._is_open = False
        self._loaded: tuple[object, ...] | None = None  # which file, and of which kernel module

    def look(self) -> Found:
        """Look which installation is there. Raises Replaced if it is another one than that in use."""
        found = self._find()
        with self._mutex:
            if self._loaded is not None and self._identity(found) != self._loaded:
                raise Replaced
        return found

    def open(self, found: Found) -> Any:
        """Return the library's functions; open it first if that is necessary. Raises Failed."""
        with self._mutex:
            if not self._is_open:
                self._open(found)
            return self._nvml

    def _open(self, found: Found) -> None:
        if not found.installation.kernel_version:
            # To open the library would make it load the module, perhaps while somebody replaces it.
            raise _unopened(found, DRIVER_NOT_LOADED)
        if not found.library:
            raise _unopened(found, LIBRARY_NOT_FOUND)
        if self._loaded is None:
            try:
                self._load(found.library)
            except OSError as error:
                raise Failed(
                    f"the NVIDIA library {found.library} cannot be loaded: {error}; reinstall NVIDIA's driver, "
                    "or install it for this processor",
                    code=LIBRARY_NOT_FOUND,
                    retry=True,
                ) from error
            self._loaded = self._identity(found)
        try:
            self._nvml.nvmlInitWithFlags(_NO_GPUS)
        except self._nvml.NVMLError as error:
            raise failed("nvmlInit", error.value, _versions(found)) from error
        self._is_open = True

    def _identity(self, found: Found) -> tuple[object, ...]:
        kernel = found.installation.kernel_version
        try:
            status = Path(found.library).stat()
        except OSError:
            return (found.library, kernel)
        return (found.library, kernel, status.st_dev, status.st_ino)


def _load(path: str) -> object:
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _unopened(found: Found, code: int) -> Failed:
    """Half an installation. What was read of it says more than the number."""
    problems = found.installation.problems
    if problems:
        why = "; ".join(problems)
    elif code == LIBRARY_NOT_FOUND:
        why = (
            f"the driver root {found.installation.driver_root or '/'} has libraries of NVIDIA's driver, but no libnvidia-ml.so.1: "
            "install the driver's package that has it, or name another driver root (driverRoot)"
        )
    else:
        why = "; ".join(_MEANINGS[code])
    return Failed(f"the NVIDIA library is not opened: {why}", code=code, retry=True)


def _versions(found: Found) -> str:
    return f"the library {found.library} and the kernel module {found.installation.kernel_version}"
