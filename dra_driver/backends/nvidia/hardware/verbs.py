# SPDX-License-Identifier: Apache-2.0
"""What the hardware process answers to each request."""

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from dra_driver.backends.nvidia.facts import Gpu, MigProfile, Process, Usage
from dra_driver.backends.nvidia.hardware import pci
from dra_driver.backends.nvidia.hardware.ask import Asker
from dra_driver.backends.nvidia.hardware.events import EventSet
from dra_driver.backends.nvidia.hardware.nvml import (
    GPU_NOT_FOUND,
    REOPEN,
    UNKNOWN,
    Failed,
    Found,
    Library,
)
from dra_driver.backends.nvidia.hardware.open_files import computing_on
from dra_driver.backends.nvidia.hardware.scan import Scanner
from dra_driver.backends.nvidia.hardware.usage import UsageReader
from dra_driver.backends.nvidia.hardware.wire import Happened, Listing, Request

COMPUTE_MODES = range(4)  # default, exclusive thread (not any more), prohibited, exclusive process
TIME_SLICES = range(4)  # default, short, medium, long
LOST, LET_GO = 0, 75
"""Exit codes: the library has lost its driver; somebody asked for it to be closed."""
FIRST_LOOK_SECONDS = 20.0
"""How long the stream of events waits until a look has read a GPU. Less than its deadline."""
_POLL_SECONDS = 0.05
_MIG_CHANGED = 0x100
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,90}")
_LISTS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses_v3",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}
_NO_INSTANCE = 0xFFFFFFFF
_CONTEXT = 64 * 2**20  # bytes: what a process needs on a GPU at least, before it does anything
_T = TypeVar("_T")


class Verbs:
    """The verbs, on one open library. Each may be called by several threads at a time."""

    def __init__(
        self, nvml: Any, library: Library, *, host_root: str, closed_until: float = 0.0
    ) -> None:
        self.ends: int | None = None  # the exit code, if the process has to end after this answer
        self._closed_until = closed_until
        self._nvml = nvml
        self._library = library
        self._host_root = host_root
        self._sysfs = Path(host_root, "sys")
        self._proc = Path(host_root, "proc")
        self._usages = UsageReader(nvml)
        self._mutex = Lock()
        self._scanner: Scanner | None = None
        self._found: Found | None = None

    def table(self) -> Mapping[str, Callable[[Request], object]]:
        """The verbs by name; `events` is a stream, and has its own method."""
        return {
            "ping": lambda _: None,
            "node": lambda _: self.node(),
            "gpu": lambda request: self.gpu(request.index),
            "mig_profiles": lambda request: self.mig_profiles(request.index),
            "processes": self.processes,
            "usage": self.usage,
            "set_compute_mode": self.set_compute_mode,
            "set_time_slice": self.set_time_slice,
            "let_go": lambda _: self.let_go(),
        }

    def node(self) -> Listing:
        """Return everything but the facts of each GPU. Raises Replaced."""
        found = self._library.look()
        self._found = found
        listed = pci.gpus(self._sysfs)
        try:
            scanner = self._current(found)
            count, system = scanner.count(), scanner.system()
        except Failed as failure:
            self._after(failure, REOPEN | {UNKNOWN})
            return Listing(
                pci=listed, installation=found.installation, problem=failure.failure.message
            )
        return Listing(system=system, count=count, pci=listed, installation=found.installation)

    def gpu(self, index: int) -> Gpu:
        """Return the facts of a GPU."""
        return self._scan(lambda scanner: scanner.gpu(index))

    def mig_profiles(self, index: int) -> tuple[MigProfile, ...]:
        """Return the kinds of GPU instances of a board."""
        return self._scan(lambda scanner: scanner.mig_profiles(index))

    def processes(self, request: Request) -> tuple[Process, ...]:
        """Return the processes on a GPU or MIG device."""
        return self._scan(lambda scanner: self._processes(scanner, request))

    def usage(self, request: Request) -> Usage:
        """Return what is measured on a GPU, and the memory of its MIG devices."""
        return self._scan(lambda scanner: self._read_usage(scanner, request))

    def set_compute_mode(self, request: Request) -> None:
        """Set the compute mode of a GPU or MIG device."""
        _in_range(request.value, COMPUTE_MODES, "compute mode")
        self._scan(lambda scanner: self._set_compute_mode(scanner, request))

    def set_time_slice(self, request: Request) -> None:
        """Set the time slice of a GPU."""
        _in_range(request.value, TIME_SLICES, "time slice")
        self._scan(lambda scanner: _index(scanner, request))
        # Only few nodes need it, and it brings modules along that cost memory.
        commands = import_module("dra_driver.backends.nvidia.hardware.commands")
        found = self._found or self._library.look()
        commands.set_time_slice(found, self._host_root, request.uuid, request.value)

    def let_go(self) -> None:
        """End the process: then it has nothing open. To shut the library down while another thread waits in it is not safe."""
        self.ends = LET_GO

    def events(self) -> Generator[Happened | None, None, None]:
        """Yield what happens, and None from time to time. Raises Failed when there can be no more events.

        Only GPUs that a look has read are listened to: to open one that hangs would hold up all others, with the library's lock. And only
        a look opens the library, so that it stays closed after `let_go`.
        """
        until = time.monotonic() + FIRST_LOOK_SECONDS
        while (scanner := self._scanner) is None or not scanner.read():
            if time.monotonic() >= until:
                raise Failed(
                    "no GPU has been read yet; the next look opens the library", retry=True
                )
            time.sleep(_POLL_SECONDS)
        waiting = EventSet(self._nvml, scanner.read())
        yield None
        try:
            for event in waiting.wait():
                waiting.add(scanner.read())
                if event is not None and event.type & _MIG_CHANGED:
                    scanner.forget_migs()
                yield None if event is None else Happened(event)
        except Failed as failure:
            self._after(failure, REOPEN | {UNKNOWN})
            raise
        finally:
            waiting.close()

    def _scan(self, ask: Callable[[Scanner], _T]) -> _T:
        try:
            return ask(self._current(self._found or self._library.look()))
        except Failed as failure:
            self._after(failure, REOPEN)
            raise

    def _current(self, found: Found) -> Scanner:
        left = self._closed_until - time.monotonic()
        if left > 0:
            raise Failed(
                f"the NVIDIA library stays closed for {left:.0f} s more, because `dra-driver hardware --let-go` asked for it; if the "
                "kernel driver is replaced, do it now",
                retry=True,
            )
        nvml = self._library.open(found)
        with self._mutex:
            if self._scanner is None:
                self._scanner = Scanner(nvml, sysfs=self._sysfs, proc=self._proc)
            return self._scanner

    def _after(self, failure: Failed, codes: frozenset[int]) -> None:
        """A library that has lost its kernel driver is not used again: other threads may be inside it."""
        if self._scanner is not None and failure.failure.code in codes:
            self.ends = LOST

    def _processes(self, scanner: Scanner, request: Request) -> tuple[Process, ...]:
        handle = self._handle(scanner, request)
        asker = Asker(self._nvml, f"GPU {request.uuid}")
        found: list[Process] = []
        for kind, function in _LISTS.items():
            # Without the list of compute processes nothing can be said; the others are missing in old libraries.
            ask = asker.must if kind == "compute" else asker.ask
            found += [_process(one, kind) for one in ask(function, handle) or ()]
        listed = {one.pid for one in found}
        found += [one for one in self._unlisted(scanner, request) if one.pid not in listed]
        return tuple(sorted(found, key=lambda process: (process.pid, process.kind)))

    def _read_usage(self, scanner: Scanner, request: Request) -> Usage:
        index = _index(scanner, request)
        return self._usages.read(request.uuid, scanner.handle(index), scanner.mig(index))

    def _unlisted(self, scanner: Scanner, request: Request) -> Iterator[Process]:
        """The processes of other PID namespaces, which the library does not list.

        A program of CUDA opens each GPU that it may, also those that it does not use. On these it has no memory.
        """
        gpu = scanner.gpu(_index(scanner, request))
        found = self._found or self._library.look()
        unused = gpu.memory is not None and gpu.memory.used < _CONTEXT
        if gpu.minor is None or unused:
            return
        migs = gpu.mig.devices if gpu.mig else ()
        wanted = [
            (one.gpu_instance, one.compute_instance) for one in migs if one.uuid == request.uuid
        ]
        for one in computing_on(self._proc, found.installation, gpu.minor):
            if not wanted or (one.gpu_instance, one.compute_instance) in wanted:
                yield one

    def _set_compute_mode(self, scanner: Scanner, request: Request) -> None:
        handle = self._handle(scanner, request)
        asker = Asker(self._nvml, f"GPU {request.uuid}")
        asker.must("nvmlDeviceSetComputeMode", handle, request.value)
        if not request.uuid.startswith("MIG-"):
            scanner.set_mode(_index(scanner, request), request.value)

    def _handle(self, scanner: Scanner, request: Request) -> Any:
        handle = scanner.handle(_index(scanner, request))
        if request.uuid.startswith("MIG-"):
            return Asker(self._nvml, request.uuid).must("nvmlDeviceGetHandleByUUID", request.uuid)
        return handle


def _index(scanner: Scanner, request: Request) -> int:
    """The index of the GPU that a request names; `request.index` is where the driver saw it last.

    Raises Failed. A text that is no UUID is not repeated in the message.
    """
    if not _UUID.fullmatch(request.uuid):
        raise Failed(
            "the UUID of a device begins with GPU- or MIG-; this request has another text in its place, a fault of the driver"
        )
    index = scanner.index_of(request.uuid)
    if index is None and 0 <= request.index < scanner.count():
        scanner.gpu(request.index)
        index = scanner.index_of(request.uuid)
    if index is None:
        raise Failed(
            f"no GPU of this node has the UUID {request.uuid}; it may have gone: compare `nvidia-smi -L` on the node",
            code=GPU_NOT_FOUND,
            retry=True,
        )
    return index


def _process(process: Any, kind: str) -> Process:
    return Process(
        pid=process.pid,
        kind=kind,
        used_memory=process.usedGpuMemory,
        gpu_instance=_instance(process, "gpuInstanceId"),
        compute_instance=_instance(process, "computeInstanceId"),
    )


def _in_range(value: int, allowed: range, what: str) -> None:
    if value not in allowed:
        raise Failed(
            f"{value} is no {what}: it is a number from {allowed[0]} to {allowed[-1]}; this is a fault of the driver"
        )


def _instance(process: Any, name: str) -> int | None:
    found = getattr(process, name, _NO_INSTANCE)
    return None if found == _NO_INSTANCE else int(found)
