# SPDX-License-Identifier: Apache-2.0
"""Which objects do the daemon's services share? Backends, API client, state file, CDI directory, locks, log.

The class has the name of `kubelet.Dependencies`, which has the same purpose in the kubelet.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import Backend, config_kinds_of
from dra_driver.backends.registry import Loaded, load_backends, next_step
from dra_driver.config.settings import Settings
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.events import Observer
from dra_driver.model.ids import PodUid, PoolName
from dra_driver.node.boot import read_boot_id
from dra_driver.node.cdi_dir import CdiDirectory
from dra_driver.node.cgroups import PodCgroups
from dra_driver.node.lock import Locks
from dra_driver.node.memory import PublishedMemory
from dra_driver.node.metadata_dir import MetadataDirectory
from dra_driver.node.state import StateStore
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.inventory import InventoryFeed
from dra_driver.services.moved import MovedDevices
from dra_driver.services.node_inventory import NodeInventory
from dra_driver.services.watch_health import HealthFeed

STATE_FILE = "state.db"
LOCK_DIRECTORY = "locks"
PEER_DIRECTORY = "peers"
METADATA_DIRECTORY = "metadata"

Point = Callable[[str], None]


def make_backends(settings: Settings) -> Loaded:
    """Make the backends that the settings name, with this node's name and their options. Raises Fatal."""
    chosen = {backend.name: backend.options for backend in settings.backends}
    return load_backends(chosen, settings.node.name, settings.node.driver)


def metadata_directory(settings: Settings) -> Path:
    """Return the directory of the metadata files. The container runtime mounts them from there, so it is a path of the node."""
    return settings.kubelet.plugin_dir(settings.node.driver) / METADATA_DIRECTORY


def pod_cgroups(settings: Settings) -> PodCgroups:
    """Return a reader of the cgroups of pods on this node.

    If the driver runs in a pod, the reader must also find the cgroup of this pod: so a wrong --cgroup-root is noticed.
    """
    own = settings.kubelet.pod_uid
    return PodCgroups(settings.cgroup_root, own_pod=PodUid(own) if own else None)


class Dependencies(Struct, frozen=True):
    """The objects that all services share. `make_dependencies` makes them once, before any thread starts."""

    settings: Settings
    place: NodePlace
    kube: HttpKubeApi
    backends: Mapping[str, Backend]
    inventory: NodeInventory
    memory: PublishedMemory
    health: HealthFeed
    moved: MovedDevices
    store: StateStore
    cdi: CdiDirectory
    locks: Locks
    log: FilteringBoundLogger
    observe: Observer
    point: Point


def make_dependencies(
    settings: Settings, log: FilteringBoundLogger, observe: Observer, point: Point
) -> Dependencies:
    """Open the files and make the clients. Raises Fatal when one of them cannot be made."""
    place = _place(settings)
    # The backends come first: a wrong option is reported before any file is touched.
    loaded = make_backends(settings)
    for error in loaded.left_out:
        log.warning("backend_left_out", error=error, next_step="auto goes on without it")
    if not loaded.backends:
        log.warning("no_hardware_known", next_step=next_step())
    kube = HttpKubeApi(
        connect(settings.kubeconfig),
        driver=place.driver,
        node=settings.node.name,
        observe=observe,
    )
    store = _open_state(settings, point)
    if store.quarantined is not None:
        log.error(
            "state_file_damaged",
            set_aside_as=str(store.quarantined),
            next_step="keep it; the state is rebuilt",
        )
    inventory, memory = _inventory(loaded.backends, store, place, log)
    moved = MovedDevices(store, place.pool, log=log)
    health = HealthFeed(inventory.current, place.pool, age=inventory.age, moved=moved)
    inventory.subscribe(health.wake)
    metadata = MetadataDirectory(metadata_directory(settings), point=point)
    cdi = CdiDirectory(settings.cdi_dir, place.cdi_kind, metadata, point=point)
    locks = Locks(settings.state_dir / LOCK_DIRECTORY)
    return Dependencies(
        settings=settings,
        place=place,
        kube=kube,
        backends=loaded.backends,
        inventory=inventory,
        memory=memory,
        health=health,
        moved=moved,
        store=store,
        cdi=cdi,
        locks=locks,
        log=log,
        observe=observe,
        point=point,
    )


def _inventory(
    backends: Mapping[str, Backend], store: StateStore, place: NodePlace, log: FilteringBoundLogger
) -> tuple[NodeInventory, PublishedMemory]:
    feeds = {
        name: InventoryFeed(backend, log=log.bind(backend=name))
        for name, backend in backends.items()
    }
    # At the start the backends of the devices come from the record; later they are written into it.
    recall = PublishedMemory(store, place.pool).backends
    kinds = {name: config_kinds_of(backend) for name, backend in backends.items()}
    inventory = NodeInventory(feeds, kinds=kinds, recall=recall, log=log)
    return inventory, PublishedMemory(store, place.pool, backend_of=inventory.backend_of)


def _open_state(settings: Settings, point: Point) -> StateStore:
    return StateStore(
        settings.state_dir / STATE_FILE,
        boot_id=read_boot_id(settings.node.boot_id_file),
        point=point,
    )


def _place(settings: Settings) -> NodePlace:
    # One pool per node, named after the node, as in dra-example-driver and NVIDIA's driver.
    wanted = settings.device_metadata == "files"
    root = str(metadata_directory(settings)) if wanted else ""
    return NodePlace(settings.node.driver, PoolName(settings.node.name), root)
