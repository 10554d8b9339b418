# SPDX-License-Identifier: Apache-2.0
"""The one place where concrete classes meet: settings in, running parts out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from structlog.typing import FilteringBoundLogger

from dra_driver.config import Settings
from dra_driver.daemon.dependencies import PEER_DIRECTORY, Ground, Point, lay_ground, pod_cgroups
from dra_driver.daemon.http_endpoint import Check, HttpEndpoint
from dra_driver.daemon.leader_loops import Duty, leaders_duties
from dra_driver.daemon.leadership import Leadership
from dra_driver.daemon.liveness import Liveness
from dra_driver.daemon.logs import log_events
from dra_driver.daemon.membership import Membership
from dra_driver.daemon.metrics import Metrics
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.errors import DriverError
from dra_driver.kubelet.dra import Unprepare
from dra_driver.kubelet.pod_resources import PodResources
from dra_driver.kubelet.server import KubeletServer, KubeletSockets
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import CgroupsNotFound, DriverEvent, Observer
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.plan import Refusal
from dra_driver.node.memory import PublishedMemory
from dra_driver.node.peers import Peers
from dra_driver.services.adopt import take_up_held
from dra_driver.services.execute import Executor, Hands
from dra_driver.services.follow import ClaimFollower
from dra_driver.services.held import HeldDevices
from dra_driver.services.inventory import InventoryFeed
from dra_driver.services.parts import ClaimReader, NodeParts, PresenceOf, Usage
from dra_driver.services.prepare import PrepareClaims
from dra_driver.services.publish import Publisher
from dra_driver.services.recover import recover
from dra_driver.services.release import Releasable
from dra_driver.services.tell import Teller
from dra_driver.services.unprepare import UnprepareClaims
from dra_driver.services.vanished import PublisherInputs

FETCHERS = 8
WORKERS = 32


@dataclass(frozen=True, slots=True)
class Daemon:
    """The running parts, as the life cycle sees them. In the order of the end: `hang_up` breaks off requests, `dismiss` sends
    workers home that have nothing to do, `close` gives back what other processes wait for.
    """

    kubelet: KubeletServer
    inventory: InventoryFeed
    http: HttpEndpoint | None
    supervisor: Supervisor
    membership: Membership
    threads: Mapping[str, Duty]
    take_stock: Callable[[], None]
    recover: Callable[[], Mapping[ClaimUid, DriverError]]
    hang_up: Callable[[], None]
    dismiss: Callable[[], None]
    close: Callable[[], None]


def compose(settings: Settings, *, log: FilteringBoundLogger, point: Point) -> Daemon:
    """Make all parts; nothing runs yet. Raises Fatal when a part cannot be made."""
    metrics = Metrics()
    teller = Teller(log)
    hears: list[Observer] = [log_events(log), metrics, teller]
    ground = lay_ground(settings, log, _each(hears), point)
    # Two pools: claims that are being read never wait for a device that takes its time.
    fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="work")

    def changed(ref: ClaimRef) -> None:
        keeper.suspect(ref)  # the keeper is made of parts, which ask the follower

    follower = _follower(ground, changed)
    hears.append(follower)
    parts = _node_parts(ground, fetchers, workers, follower.followed)
    publisher = _publisher(ground)
    keeper = HeldDevices(parts, ground.store, freed=publisher.released, log=log)
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
    duties = leaders_duties(ground, parts, publisher, membership, (keeper, follower))
    lead = partial(_start_all, supervisor, duties)
    leadership = Leadership(ground.locks, lead, observe=ground.observe, log=log)
    liveness = Liveness(kubelet.unanswered, kubelet.calls)
    checks |= _checks(liveness, _readiness(kubelet, publisher, leadership, ground.inventory))

    return Daemon(
        kubelet=kubelet,
        inventory=ground.inventory,
        http=_http(settings, metrics, checks),
        supervisor=supervisor,
        membership=membership,
        threads={
            "liveness": liveness.run,
            "looks": ground.inventory.look,
            "registration": kubelet.run,
            "leadership": leadership.run,
            "events": lambda stop: teller.run(stop, ground.kube.emit_event),
        },
        take_stock=partial(_take_stock, ground, parts),
        recover=partial(
            recover, parts, ground.store, ground.cdi.documents, boot_id=ground.store.boot_id
        ),
        hang_up=ground.kube.close,
        dismiss=partial(_dismiss, (fetchers, workers)),
        close=partial(_close, ground, parts, leadership, membership),
    )


def _start_all(supervisor: Supervisor, duties: Mapping[str, Duty]) -> None:
    for name, duty in duties.items():
        supervisor.start(name, duty)


def _follower(ground: Ground, changed: Callable[[ClaimRef], None]) -> ClaimFollower:
    return ClaimFollower(
        ground.kube,
        ground.store,
        ground.place,
        changed=changed,
        observe=ground.observe,
        log=ground.log,
    )


def _take_stock(ground: Ground, parts: NodeParts) -> None:
    ground.cdi.prepare()
    ground.locks.clear_leftovers()
    # Before anybody can be given the devices of pods that a lost state does not know.
    held = parts.releasable.held
    take_up_held(parts, ground.store, ground.cdi.documents, held, at_start=True)


def _dismiss(pools: Iterable[ThreadPoolExecutor]) -> None:
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)


def _close(
    ground: Ground, parts: NodeParts, leadership: Leadership, membership: Membership
) -> None:
    if unfinished := parts.executor.unfinished():
        # The work goes on and will say in the state how it ended. Until then nobody else may take this process's place: what it
        # locks is given up by its end.
        ground.log.warning("work_goes_on", claims=", ".join(map(str, unfinished)))
        return
    ground.store.close()
    leadership.end()
    membership.leave()


def _node_parts(
    ground: Ground,
    fetchers: ThreadPoolExecutor,
    workers: ThreadPoolExecutor,
    followed: Callable[[ClaimRef], bool],
) -> NodeParts:
    settings = ground.settings

    def lock(names: Iterable[str], until: float, purpose: str) -> AbstractContextManager[None]:
        return ground.locks.held(names, until=until, purpose=purpose)

    backend = ground.backend
    usage = Usage(ground.store, _presence(ground))
    hands = Hands(
        cdi=ground.cdi,
        configure=backend.configure,
        reset=backend.reset,
        still_used=usage,
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
        releasable=Releasable(ground.place, pods, ground.kube.get_claim),
        lock=lock,
        ask=ClaimReader(ground.kube.get_claim, fetchers),
        usage=usage,
        followed=followed,
        observe=ground.observe,
    )


def _presence(ground: Ground) -> PresenceOf | None:
    """What shows that pods have ended; None where the admin chose to believe the kubelet's unprepare call."""
    settings = ground.settings
    if settings.release_proof == "unprepare":
        ground.log.warning(
            "unprepare_is_believed",
            consequence="a device can reach its next pod while containers of a pod that was deleted by force still use it",
        )
        return None
    cgroups = pod_cgroups(settings)
    if reason := cgroups.blind():
        ground.observe(CgroupsNotFound(reason))
    return cgroups.presence


def _publisher(ground: Ground) -> Publisher:
    def owned() -> frozenset[DeviceName]:
        with ground.store.reading() as state:
            return state.owned_devices(ground.place.pool)

    memory = PublishedMemory(ground.store, ground.place.pool)
    inputs = PublisherInputs(ground.inventory.known, owned, ground.health.set_kept, memory)
    publisher = Publisher(
        ground.kube, inputs, place=ground.place, observe=ground.observe, log=ground.log
    )
    ground.inventory.subscribe(publisher.wake)
    return publisher


def _unprepare(parts: NodeParts, publisher: Publisher) -> Unprepare:
    unprepare = UnprepareClaims(parts)

    def unprepare_and_look(
        refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        answers = unprepare(refs, until=until)
        publisher.released()  # a vanished device that one of these held may leave its slice now
        return answers

    return unprepare_and_look


def _readiness(
    kubelet: KubeletServer, publisher: Publisher, leadership: Leadership, inventory: InventoryFeed
) -> Check:
    """Ready: registered, the devices known, and the slices written once; a later outage of the API server does not count.

    Who stands by writes no slices: an update waits until the new process is ready before it ends the old one.
    """

    def ready() -> tuple[str, ...]:
        wrong = (
            [] if kubelet.registrar.registered else [f"not registered: {kubelet.registrar.reason}"]
        )
        if unknown := inventory.unknown():
            wrong.append(unknown)
        if not (publisher.published_once.is_set() or leadership.standing_by.is_set()):
            wrong.append("the slices of this node have not been written yet")
        return tuple(wrong)

    return ready


def _checks(liveness: Liveness, ready: Check) -> Mapping[str, Check]:
    """None of them waits for anybody."""
    return {"": liveness.wrong, "liveness": liveness.wrong, "readiness": ready}


def _http(settings: Settings, metrics: Metrics, checks: Mapping[str, Check]) -> HttpEndpoint | None:
    if settings.http_address is None:
        return None
    paths = {"/livez": checks["liveness"], "/readyz": checks["readiness"]}
    return HttpEndpoint(settings.http_address, metrics.registry, paths)


def _sockets(settings: Settings) -> KubeletSockets:
    driver = settings.node.driver
    return KubeletSockets(
        endpoint=settings.kubelet.endpoint(driver),
        registration=settings.kubelet.registration(driver),
    )


def _each(observers: Sequence[Observer]) -> Observer:
    def observe(event: DriverEvent) -> None:
        for observer in observers:
            observer(event)

    return observe
