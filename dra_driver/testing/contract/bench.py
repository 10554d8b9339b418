# SPDX-License-Identifier: Apache-2.0
"""What the tests of a backend's promises work with: hardware, a backend for it, and leases of its devices."""

import dataclasses
import traceback
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from dra_driver.backends.base import Backend, config_kinds_of
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.health import HealthStatus
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from dra_driver.planning.combine import combine
from dra_driver.planning.scanned import as_scanned

NODE = "node-1"
BACKEND = "tested"
ONE = ClaimUid("0c7a52d5-55a0-4d1b-9a3a-0d5f3f6f0001")
OTHER = ClaimUid("0c7a52d5-55a0-4d1b-9a3a-0d5f3f6f0002")
_SHARES = {
    ONE: ShareId("5b0e6f0a-2c84-4b7e-8f3d-7a1c9d2e0001"),
    OTHER: ShareId("5b0e6f0a-2c84-4b7e-8f3d-7a1c9d2e0002"),
}
_USUAL: Mapping[str, object] = {
    "request": "main",
    "claim_uid": ONE,
    "share_id": NO_SHARE,
    "admin_access": False,
    "is_alone": True,
    "may_run": False,
}
_SHOWN_CHARACTERS = 600
_T = TypeVar("_T")


class BrokenPromise(AssertionError):
    """What was called, what was found, and what the author of the backend can do."""

    def __init__(self, called: str, found: str, action: str) -> None:
        super().__init__(f"  called: {called}\n  found:  {found}\n  do:     {action}")


class NothingToTest(Exception):
    """This backend has nothing that the promise is about, or its author gave no function for it."""


class Promise(Struct, frozen=True):
    """One promise, as a sentence, and its test. The test raises BrokenPromise or NothingToTest."""

    sentence: str
    check: Callable[["Bench"], None]

    def __str__(self) -> str:
        return self.sentence


def no_hardware(_folder: Path) -> None:
    """Make nothing: the backend under test invents its devices."""


class Bench(Struct, frozen=True):
    """The functions that the author of the backend gave (`dra_driver.testing.contract`), and an empty folder."""

    make: Callable[[Path], Backend]
    folder: Path
    hardware: Callable[[Path], object] = no_hardware
    settings: Callable[[Path], object] | None = None
    vanish: Callable[[Path, DeviceName], object] | None = None
    configs: tuple[DeviceConfig, ...] = ()
    code: tuple[str, ...] = ()
    patience: float = 10.0
    _numbers: "count[int]" = field(default_factory=count)

    @property
    def has_hardware(self) -> bool:
        """Whether the backend needs hardware."""
        return self.hardware is not no_hardware

    def machine(self, *, empty: bool = False) -> "Machine":
        """New hardware, with a backend for it; `empty`: a node without the hardware."""
        folder = self.folder / f"machine-{next(self._numbers)}"
        folder.mkdir()
        if not empty:
            self.hardware(folder)
        return Machine(self, folder, self.made(folder))

    def made(self, folder: Path) -> Backend:
        """A backend for the hardware that is there."""
        return attempt("make_backend(folder)", lambda: self.make(folder))

    def samples(self) -> list[tuple[AllocatableDevice, DeviceConfig]]:
        """Devices to lease, each with a configuration: one of each form, the last one, and the first one with each configuration."""
        found = self.machine().usable()
        forms: dict[object, AllocatableDevice] = {}
        for device in found:
            forms.setdefault(_form(device), device)
        devices = list({one.name: one for one in (*forms.values(), found[-1])}.values())
        first = [(devices[0], config) for config in self._configs(devices[0])]
        return first + [(device, self._configs(device)[0]) for device in devices[1:]]

    def pair(self) -> tuple[Lease, Lease]:
        """Leases of two claims that share hardware. Raises NothingToTest."""
        found = self.machine().usable()
        for device in found:
            config = self._configs(device)[0]
            if device.api.allow_multiple_allocations:
                return a_lease(device, config), a_lease(device, config, uid=OTHER)
            for other in found:
                if _are_siblings(device, other):
                    return a_lease(device, config), a_lease(
                        other, self._configs(other)[0], uid=OTHER
                    )
        raise NothingToTest("no two claims can share hardware here")

    def _configs(self, device: AllocatableDevice) -> tuple[DeviceConfig, ...]:
        kinds = {(kind.api_version, kind.kind): kind for kind in device.reads}
        given = tuple(one for one in self.configs if (one.api_version, one.kind) in kinds)
        defaults = (kind.config(kind.default) for kind in kinds.values() if kind.default)
        return given or (next(defaults, DeviceConfig()),)


class Machine(Struct):
    """Hardware in a folder, and the backend that works on it now. A call that fails is a broken promise."""

    bench: Bench
    folder: Path
    backend: Backend

    def restart(self) -> None:
        """Work on with a new backend, as after a restart of the driver."""
        self.backend = self.bench.made(self.folder)

    def settings(self) -> object:
        """What is set up now; None if the author of the backend gave no function that says it."""
        return None if self.bench.settings is None else self.bench.settings(self.folder)

    def scan(self) -> Inventory:
        """What the backend finds, checked as the driver checks it."""
        found = attempt("scan()", lambda: as_scanned(self.backend.scan()))
        return combine({BACKEND: found}, {}, {BACKEND: config_kinds_of(self.backend)})

    def usable(self) -> tuple[AllocatableDevice, ...]:
        """The devices that are not ill: a backend may refuse to set up an ill one."""
        devices = self.scan().devices
        found = tuple(one for one in devices if one.health.status is not HealthStatus.UNHEALTHY)
        if not found:
            raise BrokenPromise(
                "scan()",
                f"{len(devices)} devices, and none that is not ill",
                "give the tests hardware: hardware(folder) has to make at least one good device",
            )
        return found

    def configure(self, lease: Lease) -> ContainerEdits:
        """Set up a lease."""
        return attempt(f"configure({named(lease)})", lambda: self.backend.configure(lease))

    def reset(self, lease: Lease) -> None:
        """Undo a lease."""
        attempt(f"reset({named(lease)})", lambda: self.backend.reset(lease))

    def in_use(self, device: DeviceName) -> InUse:
        """Ask whether a process uses the device."""
        return attempt(f"in_use({device!r})", lambda: self.backend.in_use(device))

    def expect(self, expected: object, called: str, action: str) -> None:
        """Compare the hardware with its expected settings."""
        same(self.settings(), expected, f"{called}, then settings()", action)


def attempt(called: str, act: Callable[[], _T]) -> _T:
    """Return what `act` returns. An exception is a broken promise."""
    try:
        return act()
    except Exception as error:
        raise BrokenPromise(
            called, raised(error), "this call has to succeed; mend what raises here"
        ) from error


def raised(error: Exception) -> str:
    """An exception and its place in the backend's code."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({place.filename}:{place.lineno})"


def same(found: object, expected: object, called: str, action: str) -> None:
    """Compare, and say both values."""
    if found != expected:
        raise BrokenPromise(called, f"{shown(found)}; expected {shown(expected)}", action)


def shown(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    more = len(text) - _SHOWN_CHARACTERS
    return text if more <= 0 else f"{text[:_SHOWN_CHARACTERS]}… ({more} characters more)"


def named(lease: Lease) -> str:
    """A lease for a message: the device, and what is not the same in every test."""
    told: dict[str, object] = {
        "device": lease.device,
        "request": lease.request,
        "claim_uid": lease.claim_uid,
        "share_id": lease.share_id,
        "config": lease.config.value,
        "admin_access": lease.admin_access,
        "is_alone": lease.is_alone,
        "may_run": lease.may_run,
    }
    shown_fields = [f"{name}={one!r}" for name, one in told.items() if one != _USUAL.get(name)]
    return f"Lease({', '.join(shown_fields)})"


def a_lease(
    device: AllocatableDevice,
    config: DeviceConfig,
    *,
    uid: ClaimUid = ONE,
    is_alone: bool = True,
) -> Lease:
    """A lease as the driver makes it from a claim; a share, if the device can be allocated several times."""
    shared = bool(device.api.allow_multiple_allocations)
    return Lease(
        uid,
        "main",
        device.name,
        share_id=_SHARES[uid] if shared else NO_SHARE,
        consumed_capacity=_consumed(device) if shared else {},
        config=config,
        backend=device.backend,
        parent=device.resource.parent,
        parts=device.resource.parts,
        profile=device.resource.profile,
        is_alone=is_alone,
    )


def bare(lease: Lease) -> Lease:
    """A lease from a lost state."""
    return Lease(lease.claim_uid, "", lease.device, share_id=lease.share_id)


def beside(lease: Lease) -> Lease:
    """The lease while another one has a part of the same hardware."""
    return dataclasses.replace(lease, is_alone=False)


def _consumed(device: AllocatableDevice) -> Mapping[str, str]:
    amounts = device.api.capacity or {}
    return {
        name: str((one.request_policy and one.request_policy.default) or one.value)
        for name, one in amounts.items()
    }


def _form(device: AllocatableDevice) -> object:
    resource = device.resource
    return resource.profile, bool(resource.parts), bool(device.api.allow_multiple_allocations)


def _are_siblings(one: AllocatableDevice, other: AllocatableDevice) -> bool:
    mine, its = one.resource, other.resource
    return (
        mine.parent == its.parent
        and bool(mine.parts and its.parts)
        and not set(mine.parts) & set(its.parts)
    )
