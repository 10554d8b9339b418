# SPDX-License-Identifier: Apache-2.0
"""Which loops does only the leader of a node run? Each runs on its own thread until its stop event is set."""

from collections.abc import Callable, Collection, Mapping
from itertools import chain, repeat
from threading import Event
from time import monotonic

from structlog.typing import FilteringBoundLogger

from dra_driver.daemon.dependencies import Dependencies
from dra_driver.daemon.membership import Membership
from dra_driver.errors import DriverError
from dra_driver.kubelet.pod_resources import allocatable
from dra_driver.model.state import Unknown
from dra_driver.services.binding import BindingController
from dra_driver.services.follow import ClaimFollower
from dra_driver.services.foreign.guard import ForeignGuard
from dra_driver.services.held import HeldDevices
from dra_driver.services.neighbours import NeighbourWatch
from dra_driver.services.parts import NodeParts
from dra_driver.services.publish import Publisher
from dra_driver.services.restore import RestoreFiles
from dra_driver.services.stale_capacity import StaleCapacity
from dra_driver.services.sweep import Sweep

STOP_SECONDS = 1.0  # after `stop` a thread may go on for so long
# The pauses between sweeps, as long as the last sweep could not check all claims.
SWEEP_SECONDS = (5.0, 30.0, 120.0, 600.0)

Loop = Callable[[Event], None]


def leader_loops(
    deps: Dependencies,
    parts: NodeParts,
    publisher: Publisher,
    membership: Membership,
    ownership: tuple[HeldDevices, ClaimFollower],
    *,
    plugins: tuple[Callable[[], Collection[str] | None], ForeignGuard],
) -> Mapping[str, Loop]:
    """Return the loops by the names of their threads. The log and the metric of failed threads show these names. `plugins` are the
    extended resources that this driver itself offers (None as long as they are not known), and the guard against plugins of others.
    """
    held_devices, follower = ownership
    offered, guard = plugins
    divided = deps.settings.plugin.divided
    log, cdi, socket = deps.log, deps.cdi, deps.settings.kubelet.pod_resources_socket
    sweep = Sweep(
        parts,
        deps.store,
        cdi.documents,
        lambda: deps.kube.allocated_claims(deps.place.pool),
    )
    neighbours = NeighbourWatch(
        deps.place.driver,
        lambda: _without(allocatable(socket), divided),
        deps.inventory.known,
        deps.kube.emit_event,
        own=offered,
        log=log,
        wait=_until_changed(guard),
    )
    stale = StaleCapacity(
        deps.place.pool, deps.kube.node_amounts, guard.served, deps.kube.emit_event, log=log
    )
    files = RestoreFiles(parts, deps.store, cdi.entries, log=log)
    return {
        "publish": publisher.run,
        "watch": publisher.watch,
        "held-devices": held_devices.run,
        "follow-claims": follower.run,
        "sweep": lambda stop: _sweep(sweep, stop, log),
        "cdi-files": files.run,
        "binding": BindingController(parts, deps.kube, log=log).run,
        "neighbours": neighbours.run,
        "stale-capacity": stale.run,
        "strangers": lambda stop: membership.watch(stop, deps.kube.emit_event),
    }


def _until_changed(guard: ForeignGuard) -> Callable[[Event, float], bool]:
    """Return a function that waits until other devices are kept because of plugins of others, or until its time is over."""
    changed = Event()
    guard.subscribe(changed.set)

    def wait(stop: Event, seconds: float) -> bool:
        until = monotonic() + seconds
        while not (stop.is_set() or changed.is_set()) and monotonic() < until:
            changed.wait(min(STOP_SECONDS, seconds))
        changed.clear()
        return stop.is_set()

    return wait


def _without(
    found: Mapping[str, int] | Unknown, divided: Collection[str]
) -> Mapping[str, int] | Unknown:
    """Leave out what the admin left to plugins of others."""
    if isinstance(found, Unknown):
        return found
    return {name: count for name, count in found.items() if name not in divided}


def _sweep(sweep: Sweep, stop: Event, log: FilteringBoundLogger) -> None:
    """Sweep once after the start. Sweep again later if the API server or the kubelet did not answer about a claim."""
    for seconds in chain(SWEEP_SECONDS, repeat(SWEEP_SECONDS[-1])):
        try:
            still_open = sweep.once()
        except DriverError as error:
            still_open = (str(error),)
        if not still_open:
            return
        log.info("sweep_incomplete", still_open=still_open, again_in_seconds=seconds)
        if stop.wait(seconds):
            return
