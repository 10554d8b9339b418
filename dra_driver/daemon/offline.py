# SPDX-License-Identifier: Apache-2.0
"""How do the commands `dra-driver devices`, `release` and `cleanup` read and change this node?

They work beside a running driver, or without one. They serve no sockets, and they lock the state file only for one short
transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from threading import Timer

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.backends.base import Backend
from dra_driver.backends.recording import Snapshot, is_recordable, take
from dra_driver.backends.registry import Loaded
from dra_driver.config.settings import Settings
from dra_driver.daemon.dependencies import (
    LOCK_DIRECTORY,
    PEER_DIRECTORY,
    STATE_FILE,
    make_backends,
    metadata_directory,
    pod_cgroups,
)
from dra_driver.errors import DriverError, Permanent, Refused
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kubelet.pod_resources import PodResources, allocatable
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import ClaimUid, DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.presence import Alive
from dra_driver.model.slices import Problem
from dra_driver.model.state import Held, PreparedClaim, Unknown
from dra_driver.node.boot import read_boot_id
from dra_driver.node.cgroups import PodCgroups
from dra_driver.node.foreign_memory import FILE_NAME, ForeignMemory
from dra_driver.node.leftovers import NodeFiles
from dra_driver.node.state import StateStore, read_claims
from dra_driver.planning.combine import combine
from dra_driver.planning.neighbours import Neighbour, find_neighbours
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.scanned import as_scanned
from dra_driver.planning.slices import PoolPlan, plan_pool
from dra_driver.planning.unprepare import still_used
from dra_driver.services.cleanup import CleanupParts

SLOW_SCAN_SECONDS = 10.0
"""A scan of a node with eight GPUs takes a second or two."""


class ConfirmedUnused(Struct, frozen=True):
    """A held claim whose devices an admin confirmed to be unused.

    `still_waits_for` says why the driver itself would not release the devices yet; "" if it would.
    """

    row: PreparedClaim
    held: Held
    still_waits_for: str


class NodeFound(Struct, frozen=True):
    """The results that `dra-driver devices` shows: scanned devices, claims in the state file, refused attributes, device plugins.

    `published` are the devices as a running driver publishes them, but for what it remembers and what it learns of other plugins. `backends` are the names of the backends, and `failures` has a sentence for each one that could not be used.
    """

    inventory: Inventory
    claims: tuple[PreparedClaim, ...]
    published: Mapping[DeviceName, Device]
    problems: tuple[Problem, ...]
    neighbours: tuple[Neighbour, ...]
    backends: tuple[str, ...]
    failures: tuple[str, ...]


def inspect_node(settings: Settings, slow: Callable[[str], None]) -> NodeFound:
    """Scan the devices once, read the state file, and ask the kubelet for device plugins. Changes nothing on the node.

    `slow` is called on a thread of its own, with the name of a backend whose scan has not answered for SLOW_SCAN_SECONDS. The scan goes on.
    """
    loaded = make_backends(settings)
    with _closing(loaded):
        inventory, failures = _scan(loaded, slow)
    resources = allocatable(settings.kubelet.pod_resources_socket)
    claims = read_claims(settings.state_dir / STATE_FILE)
    plan = _planned(inventory, claims)
    return NodeFound(
        inventory,
        claims,
        plan.devices,
        plan.problems,
        # A node without a kubelet has no device plugins.
        ()
        if isinstance(resources, Unknown)
        else _with_own(find_neighbours(resources, inventory), settings.state_dir),
        tuple(loaded.backends),
        (*loaded.left_out, *failures),
    )


def _planned(inventory: Inventory, claims: Iterable[PreparedClaim]) -> PoolPlan:
    owned = {device.device: claim for claim in claims for device in claim.devices}
    return plan_pool(
        inventory,
        kept=(),
        held=frozenset(name for name, claim in owned.items() if claim.held),
        not_clean=frozenset(
            one.name for one in inventory.devices if one.not_clean and one.name not in owned
        ),
    )


def _with_own(found: tuple[Neighbour, ...], state_dir: Path) -> tuple[Neighbour, ...]:
    """Mark the resources that this driver serves itself: the running one has them in a file beside the state."""
    _, offered = ForeignMemory(state_dir / FILE_NAME, boot_id="").read()
    return tuple(replace(one, own=one.resource in offered) for one in found)


def take_snapshot(settings: Settings) -> Snapshot:
    """Return what the hardware of this node answers. Raises DriverError; Permanent if no chosen backend, or more than one, can say it."""
    loaded = make_backends(settings)
    able = {name: one for name, one in loaded.backends.items() if is_recordable(one)}
    if len(able) != 1:
        found = ", ".join(able) or "none of them"
        raise Permanent(
            f"cannot take a snapshot: of the backends {', '.join(loaded.backends) or '(none)'} {found} can be recorded; name one that can, "
            "such as `--backend nvidia`"
        )
    (backend,) = able.values()
    with _closing(loaded):
        return take(backend)


@contextmanager
def _closing(loaded: Loaded) -> Iterator[None]:
    """End what the backends have started, such as a process that has the hardware open, when the command does not need it any more."""
    try:
        yield
    finally:
        for backend in loaded.backends.values():
            close = getattr(backend, "close", None)
            if callable(close):
                close()


def _scan(loaded: Loaded, slow: Callable[[str], None]) -> tuple[Inventory, tuple[str, ...]]:
    """Return the devices that the backends find, and the errors of those that fail. Raises DriverError if all of them fail."""
    found: dict[str, Inventory] = {}
    errors: list[DriverError] = []
    for name, backend in loaded.backends.items():
        timer = Timer(SLOW_SCAN_SECONDS, slow, (name,))
        timer.daemon = True
        timer.start()
        try:
            found[name] = _scanned(name, backend)
        except DriverError as error:
            errors.append(error)
        finally:
            timer.cancel()
    if errors and not found:
        raise errors[0]
    return combine(found, {}), tuple(map(str, errors))


def _scanned(name: str, backend: Backend) -> Inventory:
    """Return the devices that a backend finds. A backend may be third-party code, so every other exception becomes Permanent."""
    try:
        return as_scanned(backend.scan())
    except DriverError:
        raise
    except Exception as error:
        raise Permanent(
            f"cannot scan the devices with backend {name}: {type(error).__name__}: {error}; that is a fault of the "
            f"backend: correct it, or install another version"
        ) from error


def confirm_unused(
    settings: Settings, claim: str, *, force: bool = False
) -> tuple[ConfirmedUnused, ...]:
    """Mark the devices of a held claim as unused, because an admin says so. Returns the claims that were marked.

    `claim` is "namespace/name" or a UID. Raises Permanent if the claim is not held: then its pods must be deleted instead.
    Without `force`, also raises Permanent if a pod of the claim has running processes: the devices are probably still in use, even
    if the admin says no.
    """
    path = settings.state_dir / STATE_FILE
    found = [
        row
        for row in read_claims(path)
        if claim in (row.ref.uid, f"{row.ref.namespace}/{row.ref.name}")
    ]
    if not found and not path.exists():
        raise Permanent(
            f"no claim {claim} is known: there is no state file at {path}. Does the driver have another --driver-name or --state-dir? "
            f"Run this on the node of the pending pod: `kubectl exec -n NAMESPACE POD -- dra-driver release {claim}` in the driver's "
            f"pod there"
        )
    if not found:
        raise Permanent(
            f"no claim {claim} is known on this node (state file {path}); give the NAMESPACE/NAME or UID that the error of the "
            f"pending pod names, and run this on the node of that pod"
        )
    boot_id = read_boot_id(settings.node.boot_id_file)
    cgroups = pod_cgroups(settings)
    used = {row.ref.uid: _used(cgroups, row, boot_id) for row in found if row.held is not None}
    running = "; ".join(why for why, is_running in used.values() if is_running)
    if running and not force:
        raise Refused(
            f"claim {found[0].ref} is used: {running}; two pods would use its devices at the same time. Stop the containers of that "
            f"pod (`crictl stop`, or a reboot), and the driver releases the devices by itself; --force releases them anyway"
        )
    with (
        closing(StateStore(path, boot_id=boot_id)) as store,
        store.transaction("releasing") as transaction,
    ):
        rows = transaction.read(uids=[ClaimUid(uid) for uid in used]).claims.values()
        held = [(row, row.held) for row in rows if row.held is not None]
        for row, now in held:
            transaction.hold(row.ref.uid, replace(now, by_admin=True))
    if not held:
        raise Refused(
            f"claim {found[0].ref} is {found[0].phase.value} and not held: pods of this node may use it; delete those pods, then the "
            f"driver releases it"
        )
    return tuple(ConfirmedUnused(row, now, used[row.ref.uid][0]) for row, now in held)


def _used(cgroups: PodCgroups, row: PreparedClaim, boot_id: str) -> tuple[str, bool]:
    """Return why the devices of a held claim cannot be released yet ("" if they can), and whether a running pod is the reason."""
    presence = cgroups.presence(row.users.pods or ())
    is_running = row.boot_id == boot_id and any(isinstance(one, Alive) for one in presence.values())
    if not is_running:
        return still_used(row, presence, boot_id=boot_id), False
    # `still_used` first returns the reason in `held`. Without `held` it names the running pod, which the admin must stop.
    known = replace(row, held=None)
    return still_used(known, presence, boot_id=boot_id), bool(row.owned)


def node_files(settings: Settings) -> NodeFiles:
    """Return the files of this driver on this node."""
    driver = settings.node.driver
    return NodeFiles(
        driver=driver,
        cdi_kind=NodePlace(driver, PoolName(settings.node.name)).cdi_kind,
        state_file=settings.state_dir / STATE_FILE,
        lock_dir=settings.state_dir / LOCK_DIRECTORY,
        peer_dir=settings.state_dir / PEER_DIRECTORY,
        cdi_dir=settings.cdi_dir,
        metadata_dir=metadata_directory(settings),
        plugin_dir=settings.kubelet.plugin_dir(driver),
        registry_dir=settings.kubelet.registry_dir,
        features_dir=settings.about_node.features_dir,
    )


@contextmanager
def cleanup_parts(settings: Settings, *, keep_slices: bool) -> Iterator[CleanupParts]:
    """Make the files and clients that `dra-driver cleanup` uses. The API client is made only when it is first used."""
    place = NodePlace(settings.node.driver, PoolName(settings.node.name))
    opened = ExitStack()

    @cache
    def kube() -> HttpKubeApi:
        client = HttpKubeApi(
            connect(settings.kubeconfig), driver=place.driver, node=settings.node.name
        )
        return opened.enter_context(closing(client))

    files = node_files(settings)
    # `PodResources` needs the kubelet's version to interpret an answer without claims. Cleanup only uses the claims that an
    # answer names, so it passes a function that returns "".
    held = PodResources(settings.kubelet.pod_resources_socket, kubelet_version=str)
    with opened:
        yield CleanupParts(
            place,
            files,
            kube,
            held,
            _proof(settings),
            keep_slices,
            lambda: kube().own_node(),
        )


def _proof(settings: Settings) -> Callable[[PreparedClaim], str]:
    """Return the function that says why the devices of a held claim cannot be released; "" if it is proved that nothing uses them."""
    cgroups = pod_cgroups(settings)

    def why(row: PreparedClaim) -> str:
        if settings.release_proof == "unprepare":
            return ""  # the kubelet has unprepared it, or it would not be held
        boot_id = read_boot_id(settings.node.boot_id_file)
        return still_used(row, cgroups.presence(row.users.pods or ()), boot_id=boot_id)

    return why
