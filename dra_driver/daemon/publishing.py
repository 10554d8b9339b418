# SPDX-License-Identifier: Apache-2.0
"""How is the publisher of the slices connected: what does it read, and who wakes it?"""

from collections.abc import Mapping, Sequence

from dra_driver.daemon.dependencies import Dependencies
from dra_driver.daemon.path_watch import PathWatch
from dra_driver.kubelet.dra import Unprepare
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import (
    ClaimPrepared,
    DevicesFreed,
    DevicesHeld,
    DriverEvent,
    HeldCounted,
    Observer,
)
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import Path
from dra_driver.planning.occupied import Occupied
from dra_driver.planning.taints import devices_held_by
from dra_driver.services.foreign.guard import ForeignGuard
from dra_driver.services.parts import NodeParts
from dra_driver.services.publish import Publisher
from dra_driver.services.unprepare import UnprepareClaims
from dra_driver.services.vanished import PublisherInputs


def make_publisher(deps: Dependencies, path: PathWatch, guard: ForeignGuard) -> Publisher:
    """Return the publisher of this node's slices; it wakes when the inventory, the path or the guard change."""

    def offered() -> Inventory:
        return path.for_dra(deps.inventory.known(), owned)

    def owned() -> frozenset[DeviceName]:
        with deps.store.reading() as state:
            return state.claimed_devices(deps.place.pool)

    def occupied() -> Occupied:
        with deps.store.reading() as state:
            return state.occupied(deps.place.pool)

    def held() -> frozenset[DeviceName]:
        with deps.store.reading() as state:
            held = devices_held_by(state.held_claims(), deps.place.pool)
            return held | state.plugin_devices(deps.place.pool)

    inputs = PublisherInputs(
        offered,
        owned,
        deps.health.set_kept,
        deps.memory,
        held=held,
        ages=deps.inventory.ages,
        occupied=occupied,
        foreign=guard.taints,
        expects_claims=path.wish is not Path.DEVICE_PLUGIN
        or Path.DRA in deps.settings.plugin.policy.paths.values(),
        moved=deps.moved,
    )
    publisher = Publisher(deps.kube, inputs, place=deps.place, observe=deps.observe, log=deps.log)
    for source in (deps.inventory, path, guard):
        source.subscribe(publisher.wake)
    return publisher


def publishes_held(publisher: Publisher) -> Observer:
    """Publish when devices are held or free, or when a new owner has the hardware of other devices. The leader counts every second what
    another process holds or frees.
    """

    def observe(event: DriverEvent) -> None:
        if isinstance(event, DevicesHeld | DevicesFreed | HeldCounted):
            publisher.wake()  # it does not block, whatever the caller holds
        elif isinstance(event, ClaimPrepared):
            publisher.prepared()

    return observe


def unprepares(parts: NodeParts, publisher: Publisher) -> Unprepare:
    """Return what answers an unprepare call, and publishes what follows from it."""
    unprepare = UnprepareClaims(parts)

    def unprepare_and_publish(
        refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        results = unprepare(refs, until=until)
        # A device that vanished stays in its slice while a claim owns it. One of these claims may have been the owner. And a
        # device that is held from now on gets a taint.
        publisher.released()
        return results

    return unprepare_and_publish
