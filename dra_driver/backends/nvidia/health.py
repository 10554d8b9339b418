# SPDX-License-Identifier: Apache-2.0
"""How healthy is each GPU and MIG device, and which taints does it get? One small state machine for each device.

Each finding (`findings.py`) raises the device's severity at once. It falls in one way only: the finding is not seen any more, *and*
the GPU proves at each look that it works (all queries succeed, no recovery action is asked for), for the hold time without a break.
The last event decides nothing: a harmless event after a bad one heals nobody.

* Each finding that comes back after one was cleared doubles the hold time, up to MAX_HOLD_SECONDS. So a GPU that fails and recovers
  again and again is tainted all the time, and its taint does not flap. A device that was well for FORGIVE_SECONDS begins anew.
* A finding that is harmless for a moment, such as a fabric that a GPU has not joined yet, is raised once it has lasted for
  LASTING_SECONDS.
* An XID that needs a reset is held for MAX_HOLD_SECONDS if the kernel driver is too old to say the recovery action (before 570):
  nothing proves that the GPU was reset. An XID that nobody knows is held there until the driver is restarted: only a recovery action
  says whether such a GPU needs something.
* An event of a MIG device concerns the MIG devices of its GPU instance; one whose instance is not found, the whole GPU. A MIG device
  has the findings of its GPU too.

A new book knows nothing: after a restart of the driver the state follows from the first look. What the hardware does not say again,
such as an XID of a GPU that asks for no recovery action, is forgotten then.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from threading import Lock

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.backends.nvidia.facts import Gpu, HardwareEvent, MigDevice, Node
from dra_driver.backends.nvidia.findings import (
    GPU_UUID,
    Finding,
    answers,
    error_of,
    findings,
    of_event,
)
from dra_driver.backends.nvidia.options import HealthOptions
from dra_driver.backends.nvidia.xids import Severity
from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.health import HEALTHY, Health, HealthStatus
from dra_driver.model.names import TEMPERATURE_TAINT, XID_TAINT

MAX_HOLD_SECONDS = 1800.0
FORGIVE_SECONDS = 2 * MAX_HOLD_SECONDS
LASTING_SECONDS = 60.0
KEPT_EVENTS = 1000
"""Different events that wait for the next look; more are dropped. Equal ones are counted: those of one program drop no other's."""
FORGET_SECONDS = 24 * 3600.0
"""A device that is not there for so long is forgotten: a MIG layout of the past."""
_RESTRICTING_TAINTS = 3
"""Of one verdict. Before Kubernetes 1.35 a device has at most four taints, and the driver adds one for an unhealthy device."""

_Id = tuple[str, str]
"""The key and value of a finding."""


class Verdict(Struct, frozen=True):
    """What the driver says about one device: for `AllocatableDevice.health`, `api.taints` and `errors`.

    `errors` counts what the hardware reported since the driver started, by name ("xid-31").
    """

    health: Health = HEALTHY
    taints: tuple[DeviceTaint, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)


class _Held(Struct):
    """A finding that counts, and when it was raised. `since` is when the GPU began to prove that it is over; None: it is not over."""

    finding: Finding
    at: float
    since: float | None = None


class _Device:
    """The state machine of one GPU or MIG device."""

    def __init__(self) -> None:
        self.held: dict[_Id, _Held] = {}
        self.errors: Counter[str] = Counter()
        self.ecc: int | None = None
        self.seen_at = 0.0
        self._strikes = 0
        self._cleared_at: float | None = None

    def step(self, found: Iterable[Finding], *, proof: Gpu | None, now: float, hold: float) -> None:
        """Take in what is wrong at this moment. `proof` is the look if it proves that the GPU works."""
        seen = {(one.key, one.value): one for one in found if one.severity > Severity.FINE}
        for name, finding in seen.items():
            if name in self.held:
                self.held[name].finding = self._lasted(finding, now - self.held[name].at)
                self.held[name].since = None
            else:
                self._raise(finding, now)
        for name in [name for name in self.held if name not in seen]:
            one = self.held[name]
            if proof is None:
                one.since = None
            elif one.since is None:
                one.since = now
            elif now - one.since >= self._hold(one.finding, proof, hold):
                del self.held[name]
                self._cleared_at = now

    def is_hot(self) -> bool:
        """Whether the temperature was over its limit, and has not been well below it since."""
        return any(
            key == TEMPERATURE_TAINT and one.since is None for (key, _), one in self.held.items()
        )

    def _raise(self, finding: Finding, now: float) -> None:
        if self._cleared_at is not None:
            soon = now - self._cleared_at < FORGIVE_SECONDS
            self._strikes = self._strikes + 1 if soon else 0
            self._cleared_at = None
        self.held[finding.key, finding.value] = _Held(finding, now)

    def _lasted(self, finding: Finding, seconds: float) -> Finding:
        worse = max(finding.severity, finding.lasting)
        return replace(finding, severity=worse) if seconds > LASTING_SECONDS else finding

    def _hold(self, finding: Finding, proof: Gpu, hold: float) -> float:
        unproven = proof.recovery_action is None and finding.severity >= Severity.RESET
        if unproven and finding.key == XID_TAINT:
            return math.inf if finding.is_unknown else MAX_HOLD_SECONDS
        doublings = min(self._strikes, 20)  # more make no difference, only huge numbers
        return float(min(hold * 2**doublings, MAX_HOLD_SECONDS))


class HealthBook:
    """Remembers each device. `note` may be called by any thread; `judge` by one at a time. `clock` is monotonic seconds."""

    def __init__(
        self,
        options: HealthOptions = HealthOptions(),  # noqa: B008  frozen
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self._mutex = Lock()
        self._events: Counter[HardwareEvent] = Counter()
        self._devices: dict[str, _Device] = {}

    def note(self, event: HardwareEvent) -> None:
        """Remember an event. The next `judge` counts it."""
        with self._mutex:
            if event in self._events or len(self._events) < KEPT_EVENTS:
                self._events[event] += 1

    def judge(self, node: Node) -> Mapping[str, Verdict]:
        """Return the verdicts by the UUID of each GPU and MIG device of this look; a GPU without UUID has its `pci_bus_id` instead."""
        now = self._clock()
        reported = self._reported(node)
        verdicts: dict[str, Verdict] = {}
        for gpu in node.gpus:
            proof = gpu if answers(gpu) else None
            device = self._device(uuid := gpu.uuid or gpu.pci_bus_id)
            looked = findings(gpu, self._options, hot=device.is_hot(), ecc_before=device.ecc)
            found = (*looked, *reported.pop(uuid, ()))
            device.step(found, proof=proof, now=now, hold=self._options.recovery_seconds)
            if gpu.ecc_uncorrected is not None:
                device.ecc = gpu.ecc_uncorrected
            verdicts[uuid] = _verdict((device,), uuid)
            for one in _mig_devices(gpu):
                part = self._device(one.uuid)
                found = tuple(reported.pop(one.uuid, ()))
                part.step(found, proof=proof, now=now, hold=self._options.recovery_seconds)
                verdicts[one.uuid] = _verdict((device, part), uuid)
        self._absent(verdicts, reported, now)
        return verdicts

    def _reported(self, node: Node) -> dict[str, list[Finding]]:
        """Count the events since the last look. Returns what they found, by the UUID of the device that they concern."""
        gpus = {gpu.uuid: gpu for gpu in node.gpus}
        reported: dict[str, list[Finding]] = {}
        with self._mutex:
            events, self._events = self._events, Counter()
        for event, times in events.items():
            for uuid in _concerned(event, gpus.get(event.uuid)):
                if error := error_of(event):
                    self._device(uuid).errors[error] += times
                if finding := of_event(event, self._options):
                    reported.setdefault(uuid, []).append(finding)
        return reported

    def _absent(
        self, present: Container[str], reported: Mapping[str, list[Finding]], now: float
    ) -> None:
        """A device that is not there proves nothing. If it comes back soon, it has what it had."""
        for uuid, device in list(self._devices.items()):
            found = reported.get(uuid, ())
            if uuid not in present:
                device.step(found, proof=None, now=now, hold=self._options.recovery_seconds)
            if uuid in present or found:
                device.seen_at = now
            elif now - device.seen_at >= FORGET_SECONDS:
                del self._devices[uuid]

    def _device(self, uuid: str) -> _Device:
        return self._devices.setdefault(uuid, _Device())


def _mig_devices(gpu: Gpu) -> tuple[MigDevice, ...]:
    return gpu.mig.devices if gpu.mig is not None else ()


def _concerned(event: HardwareEvent, gpu: Gpu | None) -> Iterator[str]:
    """The UUIDs of the devices that an event concerns: the MIG devices of its GPU instance if they are known, else the one that it names."""
    of_instance = [
        one.uuid
        for one in (_mig_devices(gpu) if gpu is not None else ())
        if one.gpu_instance == event.gpu_instance
    ]
    yield from of_instance or [event.uuid]


def _verdict(devices: tuple[_Device, ...], gpu: str) -> Verdict:
    found = [one.finding for device in devices for one in device.held.values()]
    found.sort(key=lambda one: -one.severity)  # of equal ones the first that was found
    errors: Counter[str] = Counter()
    for device in devices:
        errors += device.errors
    return Verdict(_health(found, gpu), tuple(_taints(found)), dict(sorted(errors.items())))


def _health(found: list[Finding], gpu: str) -> Health:
    if not found:
        return HEALTHY
    ill = found[0].severity >= Severity.DRAIN
    status = HealthStatus.UNHEALTHY if ill else HealthStatus.HEALTHY
    texts = dict.fromkeys(one.text.replace(GPU_UUID, gpu) for one in found)
    return Health(status, "; ".join(texts))


def _taints(found: list[Finding]) -> Iterator[DeviceTaint]:
    """Yield one taint for each key: that of the worst finding. The message of the health names the others."""
    worst: dict[str, Finding] = {}
    for one in found:
        worst.setdefault(one.key, one)
    restricting = [one for one in worst.values() if one.severity >= Severity.DRAIN]
    watched = [one for one in worst.values() if one.severity < Severity.DRAIN]
    for one in restricting[:_RESTRICTING_TAINTS]:
        yield DeviceTaint(key=one.key, value=one.value, effect="NoSchedule")
    for one in watched:
        yield DeviceTaint(key=one.key, value=one.value, effect="None")
