# SPDX-License-Identifier: Apache-2.0
"""The one place where concrete classes meet: settings in, running parts out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, repeat
from threading import Event

from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import Backend, BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.config import Settings
from dra_driver.daemon.http_endpoint import Check, HttpEndpoint
from dra_driver.daemon.leadership import Leadership
from dra_driver.daemon.logs import log_events
from dra_driver.daemon.membership import Membership
from dra_driver.daemon.metrics import Metrics
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.errors import DriverError
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kubelet.dra import Unprepare
from dra_driver.kubelet.pod_resources import PodResources, allocatable
from dra_driver.kubelet.server import KubeletServer, KubeletSockets
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import DriverEvent, Observer
from dra_driver.model.ids import ClaimUid, DeviceName, PoolName
from dra_driver.model.plan import Refusal
from dra_driver.node.boot import read_boot_id
from dra_driver.node.cdi_dir import CdiDirectory
from dra_driver.node.files import never
from dra_driver.node.lock import Locks
from dra_driver.node.memory import PublishedMemory
from dra_driver.node.peers import Peers
from dra_driver.node.state import StateStore
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.execute import Executor, Hands
from dra_driver.services.inventory import InventoryFeed
from dra_driver.services.neighbours import NeighbourWatch
from dra_driver.services.prepare import NodeParts, PrepareClaims
from dra_driver.services.publish import Publisher, PublisherInputs
from dra_driver.services.recover import recover
from dra_driver.services.release import Releasable
from dra_driver.services.restore import RestoreFiles
from dra_driver.services.sweep import Sweep
from dra_driver.services.unprepare import UnprepareClaims
from dra_driver.services.watch_health import HealthFeed

STATE_FILE = "state.db"
LOCK_DIRECTORY = "locks"
PEER_DIRECTORY = "peers"
FETCHERS = 8
WORKERS = 32
SWEEP_SECONDS = (5.0, 30.0, 120.0, 600.0)  # between tries while something could not be asked

Point = Callable[[str], None]
Duty = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Daemon:
    """The running parts, as the life cycle sees them."""

    kubelet: KubeletServer
    inventory: InventoryFeed
    http: HttpEndpoint | None
    supervisor: Supervisor
    membership: Membership
    threads: Mapping[str, Duty]
    recover: Callable[[], Mapping[ClaimUid, DriverError]]
    close: Callable[[], None]


def make_backend(settings: Settings) -> Backend:
    """The chosen backend, told this node's name and its options."""
    context = BackendContext(node_name=settings.node.name, options=settings.backend.options)
    return load_backend(settings.backend.name, context)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What everything else stands on: the doors, the files of this node, and who hears what happens."""

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


def compose(settings: Settings, *, log: FilteringBoundLogger, point: Point) -> Daemon:
    """Make all parts; nothing runs yet. Raises Fatal when a part cannot be made."""
    metrics = Metrics()
    ground = _ground(settings, log, _both(log_events(log), metrics), point)
    # Two pools: claims that are being read never wait for a device that takes its time.
    fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="work")
    parts = _node_parts(ground, workers)
    publisher = _publisher(ground)
    supervisor = Supervisor(log, ground.observe)
    checks: dict[str, Check] = {}
    sockets = _sockets(settings)
    membership = Membership(
        Peers(settings.state_dir / PEER_DIRECTORY), ground.place.driver, sockets, log
    )
    kubelet = KubeletServer(
        sockets,
        driver=ground.place.driver,
        calls=(PrepareClaims(parts, ground.kube.get_claim, fetchers), _unprepare(parts, publisher)),
        feed=ground.health,
        checks=checks,
        log=log,
    )
    documents = ground.cdi.documents
    sweep = Sweep(
        parts, ground.store, documents, lambda: ground.kube.allocated_claims(ground.place.pool)
    )

    neighbours = NeighbourWatch(
        ground.place.driver,
        lambda: allocatable(settings.kubelet.pod_resources_socket),
        ground.inventory.current,
        ground.kube.emit_event,
        log=log,
    )
    files = RestoreFiles(parts, ground.store, documents, ground.cdi.fingerprint, log=log)
    duties: Mapping[str, Duty] = {
        "publish": publisher.run,
        "watch": publisher.watch,
        "sweep": lambda stop: _sweep(sweep, stop, log),
        "cdi-files": files.run,
        "neighbours": neighbours.run,
        "strangers": lambda stop: membership.watch(stop, ground.kube.emit_event),
    }

    def lead() -> None:
        for name, duty in duties.items():
            supervisor.start(name, duty)

    leadership = Leadership(ground.locks, lead, observe=ground.observe, log=log)
    checks |= _checks(kubelet, publisher, leadership)

    def recover_local() -> Mapping[ClaimUid, DriverError]:
        ground.cdi.prepare()
        return recover(parts, ground.store, documents, boot_id=ground.store.boot_id)

    def close() -> None:
        for pool in (fetchers, workers):
            pool.shutdown(wait=False, cancel_futures=True)
        ground.kube.close()
        ground.store.close()
        leadership.end()
        membership.leave()

    return Daemon(
        kubelet=kubelet,
        inventory=ground.inventory,
        http=_http(settings, metrics, checks),
        supervisor=supervisor,
        membership=membership,
        threads={
            "inventory": ground.inventory.run,
            "registration": kubelet.run,
            "leadership": leadership.run,
        },
        recover=recover_local,
        close=close,
    )


def _ground(
    settings: Settings, log: FilteringBoundLogger, observe: Observer, point: Point
) -> _Ground:
    place = _place(settings)
    kube = HttpKubeApi(connect(settings.kubeconfig), driver=place.driver, node=settings.node.name)
    backend = make_backend(settings)
    inventory = InventoryFeed(backend, log=log)
    health = HealthFeed(inventory.current, place.pool)
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
    return _Ground(
        settings, place, kube, backend, inventory, health, store, cdi, locks, log, observe, point
    )


def _node_parts(ground: _Ground, workers: ThreadPoolExecutor) -> NodeParts:
    settings = ground.settings

    def lock(names: Iterable[str], until: float, purpose: str) -> AbstractContextManager[None]:
        return ground.locks.held(names, until=until, purpose=purpose)

    backend = ground.backend
    hands = Hands(
        cdi=ground.cdi,
        configure=backend.configure,
        reset=backend.reset,
        lock=lock,
        point=ground.point,
    )
    pods = PodResources(settings.kubelet.pod_resources_socket, ground.kube.kubelet_version)
    return NodeParts(
        place=ground.place,
        inventory=ground.inventory.current,
        store=ground.store,
        cdi=ground.cdi,
        executor=Executor(hands, workers),
        releasable=Releasable(ground.place.driver, pods, ground.kube.get_claim),
        lock=lock,
        observe=ground.observe,
    )


def _publisher(ground: _Ground) -> Publisher:
    def owned() -> frozenset[DeviceName]:
        with ground.store.reading() as state:
            return state.owned_devices(ground.place.pool)

    memory = PublishedMemory(ground.store, ground.place.pool)
    inputs = PublisherInputs(ground.inventory.current, owned, ground.health.set_kept, memory)
    publisher = Publisher(
        ground.kube, inputs, place=ground.place, observe=ground.observe, log=ground.log
    )
    ground.inventory.subscribe(publisher.wake)
    return publisher


def _unprepare(parts: NodeParts, publisher: Publisher) -> Unprepare:
    unprepare = UnprepareClaims(parts)

    def unprepare_and_look(refs: Sequence[ClaimRef]) -> Mapping[ClaimUid, Refusal | None]:
        answers = unprepare(refs)
        publisher.released()  # a vanished device that one of these held may leave its slice now
        return answers

    return unprepare_and_look


def _checks(
    kubelet: KubeletServer, publisher: Publisher, leadership: Leadership
) -> Mapping[str, Check]:
    """Live: our own sockets answer. Ready: registered, and the slices written once; a later outage of the API server does not count.

    Who stands by writes no slices: an update waits until the new process is ready before it ends the old one.
    """

    def ready() -> tuple[str, ...]:
        wrong = (
            [] if kubelet.registrar.registered else [f"not registered: {kubelet.registrar.reason}"]
        )
        if not (publisher.published_once.is_set() or leadership.standing_by.is_set()):
            wrong.append("the slices of this node have not been written yet")
        return tuple(wrong)

    return {"": kubelet.unanswered, "liveness": kubelet.unanswered, "readiness": ready}


def _http(settings: Settings, metrics: Metrics, checks: Mapping[str, Check]) -> HttpEndpoint | None:
    if settings.http_address is None:
        return None
    paths = {"/livez": checks["liveness"], "/readyz": checks["readiness"]}
    return HttpEndpoint(settings.http_address, metrics.registry, paths)


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


def _open_state(settings: Settings, point: Point = never) -> StateStore:
    return StateStore(
        settings.state_dir / STATE_FILE,
        boot_id=read_boot_id(settings.node.boot_id_file),
        point=point,
    )


def _place(settings: Settings) -> NodePlace:
    # One pool for each node, of the node's name, as the other drivers of this field have it.
    return NodePlace(settings.node.driver, PoolName(settings.node.name))


def _sockets(settings: Settings) -> KubeletSockets:
    driver = settings.node.driver
    return KubeletSockets(
        endpoint=settings.kubelet.endpoint(driver),
        registration=settings.kubelet.registration(driver),
    )


def _both(*observers: Observer) -> Observer:
    def observe(event: DriverEvent) -> None:
        for observer in observers:
            observer(event)

    return observe
