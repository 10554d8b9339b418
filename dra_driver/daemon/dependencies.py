# SPDX-License-Identifier: Apache-2.0
"""What everything else of the daemon stands on: the doors, this node's files, and who hears what happens."""

from collections.abc import Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from dra_driver.backends.auto import AUTO, next_step
from dra_driver.backends.base import Backend, BackendContext
from dra_driver.backends.registry import installed, load_backend
from dra_driver.config import Settings
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.events import Observer
from dra_driver.model.ids import PodUid, PoolName
from dra_driver.node.boot import read_boot_id
from dra_driver.node.cdi_dir import CdiDirectory
from dra_driver.node.cgroups import PodCgroups
from dra_driver.node.lock import Locks
from dra_driver.node.state import StateStore
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.inventory import InventoryFeed
from dra_driver.services.watch_health import HealthFeed

STATE_FILE = "state.db"
LOCK_DIRECTORY = "locks"
PEER_DIRECTORY = "peers"

Point = Callable[[str], None]


def make_backend(settings: Settings) -> Backend:
    """The chosen backend, told this node's name and its options."""
    context = BackendContext(node_name=settings.node.name, options=settings.backend.options)
    return load_backend(settings.backend.name, context)


def pod_cgroups(settings: Settings) -> PodCgroups:
    """Where the cgroups of pods are looked for; the driver's own pod, if it runs in one, has to be among them."""
    own = settings.kubelet.pod_uid
    return PodCgroups(settings.cgroup_root, own_pod=PodUid(own) if own else None)


@dataclass(frozen=True, slots=True)
class Ground:
    """Made once, before anything runs."""

    settings: Settings
    place: NodePlace
    kube: HttpKubeApi
    backend: Backend
    inventory: InventoryFeed
    health: HealthFeed
    store: StateStore
    cdi: CdiDirectory
    locks: Locks
    log: FilteringBoundLogger
    observe: Observer
    point: Point


def lay_ground(
    settings: Settings, log: FilteringBoundLogger, observe: Observer, point: Point
) -> Ground:
    """Make it. Raises Fatal when a part cannot be made."""
    place = _place(settings)
    backend = make_backend(settings)  # what it was told wrong is said before anybody is asked
    if settings.backend.name == AUTO:
        log.warning("no_hardware_known", next_step=next_step(installed()))
    kube = HttpKubeApi(
        connect(settings.kubeconfig),
        driver=place.driver,
        node=settings.node.name,
        observe=observe,
    )
    inventory = InventoryFeed(backend, log=log)
    health = HealthFeed(inventory.current, place.pool, age=inventory.age)
    inventory.subscribe(health.wake)
    store = _open_state(settings, point)
    if store.quarantined is not None:
        log.error(
            "state_file_damaged",
            set_aside_as=str(store.quarantined),
            next_step="keep it; the state is rebuilt",
        )
    cdi = CdiDirectory(settings.cdi_dir, place.cdi_kind, point=point)
    locks = Locks(settings.state_dir / LOCK_DIRECTORY)
    return Ground(
        settings, place, kube, backend, inventory, health, store, cdi, locks, log, observe, point
    )


def _open_state(settings: Settings, point: Point) -> StateStore:
    return StateStore(
        settings.state_dir / STATE_FILE,
        boot_id=read_boot_id(settings.node.boot_id_file),
        point=point,
    )


def _place(settings: Settings) -> NodePlace:
    # One pool for each node, of the node's name, as the other drivers of this field have it.
    return NodePlace(settings.node.driver, PoolName(settings.node.name))
