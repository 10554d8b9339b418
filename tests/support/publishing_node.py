# SPDX-License-Identifier: Apache-2.0
"""A publisher with its API server in memory and a clock that only moves by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime

from dra_driver.errors import DriverError
from dra_driver.model.api.resource_slice import Device, ResourceSliceSpec
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.events import DriverEvent
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Piece
from dra_driver.model.names import VANISHED_TAINT as VANISHED
from dra_driver.planning.occupied import Occupied
from dra_driver.planning.reconcile import slice_name
from dra_driver.services.publish import Publisher
from dra_driver.services.vanished import PublisherInputs
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_PLACE, A_POOL
from tests.support.api_values import device_taint, found_device, published, slice_spec
from tests.support.scripted_api import ScriptedApi, Step

FIRST, SECOND = (slice_name(index, A_DRIVER, A_NODE) for index in range(2))


def devices(*indices: int, **attributes: int | str) -> tuple[AllocatableDevice, ...]:
    return tuple(
        found_device(f"gpu-{index}", f"uuid-{index}", attributes=attributes) for index in indices
    )


def spec(*content: int | Device, generation: int = 1, count: int = 1) -> ResourceSliceSpec:
    found = tuple(
        device if isinstance(device, Device) else published(f"gpu-{device}") for device in content
    )
    return slice_spec(A_POOL, generation, count, found, driver=A_DRIVER, node=A_NODE)


def gone(index: int, since: str = "2026-05-04T03:02:01Z") -> Device:
    """A device that vanished and stays."""
    taint = device_taint(VANISHED, "not-found-on-node", "NoSchedule", since)
    return published(f"gpu-{index}", taints=(taint,))


class Memory:
    """What the node's disk remembers; it can fail."""

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = ()
        self.writes = 0
        self.complete = True
        self.errors: list[DriverError] = []

    def read(self) -> tuple[Device, ...]:
        if self.errors:
            raise self.errors.pop()
        return self.devices

    def write(self, devices: Sequence[Device], /) -> None:
        if self.errors:
            raise self.errors.pop()
        self.devices = tuple(devices)
        self.writes += 1

    def is_complete(self) -> bool:
        return self.complete


class Node:
    """A publisher, its API server, and a clock that only moves by hand."""

    def __init__(self, *indices: int) -> None:
        self.api = ScriptedApi()
        self.now = 5000.0
        self.inventory = Inventory(devices(*indices))
        self.unknown: DriverError | None = None
        self.prepared: frozenset[DeviceName] = frozenset()
        self.held: frozenset[DeviceName] = frozenset()
        self.held_unknown: DriverError | None = None
        self.occupied: dict[DeviceName, frozenset[Piece]] = {}
        self.occupied_unknown: DriverError | None = None
        self.occupied_asked = 0
        self.ages: dict[str, float] = {}
        self.moved: frozenset[DeviceName] = frozenset()
        self.kept: list[tuple[DeviceName, ...]] = []
        self.memory = Memory()
        self.today = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
        self.events: list[DriverEvent] = []
        self.publisher = self.restarted()

    def restarted(self) -> Publisher:
        self.publisher = Publisher(
            self.api,
            PublisherInputs(
                self._inventory,
                self._prepared,
                self._set_kept,
                self.memory,
                lambda: self.today,
                self._held,
                lambda: self.ages,
                self._occupied,
                moved=lambda _inventory: self.moved,
            ),
            place=A_PLACE,
            observe=self.events.append,
            clock=lambda: self.now,
        )
        return self.publisher

    def follow(self, *steps: Step) -> None:
        self.api.follow(self.publisher.watch, *steps)

    def step(self) -> None:
        self.publisher.step()

    def after(self, seconds: float) -> Step:
        """Time passes, then the publisher looks whether something is due."""

        def passes() -> None:
            self.now += seconds
            self.publisher.step()

        return passes

    def looks(self) -> None:
        """The publisher is woken for no reason."""
        self.publisher.wake()
        self.publisher.step()

    def has(self, *indices: int) -> Step:
        """The backend now finds these devices."""

        def changes() -> None:
            self.inventory = Inventory(devices(*indices))
            self.publisher.wake()
            self.publisher.step()

        return changes

    def finds(self, inventory: Inventory) -> Step:
        """The backend now finds this."""

        def changes() -> None:
            self.inventory = inventory
            self.publisher.wake()
            self.publisher.step()

        return changes

    def taints(self) -> dict[str, list[str]]:
        """By device, the keys of its taints in the slices."""
        return {
            device.name: [taint.key for taint in device.taints or ()]
            for stored in self.stored().values()
            for device in stored.devices or ()
        }

    def stored(self) -> dict[str, ResourceSliceSpec]:
        return {name: stored.spec for name, stored in sorted(self.api.slices.items())}

    def writes(self) -> list[str]:
        return [
            request
            for request in self.api.requests
            if request.startswith(("create", "update", "delete"))
        ]

    def told(self, *kinds: type) -> list[DriverEvent]:
        return [event for event in self.events if isinstance(event, kinds)]

    def _inventory(self) -> Inventory:
        if self.unknown:
            raise self.unknown
        return self.inventory

    def _prepared(self) -> frozenset[DeviceName]:
        return self.prepared

    def _held(self) -> frozenset[DeviceName]:
        if self.held_unknown:
            raise self.held_unknown
        return self.held

    def _occupied(self) -> Occupied:
        self.occupied_asked += 1
        if self.occupied_unknown:
            raise self.occupied_unknown
        return dict(self.occupied)

    def _set_kept(self, names: Sequence[DeviceName]) -> None:
        self.kept.append(tuple(names))
