# SPDX-License-Identifier: Apache-2.0
"""Which devices that are gone stay in the slices? Those that a claim owns, and no others.

A device that is gone and free would be offered to every new pod, so it goes at once; one that is owned must not be free for
the scheduler, so it stays, tainted. Admin access owns nothing: a monitor of all devices keeps none.

Whether a device is owned is asked only when one is gone. What was published is remembered on disk, so that this holds
too when the driver was down while the device vanished and the kubelet deleted the slices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import Claim
from dra_driver.model.events import DeviceVanished, Observer
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import StoredSlice
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.reconcile import same_devices
from dra_driver.planning.slices import PoolPlan, plan_pool, tainted


class Memory(Protocol):
    """What the slices held last, across restarts: the kubelet deletes them, and then nobody else knows a vanished device."""

    def read(self) -> tuple[Device, ...]:
        """What was written last. Raises DriverError."""

    def write(self, devices: Sequence[Device], /) -> None:
        """Remember this instead. Raises DriverError."""


class NoMemory:
    """Remembers nothing."""

    def read(self) -> tuple[Device, ...]:
        return ()

    def write(self, _devices: Sequence[Device], /) -> None:
        pass


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class PublisherInputs:
    """Where this node's facts come from. `prepared_here` names devices that a prepared claim holds; `now` stamps taints."""

    inventory: Callable[[], Inventory]
    prepared_here: Callable[[], frozenset[DeviceName]]
    set_kept: Callable[[Sequence[DeviceName]], None]
    memory: Memory = field(default_factory=NoMemory)
    now: Callable[[], datetime] = utc_now


class PoolWish:
    """What the pool shall hold, by what is there and what was there. Used by one thread."""

    def __init__(
        self,
        inputs: PublisherInputs,
        claims: Callable[[PoolName], tuple[Claim, ...]],
        *,
        place: NodePlace,
        observe: Observer,
        log: FilteringBoundLogger,
    ) -> None:
        self._inputs = inputs
        self._claims = claims
        self._place = place
        self._observe = observe
        self._log = log
        self._last: PoolPlan | None = None  # what was last wished, whether or not it was written
        # What the memory holds, if it could be read.
        self._remembered: tuple[Device, ...] | None = None
        self._kept: tuple[Device, ...] = ()
        self._vanished: frozenset[DeviceName] = frozenset()

    @property
    def keeps_some(self) -> bool:
        """Whether a device that is gone stays for now."""
        return bool(self._kept)

    def plan(self, slices: Mapping[str, StoredSlice]) -> PoolPlan:
        """The wish as of now; `slices` are there. Raises DriverError while the devices are not known."""
        inventory = self._inputs.inventory()
        gone = {
            name: device
            for name, device in self._known(slices).items()
            if name not in inventory.by_name
        }
        kept = self._owned(frozenset(gone)) if gone else frozenset()
        for name in sorted(gone.keys() - self._vanished):
            self._observe(DeviceVanished(name, kept=name in kept))
        for name in sorted(
            {DeviceName(device.name) for device in self._kept} & (gone.keys() - kept)
        ):
            self._log.info("vanished_device_withdrawn", device=name)
        now = self._inputs.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._vanished = frozenset(gone)
        self._kept = tuple(
            tainted(device, self._place.driver, now)
            for name, device in gone.items()
            if name in kept
        )
        self._inputs.set_kept([DeviceName(device.name) for device in self._kept])
        plan = plan_pool(inventory, kept=self._kept)
        self._last = plan
        return plan

    def remember(self, plan: PoolPlan) -> None:
        """Before it is written, so that nothing is ever published that is not remembered. Costs a warning when it fails."""
        devices = tuple(plan.devices.values())
        if same_devices(devices, self._remembered or ()):
            return
        try:
            self._inputs.memory.write(devices)
            self._remembered = devices
        except DriverError as error:
            self._log.warning(
                "publication_not_remembered",
                error=str(error),
                next_step="it is published all the same, and remembered with the next change",
            )

    def _known(self, slices: Mapping[str, StoredSlice]) -> Mapping[DeviceName, Device]:
        """Every device that the cluster may have seen, in the order of publication."""
        remembered = {DeviceName(device.name): device for device in self._recall()}
        present = {
            DeviceName(device.name): device
            for name in sorted(slices)
            for device in slices[name].devices
            if slices[name].spec.pool.name == self._place.pool
        }
        return {**remembered, **present, **(self._last.devices if self._last else {})}

    def _recall(self) -> tuple[Device, ...]:
        if self._remembered is None:
            try:
                self._remembered = self._inputs.memory.read()
            except DriverError as error:
                self._log.warning(
                    "publication_not_recalled", error=str(error), next_step="it is tried again"
                )
        return self._remembered or ()

    def _owned(self, names: frozenset[DeviceName]) -> frozenset[DeviceName]:
        """Devices that a claim owns, these among them. Who cannot be asked may have said yes, so the answer is yes then."""
        try:
            here = self._inputs.prepared_here() & names
            if here == names:
                return here
            claims = self._claims(self._place.pool)
        except Exception as error:  # noqa: BLE001  what one claim says must not keep the other devices from being published
            self._log.warning(
                "allocations_unknown",
                error=str(error) if isinstance(error, DriverError) else repr(error),
                next_step="vanished devices stay in the slices; it is asked again",
            )
            return names
        return here | {
            DeviceName(result.device)
            for claim in claims
            for result in claim.results or ()
            if (result.driver, result.pool) == (self._place.driver, self._place.pool)
            and not result.admin_access
        }
