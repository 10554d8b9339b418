# SPDX-License-Identifier: Apache-2.0
"""The driver's side of the hardware process: it asks, with a deadline for each request, and puts the answers together.

One GPU that hangs, fails or answers garbage costs this GPU: it keeps the facts of the last look and gets a `problem`. The process is
replaced, and the others are asked. A GPU that hung is asked after all others, and less and less often, because each attempt costs
a process and the deadline.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from threading import Event, Lock
from typing import TypeVar

import msgspec
from msgspec import Struct

from dra_driver.backends.nvidia.facts import Gpu, HardwareEvent, MigProfile, Node, Process, Usage
from dra_driver.backends.nvidia.hardware.wire import (
    DEADLINES,
    Answer,
    Broken,
    Failure,
    Happened,
    Listing,
    Request,
    arrives,
    receive,
    send,
)
from dra_driver.backends.nvidia.link import Connection, Link
from dra_driver.backends.nvidia.unended import Unended
from dra_driver.errors import DriverError, Permanent, Temporary

AGAIN_SECONDS = (30.0, 60.0, 120.0, 300.0)
"""After the first, second, … hang in a row: how long a GPU is not asked."""
MOST_HANGS = 2
"""GPUs that may hang in one look. After these the look fails; the next one asks the others."""
GRACE_SECONDS = 2.0
"""More than the process gives itself: if it can end itself, it says in its log where it hung."""
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
_STOP_SECONDS = 1.0  # how soon the stream of events notices that it must end
_CONNECTED = Happened()
_NOTHING = type(None)
_T = TypeVar("_T")


class _Refused(Exception):
    """The process answered that it cannot."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Silent(Exception):
    """There was no answer. `hung`: it was waited for; otherwise the process ended or sent garbage."""

    def __init__(self, message: str, *, hung: bool) -> None:
        super().__init__(message)
        self.hung = hung


class _Hang(Struct, frozen=True):
    """A GPU that did not answer: how often in a row, until when it is not asked, and what to tell."""

    times: int
    until: float
    problem: str


class HardwareProcess:
    """`door.Hardware` by a process. One thread calls `look`, another one `events`; the other calls may come from any thread."""

    def __init__(
        self,
        link: Link,
        *,
        clock: Callable[[], float] = time.monotonic,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._link = link
        self._clock = clock
        self._grace = grace
        self._looking = Lock()
        self._last: dict[int, Gpu] = {}  # by index: the last facts of each GPU
        self._hangs: dict[int, _Hang] = {}
        self._unended = Unended(clock)
        self._count: int | None = None
        self._profiles: dict[tuple[str, str, bool], tuple[MigProfile, ...]] = {}

    def look(self) -> Node:
        """Return what is there now; see `door.Hardware`."""
        with self._looking:
            listing = self._told(Request("node"), Listing)
            if listing.count != self._count:
                # A GPU has come or gone, and the indices mean others.
                self._last, self._hangs, self._count = {}, {}, listing.count
            gpus = self._gpus(listing.count)
            self._last = {
                gpu.index: msgspec.structs.replace(gpu, problem="", problem_code=None)
                for gpu in gpus
            }
            unnamed: dict[str, str] = {}
            profiles = self._mig_profiles(gpus, listing.system.driver_version, unnamed)
            return Node(
                system=listing.system,
                gpus=tuple(_without_profiles(gpu, unnamed) for gpu in gpus),
                pci=listing.pci,
                mig_profiles=profiles,
                installation=listing.installation,
                problem=listing.problem,
            )

    def events(self, stop: Event) -> Iterator[HardwareEvent | None]:
        """Yield events, from one process after the other; see `door.Hardware`."""
        failures = 0
        is_connected = lost = False
        while not stop.is_set():
            try:
                for happened in self._stream(stop):
                    failures = 0
                    if happened is not _CONNECTED:
                        yield happened.event
                    elif lost:
                        yield None  # events of the meantime are lost: a look finds what they have changed
                    is_connected = True
            except (DriverError, _Refused, _Silent):
                lost = True
                failures += 1
                if is_connected:
                    is_connected = False
                    yield None  # the next process listens to the GPUs that a look has read
                stop.wait(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1])

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Return the processes on a GPU or MIG device; see `door.Hardware`."""
        return self._told_of("processes", uuid, tuple[Process, ...])

    def usage(self, uuid: str) -> Usage:
        """Return what is measured on a GPU now; see `door.Hardware`."""
        return self._told_of("usage", uuid, Usage)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """Set the compute mode; see `door.Hardware`."""
        self._told_of("set_compute_mode", uuid, _NOTHING, mode)

    def set_time_slice(self, uuid: str, interval: int) -> None:
        """Set the time slice; see `door.Hardware`."""
        self._told_of("set_time_slice", uuid, _NOTHING, interval)

    def let_go(self) -> None:
        """Close the library; see `door.Hardware`. The process ends, so nothing of the driver is open any more."""
        if self._link.ours:
            self._link.close()
        else:
            self._told(Request("let_go"), _NOTHING)

    def close(self) -> None:
        """End the process, if it is a child."""
        self._link.close()
        self._unended.close()

    def _of(self, verb: str, uuid: str, value: int = 0) -> Request:
        """A request about one device, with the index that its GPU had at the last look: a new process has not seen it yet."""
        for index, gpu in self._last.items():
            devices = () if gpu.mig is None else gpu.mig.devices
            if gpu.uuid == uuid or any(device.uuid == uuid for device in devices):
                return Request(verb, index=index, uuid=uuid, value=value)
        return Request(verb, uuid=uuid, value=value)

    def _gpus(self, count: int) -> tuple[Gpu, ...]:
        """The facts of all GPUs; those that hung before are asked last. Raises Temporary if too many hang."""
        found: dict[int, Gpu] = {}
        hung: list[str] = []
        for index in sorted(range(count), key=lambda index: (self._since(index), index)):
            request = Request("gpu", index=index)
            hang = self._hangs.get(index)
            if hang is not None and (
                hung or self._clock() < hang.until or self._unended.blocks(request)
            ):
                found[index] = self._as_last(index, hang.problem)
                continue  # one attempt in a look is enough
            try:
                found[index] = self._once_more(request, Gpu)
                self._hangs.pop(index, _NOTHING)
            except _Refused as refusal:
                found[index] = self._as_last(index, str(refusal), refusal.failure.code)
                self._hangs.pop(index, _NOTHING)
            except _Silent as silence:
                found[index] = self._as_last(index, self._hangs_again(index, str(silence)))
                hung.append(str(index))
            if len(hung) > MOST_HANGS:
                raise Temporary(
                    f"the GPUs with index {', '.join(hung)} did not answer one after the other; the others are asked at the next look; "
                    "see `dmesg` of the node for messages of the kernel driver (NVRM), and restart the node if they all hang"
                )
        read = {gpu.uuid for gpu in found.values() if not gpu.problem}
        return tuple(
            Gpu(index=index, problem=gpu.problem, problem_code=gpu.problem_code)
            if gpu.problem and gpu.uuid in read
            else gpu
            for index, gpu in sorted(found.items())
        )

    def _since(self, index: int) -> float:
        hang = self._hangs.get(index)
        return 0.0 if hang is None else hang.until

    def _as_last(self, index: int, problem: str, code: int | None = None) -> Gpu:
        last = self._last.get(index, Gpu(index=index))
        return msgspec.structs.replace(last, problem=problem, problem_code=code)

    def _hangs_again(self, index: int, problem: str) -> str:
        times = self._hangs[index].times + 1 if index in self._hangs else 1
        seconds = AGAIN_SECONDS[min(times, len(AGAIN_SECONDS)) - 1]
        again = self._unended.blocks(Request("gpu", index=index))
        again = again or f"the GPU is asked again after {seconds:.0f} s"
        problem = (
            f"{problem}; {again}; see `dmesg` of the node for messages of the kernel driver (NVRM), "
            f"and reset the GPU or restart the node if it stays so"
        )
        self._hangs[index] = _Hang(times, self._clock() + seconds, problem)
        return problem

    def _mig_profiles(
        self, gpus: tuple[Gpu, ...], driver: str, failed: dict[str, str]
    ) -> dict[str, tuple[MigProfile, ...]]:
        """The profiles by product. They are read once for a product and driver, and once more when MIG is enabled: some boards tell
        them only then, and the names of MIG devices must be made of what the library says in this mode. `failed` gets why those of a product could not be read; the next look asks again.
        """
        found: dict[str, tuple[MigProfile, ...]] = {}
        for gpu in gpus:
            if gpu.mig is None or found.get(gpu.name):
                continue
            key = (gpu.name, driver, gpu.mig.enabled)
            if key not in self._profiles and not gpu.problem:
                try:
                    self._profiles[key] = self._once_more(
                        Request("mig_profiles", index=gpu.index), tuple[MigProfile, ...]
                    )
                except (_Refused, _Silent) as error:
                    failed[gpu.name] = str(error)
                    continue
            if profiles := self._profiles.get(key):
                found[gpu.name] = profiles
                failed.pop(gpu.name, "")
        return found

    def _told_of(self, verb: str, uuid: str, kind: type[_T], value: int = 0) -> _T:
        """Ask about one device. Only looks ask a GPU that hangs, as each attempt holds all others up and ends the process."""
        request = self._of(verb, uuid, value)
        hang = self._hangs.get(request.index)
        if hang is not None:
            raise Temporary(hang.problem)
        # A hang here is not held against this GPU: the process may have waited for another one, with the library's lock.
        return self._told(request, kind)

    def _told(self, request: Request, kind: type[_T]) -> _T:
        """Ask, and raise the driver's errors."""
        try:
            return self._once_more(request, kind)
        except _Refused as refusal:
            kind_of = Temporary if refusal.failure.retry else Permanent
            raise kind_of(str(refusal)) from refusal
        except _Silent as silence:
            raise Temporary(
                f"{silence}; it was replaced, and this is tried again; see the driver's log and `dmesg` of the node if it stays so"
            ) from silence

    def _once_more(self, request: Request, kind: type[_T]) -> _T:
        """Ask; once more if the process ended before the answer, because another request or an upgrade may have ended it."""
        try:
            return self._ask(request, kind)
        except _Silent as silence:
            if silence.hung:
                raise
        return self._ask(request, kind)

    def _ask(self, request: Request, kind: type[_T]) -> _T:
        connection = self._connect(request)
        with closing(connection.socket):
            return self._answer(connection, request, kind)

    def _connect(self, request: Request) -> Connection:
        if why := self._unended.blocks(request):
            raise _Silent(why, hung=True)
        return self._link.connect()

    def _answer(self, connection: Connection, request: Request, kind: type[_T]) -> _T:
        deadline = DEADLINES[request.verb]
        begun = self._clock()
        try:
            send(connection.socket, request, seconds=deadline)
            answer = receive(connection.socket, Answer, seconds=deadline + self._grace)
            self._unended.forget(request)
            if answer.error is not None:
                raise _Refused(answer.error)
            return msgspec.json.decode(answer.result, type=kind)
        except (Broken, msgspec.DecodeError, RecursionError) as error:
            hung = self._clock() - begun > deadline / 2  # it has ended itself
            silence = f"the hardware process gave no answer to `{_said(request)}`: {error}"
            if hung and isinstance(error, Broken):
                silence = (
                    f"the hardware process ended without an answer to `{_said(request)}`, as it does {deadline:.0f} s after a call of "
                    "the library that does not return"
                )
        except TimeoutError:
            hung = True
            self._unended.keep(request, connection.socket.dup())
            silence = (
                f"the hardware process did not answer `{_said(request)}` within {deadline:.0f} s"
            )
        self._link.replace(connection.of)
        raise _Silent(silence, hung=hung)

    def _stream(self, stop: Event) -> Iterator[Happened]:
        request = Request("events")
        connection = self._connect(request)
        with closing(connection.socket):
            self._answer(connection, request, _NOTHING)
            yield _CONNECTED
            while not stop.is_set():
                try:
                    if arrives(connection.socket, seconds=_STOP_SECONDS):
                        yield receive(connection.socket, Happened, seconds=self._grace)
                except (Broken, TimeoutError) as error:
                    raise _Silent(str(error), hung=False) from error


def _without_profiles(gpu: Gpu, failed: Mapping[str, str]) -> Gpu:
    """A GPU with MIG devices whose profiles are not known. Their names depend on them, and with two names a device is given out twice."""
    if gpu.name not in failed or gpu.mig is None or not gpu.mig.devices:
        return gpu
    problem = f"the profiles of its MIG devices cannot be read: {failed[gpu.name]}"
    return Gpu(index=gpu.index, pci_bus_id=gpu.pci_bus_id, problem=problem)


def _said(request: Request) -> str:
    argument = request.uuid or ("" if request.index < 0 else str(request.index))
    return f"{request.verb} {argument}".strip()
