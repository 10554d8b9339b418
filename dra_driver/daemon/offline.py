# SPDX-License-Identifier: Apache-2.0
"""What tools see of a node, and tell it, without being its driver: `dra-driver devices`, `release` and `cleanup`."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache

from dra_driver.config import Settings
from dra_driver.daemon.dependencies import (
    LOCK_DIRECTORY,
    PEER_DIRECTORY,
    STATE_FILE,
    make_backend,
    pod_cgroups,
)
from dra_driver.errors import DriverError, Permanent
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kubelet.pod_resources import PodResources, allocatable
from dra_driver.model.ids import ClaimUid, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.presence import Alive
from dra_driver.model.slices import Problem
from dra_driver.model.state import Held, PreparedClaim, Unknown
from dra_driver.node.boot import read_boot_id
from dra_driver.node.cgroups import PodCgroups
from dra_driver.node.leftovers import NodeFiles
from dra_driver.node.state import StateStore, read_claims
from dra_driver.planning.neighbours import Neighbour, find_neighbours
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.scanned import as_scanned
from dra_driver.planning.slices import plan_pool
from dra_driver.planning.unprepare import still_used
from dra_driver.services.cleanup import CleanupParts


@dataclass(frozen=True, slots=True)
class Vouched:
    """A claim that an admin vouched for; `why` says what the driver itself would still wait for, "" for nothing."""

    row: PreparedClaim
    held: Held
    why: str


@dataclass(frozen=True, slots=True)
class NodeFound:
    """What `dra-driver devices` shows."""

    inventory: Inventory
    claims: tuple[PreparedClaim, ...]
    problems: tuple[Problem, ...]
    neighbours: tuple[Neighbour, ...]


def inspect_node(settings: Settings) -> NodeFound:
    """One scan, the state as it is, and the kubelet's device plugins; changes nothing and makes no state file."""
    inventory = _scan(settings)
    resources = allocatable(settings.kubelet.pod_resources_socket)
    return NodeFound(
        inventory,
        read_claims(settings.state_dir / STATE_FILE),
        plan_pool(inventory, kept=()).problems,
        # A node without a kubelet has no device plugins.
        () if isinstance(resources, Unknown) else find_neighbours(resources, inventory),
    )


def _scan(settings: Settings) -> Inventory:
    """What the backend finds. Raises DriverError, whatever the backend raises: it is other people's code."""
    try:
        return as_scanned(make_backend(settings).scan())
    except DriverError:
        raise
    except Exception as error:
        raise Permanent(
            f"cannot scan the devices with backend {settings.backend.name}: {type(error).__name__}: {error}; that is a fault of the "
            f"backend: correct it, or install another version"
        ) from error


def vouch(settings: Settings, claim: str, *, force: bool = False) -> tuple[Vouched, ...]:
    """Mark a held claim ("namespace/name", or a UID) as unused, on an admin's word; answers what was marked.

    Raises Permanent for a claim that is not held: its pods are what is to be ended. So it does, unless forced, where a pod that
    used it is shown to run: nobody can know better than its cgroup.
    """
    path = settings.state_dir / STATE_FILE
    found = [
        row
        for row in read_claims(path)
        if claim in (row.ref.uid, f"{row.ref.namespace}/{row.ref.name}")
    ]
    if not found and not path.exists():
        raise Permanent(
            f"no claim {claim} is known: there is no state file at {path}: another --driver-name or --state-dir? Run this on the node "
            f"of the pod that waits: `kubectl exec -n NAMESPACE POD -- dra-driver release {claim}` in the driver's pod there"
        )
    if not found:
        raise Permanent(
            f"no claim {claim} is known on this node (state file {path}); give NAMESPACE/NAME or a UID as the refusal of the "
            f"waiting claim names it, and run this on the node of that pod"
        )
    boot_id = read_boot_id(settings.node.boot_id_file)
    cgroups = pod_cgroups(settings)
    used = {row.ref.uid: _used(cgroups, row, boot_id) for row in found if row.held is not None}
    running = "; ".join(why for why, runs in used.values() if runs)
    if running and not force:
        raise Permanent(
            f"claim {found[0].ref} is used: {running}; another pod would get its devices beside that one. End its containers "
            f"(`crictl stop`, or a reboot), and the driver gives the devices back by itself; --force releases them all the same"
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
        raise Permanent(
            f"claim {found[0].ref} is {found[0].phase.value} and not held: pods of this node may use it; delete them, the driver "
            f"releases it then"
        )
    return tuple(Vouched(row, now, used[row.ref.uid][0]) for row, now in held)


def _used(cgroups: PodCgroups, row: PreparedClaim, boot_id: str) -> tuple[str, bool]:
    """Why a held claim's devices cannot be given to others, and whether that is a pod which is shown to run."""
    presence = cgroups.presence(row.users.pods or ())
    runs = row.boot_id == boot_id and any(isinstance(one, Alive) for one in presence.values())
    if not runs:
        return still_used(row, presence, boot_id=boot_id), False
    # What else is not known of its pods does not matter then.
    known = replace(row, held=None)
    return still_used(known, presence, boot_id=boot_id), bool(row.owned)


@contextmanager
def cleanup_parts(settings: Settings, *, keep_slices: bool) -> Iterator[CleanupParts]:
    """What a cleanup of this node works on."""
    place = NodePlace(settings.node.driver, PoolName(settings.node.name))
    opened = ExitStack()

    @cache
    def kube() -> HttpKubeApi:
        client = HttpKubeApi(
            connect(settings.kubeconfig), driver=place.driver, node=settings.node.name
        )
        return opened.enter_context(closing(client))

    files = NodeFiles(
        driver=place.driver,
        cdi_kind=place.cdi_kind,
        state_file=settings.state_dir / STATE_FILE,
        lock_dir=settings.state_dir / LOCK_DIRECTORY,
        peer_dir=settings.state_dir / PEER_DIRECTORY,
        cdi_dir=settings.cdi_dir,
        plugin_dir=settings.kubelet.plugin_dir(place.driver),
        registry_dir=settings.kubelet.registry_dir,
    )
    # An answer without claims never counts here, so nobody needs to know whether this kubelet lists them.
    held = PodResources(settings.kubelet.pod_resources_socket, kubelet_version=str)
    with opened:
        yield CleanupParts(place, files, kube, held, keep_slices)
