# SPDX-License-Identifier: Apache-2.0
"""Which objects does the daemon have, and how are they connected? This module makes all of them from the settings.

All other modules get the objects that they need as arguments. So only this module names the concrete class behind each interface, with
those that it calls for a part: `publishing.py`, `foreign.py`, `plugin_path.py`, `node_writers.py`. Read it to find which object calls which.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.config.settings import Settings
from dra_driver.daemon.dependencies import (
    PEER_DIRECTORY,
    Dependencies,
    Point,
    make_dependencies,
    pod_cgroups,
)
from dra_driver.daemon.foreign import foreign_guard
from dra_driver.daemon.http_endpoint import Check, HttpEndpoint
from dra_driver.daemon.leader_loops import Loop, leader_loops
from dra_driver.daemon.leadership import Leadership
from dra_driver.daemon.liveness import Liveness
from dra_driver.daemon.log_queue import LogQueue
from dra_driver.daemon.logs import log_events
from dra_driver.daemon.membership import Membership
from dra_driver.daemon.metrics import Metrics
from dra_driver.daemon.node_writers import node_loops
from dra_driver.daemon.path_watch import PathWatch
from dra_driver.daemon.plugin_starter import PluginStarter
from dra_driver.daemon.publishing import make_publisher, publishes_held, unprepares
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.daemon.usage_sampling import usage_loops
from dra_driver.errors import DriverError
from dra_driver.kubelet.dra import Unprepare
from dra_driver.kubelet.pod_resources import PodResources
from dra_driver.kubelet.server import KubeletServer, KubeletSockets
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import (
    CgroupsNotFound,
    DriverEvent,
    Observer,
)
from dra_driver.model.ids import ClaimUid
from dra_driver.node.peers import Peers
from dra_driver.services.adopt import take_up_pod_claims
from dra_driver.services.claim_status import ClaimStatuses
from dra_driver.services.execute import Executor, Hands
from dra_driver.services.follow import ClaimFollower
from dra_driver.services.hardware import HardwareRecord, LeasedHardware
from dra_driver.services.health_changes import HealthChanges
from dra_driver.services.held import HeldDevices
from dra_driver.services.node_inventory import NodeInventory
from dra_driver.services.parts import ClaimReader, NodeParts, PresenceOf, Usage
from dra_driver.services.prepare import PrepareClaims
from dra_driver.services.publish import Publisher
from dra_driver.services.recover import recover
from dra_driver.services.release import Releasable
from dra_driver.services.route import Route
from dra_driver.services.tell import Teller

FETCHERS = 8
WORKERS = 32


class Daemon(Struct, frozen=True):
    """The parts that `lifecycle` starts and stops.

    `threads` maps the name of a thread to the loop that it runs. Shutdown calls these functions in this order: `close_connections`
    ends the running requests to the API server; `stop_workers` ends idle workers; `unfinished` returns the claims whose devices are
    still being set up; `close` closes the state file and releases the locks that the next process waits for.
    """

    kubelet: KubeletServer
    inventory: NodeInventory
    http: HttpEndpoint | None
    supervisor: Supervisor
    membership: Membership
    threads: Mapping[str, Loop]
    adopt_claims: Callable[[], None]
    recover: Callable[[], Mapping[ClaimUid, DriverError]]
    close_connections: Callable[[], None]
    stop_workers: Callable[[], None]
    unfinished: Callable[[], tuple[ClaimRef, ...]]
    close: Callable[[], None]


def compose(
    settings: Settings, *, log: FilteringBoundLogger, lines: LogQueue, point: Point
) -> Daemon:
    """Make all parts. No thread runs and no socket exists yet. Raises Fatal when a part cannot be made."""
    teller, metrics = Teller(log), Metrics(lines_dropped=lines.dropped, lines_waiting=lines.waiting)
    observers: list[Observer] = [log_events(log), metrics, teller]
    deps = make_dependencies(settings, log, _fan_out(observers), point)
    # Two pools, so that reading a claim from the API server never waits for a slow device.
    fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="work")

    # The follower needs `held_devices`, `held_devices` needs `parts`, and `parts` needs the follower. So the follower gets this
    # function, which reads `held_devices` only when it is called.
    def changed(ref: ClaimRef) -> None:
        held_devices.suspect(ref)

    follower = _follower(deps, changed)
    observers.append(follower)
    plugin = PluginStarter(deps, supervisor := Supervisor(log, deps.observe))
    parts = _node_parts(deps, (fetchers, workers), follower, plugin)
    path = _path_watch(deps, lambda: kubelet.registrar.registered)
    guard, guard_loop = foreign_guard(deps, parts.usage.presence, plugin.units)
    publisher = make_publisher(deps, path, guard)
    _tell_of_health(deps)
    observers.append(publishes_held(publisher))
    held_devices = HeldDevices(parts, deps.store, freed=publisher.released, log=log)
    checks: dict[str, Check] = {}
    sockets = _sockets(settings)
    peers = Peers(settings.state_dir / PEER_DIRECTORY)
    membership = Membership(peers, deps.place.driver, sockets, log)
    prepare = PrepareClaims(parts, guard.refusing(deps.kube.get_claim), fetchers, may_hang=True)
    kubelet = _kubelet(deps, sockets, (prepare, unprepares(parts, publisher)), checks)
    ours, plugins = (held_devices, follower), (plugin.resources, guard)
    loops = dict(leader_loops(deps, parts, publisher, membership, ours, plugins=plugins))
    loops |= {**_claim_statuses(deps, parts, observers), **node_loops(deps, observers, plugin)}
    loops |= {"path": partial(plugin.run, parts, path, guard), "foreign-guard": guard_loop}
    loops |= usage_loops(deps, metrics.registry, observers)
    start_leading = partial(_start_all, supervisor, loops)
    leadership = Leadership(deps.locks, start_leading, observe=deps.observe, log=log)
    # `kubelet` has this dict already: the checks need parts that did not exist when `kubelet` was made.
    liveness = Liveness(kubelet.unanswered, kubelet.calls)
    checks |= _checks(liveness, _readiness(kubelet, publisher, leadership, deps.inventory, plugin))

    return Daemon(
        kubelet=kubelet,
        inventory=deps.inventory,
        http=_http(settings, metrics, checks),
        supervisor=supervisor,
        membership=membership,
        threads={
            "liveness": liveness.run,
            "registration": kubelet.run,
            "leadership": leadership.run,
            "lock-files": deps.locks.run,
            "events": lambda stop: teller.run(stop, deps.kube.emit_event),
        },
        adopt_claims=partial(_adopt_claims, deps, parts),
        recover=partial(recover, parts, deps.store, deps.cdi.documents, boot_id=deps.store.boot_id),
        close_connections=deps.kube.close,
        stop_workers=partial(_stop_workers, (fetchers, workers)),
        unfinished=parts.executor.unfinished,
        close=partial(_close, deps, leadership, membership),
    )


def _path_watch(deps: Dependencies, registered: Callable[[], bool]) -> PathWatch:
    return PathWatch(
        deps.settings.plugin.path,
        serves=deps.kube.serves_dra,
        registered=registered,
        kubelet_version=deps.kube.kubelet_version,
        observe=deps.observe,
    )


def _kubelet(
    deps: Dependencies,
    sockets: KubeletSockets,
    calls: tuple[PrepareClaims, Unprepare],
    checks: Mapping[str, Check],
) -> KubeletServer:
    return KubeletServer(
        sockets,
        driver=deps.place.driver,
        calls=calls,
        feed=deps.health,
        checks=checks,
        log=deps.log,
    )


def _tell_of_health(deps: Dependencies) -> None:
    """After the publisher and the kubelet's stream have subscribed: people are told last."""
    deps.inventory.subscribe(
        HealthChanges(deps.inventory.current, deps.observe, remembered=deps.moved.uuids)
    )


def _start_all(supervisor: Supervisor, loops: Mapping[str, Loop]) -> None:
    for name, loop in loops.items():
        supervisor.start(name, loop)


def _follower(deps: Dependencies, changed: Callable[[ClaimRef], None]) -> ClaimFollower:
    return ClaimFollower(
        deps.kube,
        deps.store,
        deps.place,
        changed=changed,
        observe=deps.observe,
        log=deps.log,
    )


def _claim_statuses(
    deps: Dependencies, parts: NodeParts, observers: list[Observer]
) -> Mapping[str, Loop]:
    """Return the loop that writes status.devices; nothing if the admin did not choose it."""
    if deps.settings.device_status == "none":
        return {}
    door = (deps.kube.get_claim, deps.kube.report_devices)
    statuses = ClaimStatuses(parts, deps.store, door, log=deps.log)
    observers.append(statuses)
    return {"claim-statuses": statuses.run}


def _adopt_claims(deps: Dependencies, parts: NodeParts) -> None:
    deps.cdi.prepare()
    deps.locks.clear_leftovers()
    # The state file may be lost while pods use devices. These claims are adopted before the driver serves its first call:
    # otherwise it could give their devices to another claim.
    held = parts.releasable.pod_devices
    take_up_pod_claims(parts, deps.store, deps.cdi.documents, held, at_start=True)


def _stop_workers(pools: Iterable[ThreadPoolExecutor]) -> None:
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)


def _close(deps: Dependencies, leadership: Leadership, membership: Membership) -> None:
    deps.store.close()
    leadership.end()
    membership.leave()


def _node_parts(
    deps: Dependencies,
    pools: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
    follower: ClaimFollower,
    plugin: PluginStarter,
) -> NodeParts:
    settings = deps.settings
    fetchers, workers = pools

    def lock(names: Iterable[str], until: float, purpose: str) -> AbstractContextManager[None]:
        return deps.locks.locked(names, until=until, purpose=purpose)

    route = Route(deps.backends, deps.inventory.backend_of)
    learn = HardwareRecord(deps.store, deps.place.pool).learn
    hardware = LeasedHardware(route, deps.store, deps.inventory.current, lock, learn)
    usage = Usage(deps.store, _presence(deps), hardware.in_use)
    hands = Hands(
        cdi=deps.cdi,
        configure=hardware.configure,
        reset=hardware.reset,
        still_used=usage,
        point=deps.point,
    )
    pods = PodResources(settings.kubelet.pod_resources_socket, deps.kube.kubelet_version)
    return NodeParts(
        place=deps.place,
        inventory=deps.inventory.current,
        store=deps.store,
        cdi=deps.cdi,
        executor=Executor(hands, workers),
        releasable=Releasable(deps.place, pods, deps.kube.get_claim, plugin.units_needed),
        lock=lock,
        ask=ClaimReader(deps.kube.get_claim, fetchers),
        usage=usage,
        learn=learn,
        followed=follower.followed,
        catch_up=follower.catch_up,
        reserved=follower.reserved,
        unwatched=follower.unwatched,
        observe=deps.observe,
    )


def _presence(deps: Dependencies) -> PresenceOf | None:
    """Return the function that checks the cgroups of a claim's pods, to prove that the pods have ended.

    None if the admin chose `--release-proof unprepare`: then the kubelet's unprepare call is the proof.
    """
    settings = deps.settings
    if settings.release_proof == "unprepare":
        deps.log.warning(
            "unprepare_is_believed",
            consequence="a device can reach its next pod while containers of a pod that was deleted by force still use it",
        )
        return None
    cgroups = pod_cgroups(settings)
    if reason := cgroups.blind():
        deps.observe(CgroupsNotFound(reason))
    return cgroups.presence


def _readiness(
    kubelet: KubeletServer,
    publisher: Publisher,
    leadership: Leadership,
    inventory: NodeInventory,
    plugin: PluginStarter,
) -> Check:
    """Return the check for /readyz.

    Where the device plugin API is served, a process is ready when the kubelet knows its resources. With DRA, when three things are true: the kubelet has registered the process, the devices have been scanned, and the
    slices have been written once. A later outage of the API server does not make the process unready. A process that stands by
    writes no slices, and is ready without them: a rolling update ends the old process only when the new one is ready, so it would
    be a deadlock to wait for leadership here.
    """

    def ready() -> tuple[str, ...]:
        if (resources := plugin.problems()) is not None:
            return resources
        problems = (
            [] if kubelet.registrar.registered else [f"not registered: {kubelet.registrar.reason}"]
        )
        if unknown := inventory.unknown():
            problems.append(unknown)
        if not (publisher.published_once.is_set() or leadership.standing_by.is_set()):
            problems.append("the slices of this node have not been written yet")
        return tuple(problems)

    return ready


def _checks(liveness: Liveness, ready: Check) -> Mapping[str, Check]:
    """Return the checks by the service names of grpc.health.v1. Each check answers at once, and waits for no other thread."""
    return {"": liveness.problems, "liveness": liveness.problems, "readiness": ready}


def _http(settings: Settings, metrics: Metrics, checks: Mapping[str, Check]) -> HttpEndpoint | None:
    if settings.http_address is None:
        return None
    metrics.ask_readiness(checks["readiness"])
    paths = {"/livez": checks["liveness"], "/readyz": checks["readiness"]}
    return HttpEndpoint(settings.http_address, metrics.registry, paths)


def _sockets(settings: Settings) -> KubeletSockets:
    driver = settings.node.driver
    return KubeletSockets(
        endpoint=settings.kubelet.endpoint(driver),
        registration=settings.kubelet.registration(driver),
    )


def _fan_out(observers: Sequence[Observer]) -> Observer:
    def observe(event: DriverEvent) -> None:
        for observer in observers:
            observer(event)

    return observe
