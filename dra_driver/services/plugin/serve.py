# SPDX-License-Identifier: Apache-2.0
"""The device plugin API of this node, put together: which resources there are, what the kubelet is told, and what it gets.

`run` makes the resources and their lists anew, from the inventory, the classes and the state; its thread sleeps until one of them changes. The
kubelet's calls run on the threads of its server.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event, Lock
from typing import Protocol

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.events import Observer, ResourceProblem
from dra_driver.model.ids import DeviceName, PoolName, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, ListedUnit, PluginResource
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.occupied import Occupied
from dra_driver.planning.plugin.listed import Listing
from dra_driver.planning.plugin.preferred import prefer, together
from dra_driver.planning.plugin.resources import Resources
from dra_driver.planning.plugin.rows import units_of
from dra_driver.services.parts import AllClaims
from dra_driver.services.plugin.allocate import AllocateUnits
from dra_driver.services.plugin.holders import Holders
from dra_driver.services.plugin.offer import UnitFeed

LOOK_SECONDS = 10.0  # whatever changed without a word
# After a call: its answer goes out first, and calls that follow at once are planned for together with it.
CALL_SECONDS = 0.02

Feeds = Mapping[ResourceName, UnitFeed]
Wait = Callable[[Event, float], bool]


class OwnedRows(AllClaims, Protocol):
    """A transaction that knows which hardware the owners have."""

    def occupied(self, pool: PoolName) -> Occupied:
        """Return what the owners of the pool's devices occupy."""


class OwnedStore(Protocol):
    """The methods of the state store that the listing calls."""

    def reading(self) -> AbstractContextManager[OwnedRows]:
        """Read without a transaction."""


class PluginInputs(Struct, frozen=True):
    """What the resources are made of. `planned` returns the resources of an inventory, by the classes and the policy of now. `here` returns the devices
    that are offered through this API now, for rows and the hardware that their devices have; others are listed only for containers that have them.
    `foreign` returns the devices that somebody else's plugin gives out.
    """

    inventory: Callable[[], Inventory]
    planned: Callable[[Inventory], Resources]
    store: OwnedStore
    pool: PoolName
    here: Callable[
        [Inventory, Resources, Sequence[PreparedClaim], Occupied], Collection[DeviceName]
    ]
    foreign: Callable[[], Collection[DeviceName]] = frozenset


class PluginResources:
    """The resources of this node as they are offered now. `set_resources` gets their lists whenever the set of resources changes."""

    def __init__(
        self,
        inputs: PluginInputs,
        *,
        set_resources: Callable[[Feeds], None],
        observe: Observer,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._inputs = inputs
        self._set_resources = set_resources
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._mutex = Lock()
        self._planned: dict[ResourceName, PluginResource] = {}
        self._resources: dict[ResourceName, PluginResource] = {}
        self._feeds: dict[ResourceName, UnitFeed] = {}
        self._told: frozenset[str] = frozenset()
        self._woken = Event()
        self._called = Event()

    def planned(self) -> Mapping[ResourceName, PluginResource]:
        """Return the resources by their names, with all units that they can have on any path."""
        with self._mutex:
            return dict(self._planned)

    def find(self, name: ResourceName) -> PluginResource | None:
        """Return a resource with the units that the kubelet knows; None if it is not offered."""
        with self._mutex:
            return self._resources.get(name)

    def devices(self) -> frozenset[DeviceName]:
        """Return the devices that are listed now."""
        with self._mutex:
            resources = tuple(self._resources.values())
        return frozenset(unit.device for resource in resources for unit in resource.units)

    def wake(self) -> None:
        """Something changed: plan anew. Does not block."""
        self._woken.set()

    def wake_after_call(self) -> None:
        """A call has given out units: plan anew when its answer is on its way. Does not block."""
        self._called.set()
        self._woken.set()

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Plan after each change until `stop`."""
        while not stop.is_set():
            if self._called.is_set():
                wait(stop, CALL_SECONDS)
                self._called.clear()
            self._woken.clear()
            try:
                self.once()
            except DriverError as error:
                self._log.warning("resources_not_planned", error=str(error))
            wait(self._woken, LOOK_SECONDS)

    def once(self) -> None:
        """Plan the resources and their lists. Raises DriverError if the devices are not known, or the state cannot be read."""
        inputs = self._inputs
        inventory = inputs.inventory()
        planned = inputs.planned(inventory)
        self._tell(planned)
        with inputs.store.reading() as state:
            rows, occupied = state.all_claims(), state.occupied(inputs.pool)
        here = inputs.here(inventory, planned, rows, occupied)
        listing = Listing(
            inventory,
            rows,
            occupied,
            inputs.pool,
            offered=here.__contains__,
            foreign=inputs.foreign(),
        )
        kept = {ResourceName(row.ref.name) for row in rows if row.ref.of_plugin and row.ref.name}
        resources: dict[ResourceName, PluginResource] = {}
        lists: dict[ResourceName, tuple[ListedUnit, ...]] = {}
        for resource in (*planned.resources, *_left(planned, kept)):
            if units := listing.of(resource):
                lists[resource.name] = units
                resources[resource.name] = _known(resource, units)
        with self._mutex:
            self._planned = {resource.name: resource for resource in planned.resources}
        self._replace(resources, lists)

    def _replace(
        self,
        resources: dict[ResourceName, PluginResource],
        lists: Mapping[ResourceName, tuple[ListedUnit, ...]],
    ) -> None:
        feeds = {name: self._feeds.get(name) or UnitFeed() for name in lists}
        with self._mutex:
            # First the resources, then the lists: the kubelet may call for a unit as soon as it is listed.
            self._resources = resources
        for name, units in lists.items():
            feeds[name].set(units)
        if feeds.keys() != self._feeds.keys():
            self._set_resources(feeds)
        self._feeds = feeds

    def _tell(self, planned: Resources) -> None:
        """Tell each problem once, as long as it lasts."""
        for problem in planned.problems:
            if str(problem) not in self._told:
                where = f"{problem.where}: {problem.field}" if problem.field else problem.where
                self._observe(ResourceProblem(where, problem.found, problem.action))
        self._told = frozenset(map(str, planned.problems))


def _known(resource: PluginResource, listed: Collection[ListedUnit]) -> PluginResource:
    """The resource with its units that are listed: the others are offered on the other path, and a call that comes late must not get them."""
    ids = {unit.id for unit in listed}
    return dataclasses.replace(
        resource, units=tuple(unit for unit in resource.units if unit.id in ids)
    )


def _left(planned: Resources, kept: Collection[ResourceName]) -> Iterator[PluginResource]:
    """Resources that are not planned any more, and that containers still have."""
    names = {resource.name for resource in planned.resources}
    for name in sorted(kept):
        if name not in names:
            yield PluginResource(name, (), "a container that still has it")


class PluginWork:
    """The kubelet's questions about resources (`dra_driver.kubelet.plugin.service.PluginWork`)."""

    def __init__(
        self,
        resources: PluginResources,
        allocate: AllocateUnits,
        holders: Holders,
        inventory: Callable[[], Inventory],
    ) -> None:
        self._resources = resources
        self._allocate = allocate
        self._holders = holders
        self._inventory = inventory

    @property
    def pre_start_required(self) -> bool:
        """Never: what a device needs is set at Allocate, and stays until its pod has ended."""
        return False

    def allocate(self, name: ResourceName, ids: Sequence[UnitId], /) -> ContainerAnswer | Refusal:
        """Return what a container with these units needs."""
        resource = self._resources.find(name)
        if resource is not None and (wrong := together(resource, ids)):
            return Refusal(wrong)
        answer = self._allocate(name, ids)
        self._resources.wake_after_call()
        return answer

    def prefer(
        self,
        name: ResourceName,
        available: Sequence[UnitId],
        must_include: Sequence[UnitId],
        size: int,
        /,
    ) -> Sequence[UnitId]:
        """Return the units that fit together best."""
        resource = self._resources.find(name)
        if resource is None:
            return ()
        rows = self._holders.rows()
        taken = {unit for row in rows if row.ref.name == name for unit in units_of(row)}
        return prefer(
            resource,
            self._inventory(),
            available=available,
            must_include=must_include,
            size=size,
            taken=taken,
        )

    def pre_start(self, _name: ResourceName, _ids: Sequence[UnitId], /) -> Refusal | None:
        """Nothing is left to be done."""
        return None
