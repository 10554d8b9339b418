# SPDX-License-Identifier: Apache-2.0
"""Invented devices that behave like real ones, for a laptop, for kind and for tests.

Each is a character device of a major number that Linux reserves for local use, described whole, so that no file on the
host is needed. No kernel driver answers it: opening the file in a container that was given the device fails with ENXIO
("No such device or address"), in any other container with EPERM. That is how isolation can be seen without hardware.

Options: `profile` (see `dra_driver.backends.profiles`), `faults` (a file, see `dra_driver.backends.faults`), `major`.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event

import structlog

from dra_driver.backends.base import BackendContext
from dra_driver.backends.faults import Fault, read_faults
from dra_driver.backends.profiles import MIB, PROFILES, Group, Model, Profile
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import AttributeValue, Device
from dra_driver.model.health import HEALTHY, Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.quantity import Quantity

LOCAL_USE_MAJORS = (*range(60, 64), *range(120, 128))
DEFAULT_MAJOR = 120
POLL_SECONDS = 0.25
UNCHECKED = Health(
    HealthStatus.UNKNOWN,
    "simulated device: nothing checks its health; start with --simulated-faults FILE",
)
_NAMESPACE = uuid.UUID("6f1c0c1e-7d0b-4c55-9f7e-0d4a3a6f2b11")
_OPTIONS = {"profile", "faults", "major"}


class SimulatedBackend:
    """Plays one machine. `wait` is `Event.wait`, injected by tests."""

    def __init__(
        self, context: BackendContext, *, wait: Callable[[Event, float], bool] = Event.wait
    ) -> None:
        unknown = sorted(context.options.keys() - _OPTIONS)
        if unknown:
            raise Fatal(
                f"the simulated backend has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}"
            )
        self._profile = _profile(context.options.get("profile", "h100x8"))
        self._devices = _devices(self._profile, context.node_name, _major(context.options))
        faults = context.options.get("faults", "")
        self._faults_path = Path(faults) if faults else None
        self._faults: Mapping[str, Fault] = {}
        self._wait = wait
        self._log = structlog.get_logger(backend="simulated")
        self._reload()

    def scan(self) -> Inventory:
        """The profile's devices, less those that vanished."""
        self._reload()
        present = [device for device in self._devices if not self._fault(device.name).vanished]
        return Inventory(
            tuple(self._with_health(device) for device in present), self._profile.config_kinds
        )

    def watch(self, stop: Event) -> Iterator[None]:
        """Look at the fault file again and again."""
        if self._faults_path is None:
            return
        seen = _stamp(self._faults_path)
        while not self._wait(stop, POLL_SECONDS):
            now = _stamp(self._faults_path)
            if now != seen:
                seen = now
                yield

    def configure(self, device: Device, _config: DeviceConfig) -> None:
        """Nothing to set up, unless the fault file says that it fails."""
        self._reload()
        fault = self._fault(device.name).configure
        if fault:
            raise Permanent(
                f"simulated device {device.name} cannot be set up: {fault} (from the fault file)"
            )

    def reset(self, _device: DeviceName) -> None:
        """Nothing to undo."""

    def _fault(self, name: DeviceName) -> Fault:
        return self._faults.get(name, Fault())

    def _with_health(self, device: Device) -> Device:
        if self._faults_path is None:
            return device
        reason = self._fault(device.name).unhealthy
        health = Health(HealthStatus.UNHEALTHY, reason) if reason else HEALTHY
        return Device(
            device.name, device.uuid, device.attributes, device.capacity, device.edits, health
        )

    def _reload(self) -> None:
        if self._faults_path is None:
            return
        try:
            self._faults = read_faults(self._faults_path)
        except Permanent as error:
            self._log.warning("fault_file_ignored", error=str(error))


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise Fatal(f"no simulated profile {name!r}; there are: {', '.join(sorted(PROFILES))}")
    return PROFILES[name]


def _major(options: Mapping[str, str]) -> int:
    text = options.get("major", str(DEFAULT_MAJOR))
    if not text.isdigit() or int(text) not in LOCAL_USE_MAJORS:
        raise Fatal(
            f"option major={text}: Linux reserves {', '.join(map(str, LOCAL_USE_MAJORS))} for local use"
        )
    return int(text)


def _devices(profile: Profile, node_name: str, major: int) -> tuple[Device, ...]:
    placed = [(group, place) for group in profile.groups for place in range(len(group.buses))]
    return tuple(
        _device(group, place, index, node_name, major)
        for index, (group, place) in enumerate(placed)
    )


def _device(group: Group, place: int, index: int, node_name: str, major: int) -> Device:
    name = DeviceName(f"gpu-{index}")
    model = group.model
    identity = model.uuid_format.format(uuid.uuid5(_NAMESPACE, f"{node_name}/{name}"))
    attributes: dict[str, AttributeValue] = {"index": index, "uuid": identity, **model.attributes}
    if model.vendor:
        attributes |= _vocabulary(model, index) | _pci(group, place)
    node = DeviceNode(f"/dev/dra-simulated/{name}", major=major, minor=index)
    return Device(
        name,
        identity,
        attributes,
        {"memory": Quantity.of_bytes(model.memory_mib * MIB)}
        | {key: Quantity.parse(text) for key, text in model.capacity.items()},
        ContainerEdits(device_nodes=(node,)),
        UNCHECKED,
    )


def _vocabulary(model: Model, index: int) -> dict[str, AttributeValue]:
    return {
        "vendor": model.vendor,
        "productName": model.product,
        "minor": index,
        "memoryMiB": model.memory_mib,
    }


def _pci(group: Group, place: int) -> dict[str, AttributeValue]:
    bus = group.buses[place]
    attributes: dict[str, AttributeValue] = {
        "resource.kubernetes.io/pciBusID": f"{bus}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci{bus}",
    }
    # A machine with one node says -1 for "no affinity", which must not be published.
    if group.numa_nodes:
        attributes["resource.kubernetes.io/numaNode"] = place * group.numa_nodes // len(group.buses)
    return attributes


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
