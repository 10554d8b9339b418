# SPDX-License-Identifier: Apache-2.0
"""Which vanished devices stay in the slices? Only devices that a claim owns.

The scheduler would give a vanished device to the next pod, so the driver removes a device without owner from its slice at once. A
device that a claim owns stays, with a taint, as long as the claim owns it. A claim with admin access owns no device: a pod that
monitors all devices keeps none of them in the slices.

If a claim's device has another UUID than when it was prepared, the name belongs to other hardware now. Then what the claim has is
treated as vanished, and the present device is published when the claim has ended.

The driver looks for owners only if a device has vanished. It records on disk which devices it published. So an owned device also
stays if it vanished while the driver was down and the kubelet deleted the slices.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Protocol

from msgspec import Struct, field
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import Claim
from dra_driver.model.events import DeviceVanished, Observer
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import StoredSlice
from dra_driver.planning.moved import without
from dra_driver.planning.occupied import Occupied, unseen
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.reconcile import same_devices
from dra_driver.planning.slices import PoolPlan, plan_pool, with_times
from dra_driver.planning.taints import taint_times, vanished
from dra_driver.planning.unrestricted import Gate, ServerRules
from dra_driver.services.not_clean import AGAIN_SECONDS, NotClean
from dra_driver.services.watch_health import nothing_moved

KEPT_SECONDS = 60.0  # while a device is tainted because of a claim, the driver checks this often whether the claim still owns it


class Memory(Protocol):
    """The record of the devices that were published last; it survives restarts. When the kubelet has deleted the slices, only this
    record has the vanished devices.
    """

    def read(self) -> tuple[Device, ...]:
        """Return the devices that were published last. Raises DriverError."""

    def write(self, devices: Sequence[Device], /) -> None:
        """Replace the record by these devices. Raises DriverError."""

    def is_complete(self) -> bool:
        """Whether the record has all that is known of its devices. Raises DriverError."""


class NoMemory:
    """A record that is always empty."""

    def read(self) -> tuple[Device, ...]:
        return ()

    def write(self, _devices: Sequence[Device], /) -> None:
        pass

    def is_complete(self) -> bool:
        return True


def utc_now() -> datetime:
    return datetime.now(UTC)


def nothing_held() -> frozenset[DeviceName]:
    return frozenset()


def nothing_occupied() -> Occupied:
    return {}


def nobody_foreign() -> Mapping[DeviceName, str]:
    return {}


def no_ages() -> Mapping[str, float]:
    return {}


class PublisherInputs(Struct, frozen=True):
    """The functions that give the publisher its facts. `prepared_here` returns the devices that prepared claims own; `held` those of
    ended claims that may still be in use; `occupied` the hardware that all owners have; `foreign` the devices that somebody
    else's plugin gives out, each with the value of its taint; `now` is the time of new taints; `ages` the seconds since the last scan of each backend began.
    `expects_claims`: the admin did not choose another API for all devices. `moved`: the devices that claims own, and whose name or
    hardware is another one now (`dra_driver.planning.moved`).
    """

    inventory: Callable[[], Inventory]
    prepared_here: Callable[[], frozenset[DeviceName]]
    set_kept: Callable[[Sequence[DeviceName]], None]
    memory: Memory = field(default_factory=NoMemory)
    now: Callable[[], datetime] = utc_now
    held: Callable[[], frozenset[DeviceName]] = nothing_held
    ages: Callable[[], Mapping[str, float]] = no_ages
    occupied: Callable[[], Occupied] = nothing_occupied
    foreign: Callable[[], Mapping[DeviceName, str]] = nobody_foreign
    expects_claims: bool = True
    moved: Callable[[Inventory], Collection[DeviceName]] = nothing_moved


class PoolWish:
    """Plans the devices of the pool, from the devices that are present and the devices that vanished. Only one thread uses it."""

    def __init__(  # noqa: PLR0913  named at its only call
        self,
        inputs: PublisherInputs,
        claims: Callable[[PoolName], tuple[Claim, ...]],
        *,
        server: Callable[[frozenset[Gate]], ServerRules],
        place: NodePlace,
        observe: Observer,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
    ) -> None:
        """`server` returns what is known of the API server, when devices need these gates."""
        self._inputs = inputs
        self._claims = claims
        self._server = server
        self._rules = ServerRules()
        self._held: frozenset[DeviceName] = frozenset()
        self._occupied: Occupied = {}
        self._unseen: frozenset[DeviceName] = frozenset()
        self._foreign: Mapping[DeviceName, str] = {}
        self._last_inventory = Inventory()  # that of `_last`
        self._not_clean = NotClean(inputs.prepared_here, clock=clock, observe=observe, log=log)
        self._unclean: frozenset[DeviceName] = frozenset()
        self._place = place
        self._observe = observe
        self._log = log
        self._last: PoolPlan | None = None  # the last plan, whether or not it was written
        # The content of the record; None until it could be read.
        self._remembered: tuple[Device, ...] | None = None
        self._complete = False
        self._kept: tuple[Device, ...] = ()
        self._vanished: frozenset[DeviceName] = frozenset()

    @property
    def keeps_some(self) -> bool:
        """Whether a device is tainted because of a claim: a vanished device that is kept (or may be, because the record could not be
        read yet), a held one, one whose hardware a claim has, or one that is not clean and gets its taint when its claim ends.
        """
        some = self._kept or self._held or self._unseen
        return bool(some) or self._not_clean.watches or self._remembered is None

    @property
    def again_seconds(self) -> float:
        """When to plan again if nothing changes before."""
        if self._not_clean.unsure:
            return AGAIN_SECONDS
        return KEPT_SECONDS if self.keeps_some else inf

    def plan(self, slices: Mapping[str, StoredSlice]) -> PoolPlan:
        """Return the plan as of now. `slices` are the slices at the API server. Raises DriverError until the devices are known."""
        ages = self._inputs.ages()  # before the inventory, which must not be older than they say
        found = self._inputs.inventory()
        inventory = without(found, self._inputs.moved(found))
        hidden = found.by_name.keys() - inventory.by_name.keys()
        known = (*(found.by_name[name].api for name in sorted(hidden)), *self._known(slices))
        absent = {
            DeviceName(device.name): device
            for device in known
            if device.name not in inventory.by_name
        }
        # A backend that has not answered since the start costs only the freshness of its devices.
        awaited = [device for name, device in absent.items() if inventory.may_exist(name)]
        gone = {name: device for name, device in absent.items() if not inventory.may_exist(name)}
        kept = self._owned(frozenset(gone)) if gone else frozenset()
        for name in sorted(gone.keys() - self._vanished):
            self._observe(DeviceVanished(name, kept=name in kept))
        for name in sorted(
            {DeviceName(device.name) for device in self._kept} & (gone.keys() - kept)
        ):
            self._log.info("vanished_device_withdrawn", device=name)
        now = self._inputs.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._vanished = frozenset(gone)
        self._kept = tuple(vanished(device) for name, device in gone.items() if name in kept)
        self._inputs.set_kept([DeviceName(device.name) for device in self._kept])
        self._held = self._ask_held()
        self._unclean = self._not_clean.tainted(inventory, known, ages)
        self._occupied = self._ask_occupied()
        self._foreign = self._inputs.foreign()
        plan = with_times(
            self._planned(inventory, (*self._kept, *awaited)), taint_times(known), now
        )
        self._last, self._last_inventory = plan, inventory
        return plan

    def _planned(self, inventory: Inventory, kept: Sequence[Device]) -> PoolPlan:
        plan = self._plan_with(inventory, kept, self._rules)
        rules = self._server(plan.needs)
        if rules == self._rules:
            return plan
        self._rules = rules
        return self._plan_with(inventory, kept, rules)

    def _plan_with(
        self, inventory: Inventory, kept: Sequence[Device], rules: ServerRules
    ) -> PoolPlan:
        def planned(occupied: frozenset[DeviceName]) -> PoolPlan:
            return plan_pool(
                inventory,
                kept=kept,
                held=self._held,
                not_clean=self._unclean,
                occupied=occupied,
                foreign=self._foreign,
                rules=rules,
                driver=self._place.driver,
            )

        plan = planned(frozenset())
        self._unseen = unseen(inventory, self._occupied, plan)
        return planned(self._unseen) if self._unseen else plan

    def held_changed(self) -> bool:
        """Whether other devices are held than in the last plan."""
        return self._ask_held() != self._held

    def occupied_unseen(self) -> bool:
        """Whether a claim that is new since the last plan has hardware of devices that need a taint for this."""
        before, self._occupied = self._occupied, self._ask_occupied()
        new = {name: pieces for name, pieces in self._occupied.items() if name not in before}
        return self._last is not None and bool(unseen(self._last_inventory, new, self._last))

    def _ask_occupied(self) -> Occupied:
        try:
            return self._inputs.occupied()
        except DriverError as error:
            self._log.warning(
                "occupied_hardware_unknown",
                error=str(error),
                next_step="the slices stay as they are; it is asked again with the next change",
            )
            return self._occupied

    def _ask_held(self) -> frozenset[DeviceName]:
        try:
            return self._inputs.held()
        except DriverError as error:
            self._log.warning(
                "held_devices_unknown",
                error=str(error),
                next_step="the slices stay as they are; it is asked again with the next change",
            )
            return self._held

    def remember(self, plan: PoolPlan) -> None:
        """Record the plan on disk. The publisher calls this before it writes slices, so that every published device is recorded. A
        failure is only logged.
        """
        if self._remembered is None:
            return  # it could not be read yet: do not replace what it may know
        devices = tuple(plan.devices.values())
        try:
            if not same_devices(devices, self._remembered) or not self._is_complete():
                self._inputs.memory.write(devices)
                self._remembered = devices
            self._complete = True
        except DriverError as error:
            self._log.warning(
                "publication_not_remembered",
                error=str(error),
                next_step="it is published all the same, and remembered with the next change",
            )

    def _is_complete(self) -> bool:
        """Whether the record needs no other content for the same devices. Asked once: an older driver may have written it."""
        return self._complete or self._inputs.memory.is_complete()

    def _known(self, slices: Mapping[str, StoredSlice]) -> tuple[Device, ...]:
        """Return every device that the cluster may have seen. If two have the same name, callers use the later one.

        Devices from the driver's own record come after the devices in the slices, so they win: somebody else may have changed a
        slice.
        """
        present = (
            device
            for name in sorted(slices)
            for device in slices[name].devices
            if slices[name].spec.pool.name == self._place.pool
        )
        last = self._last.devices.values() if self._last else ()
        # A kept device is in no slice if the API server drops taints.
        return (*present, *self._recall(), *self._kept, *last)

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
        """Return the devices among `names` that a claim owns. If the owners cannot be read, return all of `names`."""
        try:
            here = self._inputs.prepared_here() & names
            if here == names:
                return here
            claims = self._claims(self._place.pool)
        except Exception as error:  # noqa: BLE001  one unreadable claim must not stop the publication of other devices
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
