# SPDX-License-Identifier: Apache-2.0
"""The simulated backend: devices that do not exist but behave like real ones, for a laptop, for kind and for tests.

Each device is a character device with a major number that Linux reserves for local use. Its CDI edits have type, major and minor,
so no file on the host is needed. There is no kernel driver behind it: in a container that has the device, opening it fails with
ENXIO ("No such device or address"); in any other container it fails with EPERM. So isolation can be tested without hardware.

`SimulatedOptions` are its options.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event, Lock
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta
from msgspec.structs import replace

from dra_driver.backends.base import BackendContext
from dra_driver.backends.example import ExampleOptions, machine
from dra_driver.backends.example_edits import ExampleVariables
from dra_driver.backends.faults import Fault, first_text, parse_faults, read_text
from dra_driver.backends.journal import HardwareJournal
from dra_driver.backends.partitions import TYPE_ATTRIBUTE
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.simulated_config import GPU, GPU_OF_LATER_RELEASES, LABEL, NET
from dra_driver.backends.simulated_edits import container_edits
from dra_driver.backends.simulated_machine import machine_of
from dra_driver.backends.simulated_usage import usage_of_device
from dra_driver.errors import Fatal, Permanent, Temporary
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.health import HEALTHY, Health, HealthStatus
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from dra_driver.model.usage import DeviceUsage

LOCAL_USE_MAJORS = (*range(60, 64), *range(120, 128))
DEFAULT_MAJOR = 120
POLL_SECONDS = 0.1  # a device that is ill is tainted within half a second, and this is a part of it
WITHOUT_FAULT_FILE = Health(
    HealthStatus.UNKNOWN,
    "simulated device: nothing checks its health; start with --simulated-faults FILE",
)
SOUND = Fault()
_NEVER = Event()
EXAMPLE_PROFILE = "example"
_EXAMPLE_KINDS: Mapping[str, tuple[ConfigKind, ...]] = {
    "gpu": (LABEL, GPU, GPU_OF_LATER_RELEASES),
    "net": (NET,),
    "cpu": (),
}


class SimulatedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the simulated backend."""

    profile: Annotated[
        str,
        Meta(
            description="The machine that it simulates; docs/reference/profiles.md has all.",
            extra_json_schema={"enum": list(PROFILES)},
        ),
    ] = "h100x8"
    faults: Annotated[
        str, Meta(description="A YAML file with faults, which it watches; empty: no faults.")
    ] = ""
    major: Annotated[
        int,
        Meta(
            description="The major number of its device files, one that Linux reserves for local use.",
            extra_json_schema={"enum": list(LOCAL_USE_MAJORS)},
        ),
    ] = DEFAULT_MAJOR
    journal: Annotated[
        str, Meta(description="A file to which each set-up and reset is written, for tests.")
    ] = os.devnull
    example: Annotated[
        ExampleOptions | None,
        Meta(description="What the profile `example` plays: the options of the example driver."),
    ] = None

    def __post_init__(self) -> None:
        if self.example is not None and self.profile != EXAMPLE_PROFILE:
            raise ValueError(
                f"example has options for profile {EXAMPLE_PROFILE}; remove them from profile {self.profile}"
            )


class SimulatedBackend:
    """Simulates one machine; safe to call from several threads. Tests inject their own `wait` (`Event.wait`) and `clock` (monotonic)."""

    options = SimulatedOptions
    config_kinds: tuple[ConfigKind, ...] = (LABEL, GPU, GPU_OF_LATER_RELEASES, NET)
    auto = False

    def __init__(
        self,
        context: BackendContext,
        *,
        wait: Callable[[Event, float], bool] = Event.wait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options: SimulatedOptions = context.options
        self._profile = PROFILES[options.profile]
        self._profile_name = options.profile
        self._major = options.major
        self.config_kinds = self._profile.config_kinds
        self._variables: ExampleVariables | None = None
        found = machine_of(self._profile, context, WITHOUT_FAULT_FILE)
        self._devices, self._counter_sets = found.devices, found.counter_sets
        self._typed = bool(self._counter_sets)  # partitions say their kind in an attribute
        if options.profile == EXAMPLE_PROFILE:
            self._play(options.example or ExampleOptions(), context)
        self._minors = {device.name: minor for minor, device in enumerate(self._devices)}
        self._faults_path = Path(options.faults) if options.faults else None
        self._faults: Mapping[str, Fault] = {}
        self._read: bytes | None = None  # the file's last content, correct or not
        self._scanned: bytes | None = None  # the file's content at the last scan
        self._complained = ""  # the last error that was logged
        self._journal = HardwareJournal(Path(options.journal))
        self._mutex = Lock()
        self._wait = wait
        self._clock = clock
        self._loaded: set[tuple[DeviceName, ClaimUid, ShareId]] = set()  # what has been set up
        self._log = structlog.get_logger(backend="simulated")
        if self._faults_path is not None:
            self._read, self._faults = self._first(self._faults_path)

    def _play(self, options: ExampleOptions, context: BackendContext) -> None:
        node, driver = context.node_name, context.driver_name
        self.config_kinds = _EXAMPLE_KINDS[options.profile]
        played = machine(options, node, driver, WITHOUT_FAULT_FILE)
        self._devices, self._counter_sets = played.devices, played.counter_sets
        self._variables = ExampleVariables(options.profile, node, driver)

    def scan(self) -> Inventory:
        """The devices of the profile, without those that the fault file lets vanish."""
        with self._mutex:
            faults = self._reload()
            self._scanned = self._read
        return Inventory(
            tuple(
                self._with_health(device, faults)
                for device in self._devices
                if not faults.get(device.name, SOUND).vanished
            ),
            counter_sets=self._counter_sets,
            partition_type_attribute=TYPE_ATTRIBUTE if self._typed else "",
        )

    def watch(self, stop: Event) -> Iterator[None]:
        """Read the fault file every POLL_SECONDS; yield if it changed since the last scan."""
        if self._faults_path is None:
            return
        while not self._wait(stop, POLL_SECONDS):
            with self._mutex:
                self._reload()
                changed = self._read != self._scanned
                self._scanned = self._read
            if changed:
                yield

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Write to the journal; fail or hang if the fault file says so. Returns the device file and the variables."""
        if lease.admin_access or lease.may_run:
            return self._edits(lease)
        fault = self._fault(lease.device)
        while fault.hangs:
            self._wait(_NEVER, POLL_SECONDS)
            fault = self._fault(lease.device)
        if fault.configure:
            kind = Temporary if fault.temporary else Permanent
            raise kind(
                f"simulated device {lease.device} cannot be set up: {fault.configure} (from the fault file {self._faults_path})"
            )
        named = (lease.device, lease.claim_uid, lease.share_id)
        if self._needs_mode(lease):
            self._journal.mode_on(*named, first=lease.is_alone)
        self._journal.configured(*named)
        self._loaded.add(named)
        return self._edits(lease)

    def reset(self, lease: Lease, /) -> None:
        """Only writes to the journal."""
        named = (lease.device, lease.claim_uid, lease.share_id)
        self._journal.reset(*named)
        self._loaded.discard(named)
        if self._needs_mode(lease) and lease.is_alone:
            self._journal.mode_off(*named)

    def in_use(self, device: DeviceName, /) -> InUse:
        """What the fault file says; CANNOT_TELL without it."""
        if self._faults_path is None:
            return InUse.CANNOT_TELL
        return InUse.YES if self._fault(device).in_use else InUse.NO

    def usage(self) -> Mapping[DeviceName, DeviceUsage]:
        """A curve for devices with claims; nothing of a device that hangs or has vanished."""
        with self._mutex:
            faults = self._reload()
        now = self._clock()
        loaded = {device for device, _, _ in tuple(self._loaded)}
        return {
            device.name: usage_of_device(device, number, now, loaded=device.name in loaded)
            for number, device in enumerate(self._devices)
            if not (fault := faults.get(device.name, SOUND)).hangs and not fault.vanished
        }

    def _needs_mode(self, lease: Lease) -> bool:
        """Whether the lease needs a mode of its GPU, as all its partitions and shares do. A lease from a lost state has no parts."""
        minor = self._minors.get(lease.device)
        found = minor is not None and self._devices[minor].resource.parts
        return bool(lease.share_id or lease.parts or found)

    def _edits(self, lease: Lease) -> ContainerEdits:
        minor = self._minors.get(lease.device)
        if minor is None:
            raise Permanent(
                f"simulated device {lease.device} is not in profile {self._profile_name} of this node"
            )
        if self._variables is not None:
            return self._variables.edits(lease, major=self._major, minor=minor)
        return container_edits(lease, self._devices[minor].uuid, major=self._major, minor=minor)

    def _fault(self, name: DeviceName) -> Fault:
        with self._mutex:
            return self._reload().get(name, SOUND)

    def _with_health(
        self, device: AllocatableDevice, faults: Mapping[str, Fault]
    ) -> AllocatableDevice:
        if self._faults_path is None:
            return device
        fault = faults.get(device.name, SOUND)
        health = Health(HealthStatus.UNHEALTHY, fault.unhealthy) if fault.unhealthy else HEALTHY
        return replace(device, health=health, not_clean=fault.not_clean)

    def _first(self, path: Path) -> tuple[bytes, Mapping[str, Fault]]:
        """The faults at start. Raises Fatal: there is no earlier correct content to use instead."""
        try:
            text = first_text(path)
            return text, self._parsed(text, path)
        except Permanent as error:
            raise Fatal(str(error)) from error

    def _parsed(self, text: bytes | None, path: Path) -> Mapping[str, Fault]:
        return parse_faults(text, path, [device.name for device in self._devices])

    def _reload(self) -> Mapping[str, Fault]:
        """Read the faults again. If the file is broken, this is logged once, and the last correct faults stay in force."""
        if self._faults_path is None:
            return self._faults
        try:
            text = read_text(self._faults_path)
            if text != self._read:
                self._read = text
                self._faults = self._parsed(text, self._faults_path)
        except Permanent as error:
            if str(error) != self._complained:
                self._log.warning(
                    "fault_file_ignored",
                    error=str(error),
                    next_step="the last good one is in force",
                )
            self._complained = str(error)
        else:
            self._complained = ""
        return self._faults
