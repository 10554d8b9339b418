# SPDX-License-Identifier: Apache-2.0
"""What only the leader of a node does, each duty on a thread of its own until it is told to stop."""

from collections.abc import Callable, Mapping
from itertools import chain, repeat
from threading import Event

from structlog.typing import FilteringBoundLogger

from dra_driver.daemon.dependencies import Ground
from dra_driver.daemon.membership import Membership
from dra_driver.errors import DriverError
from dra_driver.kubelet.pod_resources import allocatable
from dra_driver.services.follow import ClaimFollower
from dra_driver.services.held import HeldDevices
from dra_driver.services.neighbours import NeighbourWatch
from dra_driver.services.parts import NodeParts
from dra_driver.services.publish import Publisher
from dra_driver.services.restore import RestoreFiles
from dra_driver.services.sweep import Sweep

SWEEP_SECONDS = (5.0, 30.0, 120.0, 600.0)  # between tries while something could not be asked

Duty = Callable[[Event], None]


def leaders_duties(
    ground: Ground,
    parts: NodeParts,
    publisher: Publisher,
    membership: Membership,
    ownership: tuple[HeldDevices, ClaimFollower],
) -> Mapping[str, Duty]:
    """The duties by the names of their threads."""
    keeper, follower = ownership
    log, cdi, socket = ground.log, ground.cdi, ground.settings.kubelet.pod_resources_socket
    sweep = Sweep(
        parts,
        ground.store,
        cdi.documents,
        lambda: ground.kube.allocated_claims(ground.place.pool),
    )
    neighbours = NeighbourWatch(
        ground.place.driver,
        lambda: allocatable(socket),
        ground.inventory.known,
        ground.kube.emit_event,
        log=log,
    )
    files = RestoreFiles(parts, ground.store, cdi.entries, log=log)
    return {
        "publish": publisher.run,
        "watch": publisher.watch,
        "held-devices": keeper.run,
        "follow-claims": follower.run,
        "sweep": lambda stop: _sweep(sweep, stop, log),
        "cdi-files": files.run,
        "neighbours": neighbours.run,
        "strangers": lambda stop: membership.watch(stop, ground.kube.emit_event),
    }


def _sweep(sweep: Sweep, stop: Event, log: FilteringBoundLogger) -> None:
    """Once after the start; again while something could not be asked."""
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
