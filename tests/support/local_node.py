# SPDX-License-Identifier: Apache-2.0
"""The node's half of the driver on a directory: real state file, CDI files, locks and executor.

What lies outside is played by plain attributes that a test sets: `claims` (the API server), `held` (the kubelet's
pod-resources), `presences` (which pods still run; all others have ended), `followed` (claims of which a watch has just told), `configure`,
`reset` and `used` (the backend). `restart` is what a new process finds after a crash or a reboot.
`violations` says what would be wrong on the disk at any moment when no call is running.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from msgspec.structs import replace

from dra_driver.errors import DriverError
from dra_driver.kube.base import NotFound
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import DriverEvent
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.presence import Gone, Presence
from dra_driver.model.state import Phase, PodDevice, Unknown
from dra_driver.node.cdi_dir import CdiDirectory
from dra_driver.node.files import never
from dra_driver.node.lock import Locks
from dra_driver.node.metadata_dir import MetadataDirectory
from dra_driver.node.state import StateStore
from dra_driver.services.execute import Executor, Hands
from dra_driver.services.hardware import HardwareRecord, LeasedHardware
from dra_driver.services.held import HeldDevices
from dra_driver.services.parts import ClaimReader, NodeParts, Usage
from dra_driver.services.prepare import Answer, PrepareClaims
from dra_driver.services.recover import recover
from dra_driver.services.release import Releasable
from dra_driver.services.sweep import Sweep
from dra_driver.services.unprepare import UnprepareClaims
from dra_driver.testing.builders import A_BOOT, A_PLACE, an_edit, an_inventory

WORKERS = 8
A_MOMENT = 1_800_000_000.0
A_MOMENT_TEXT = "2027-01-15T08:00:00Z"


class ManualClock:
    """Time that only passes by `sleep` and by hand; `pauses` are what was slept."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let that much time pass at once."""
        self.pauses.append(seconds)
        self.now += seconds


class _Backend:
    """Calls the node's functions, and writes down each call that changes a device."""

    def __init__(self, node: "LocalNode") -> None:
        self._node = node

    def configure(self, lease: Lease, /) -> object:
        if not lease.admin_access and not lease.may_run:
            self._called("configure", lease)
        answer = self._node.configure(lease)
        return an_edit(lease) if answer is None else answer

    def reset(self, lease: Lease, /) -> None:
        self._called("reset", lease)
        self._node.reset(lease)

    def in_use(self, device: DeviceName, /) -> InUse:
        return InUse.YES if device in self._node.used else InUse.CANNOT_TELL

    def _called(self, name: str, lease: Lease) -> None:
        self._node.backend_calls.append((name, lease.device, lease.claim_uid, lease.share_id))


@dataclass(frozen=True, slots=True)
class Disk:
    """What a killed process leaves: rows by UID (phase, boot id), owners, names and texts of CDI files and of metadata files."""

    claims: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    owners: frozenset[tuple[str, str, str, str]] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


class LocalNode:
    """One node below `directory`. `clock` None means real time."""

    def __init__(
        self,
        directory: Path,
        *,
        point: Callable[[str], None] = never,
        clock: ManualClock | None = None,
        inventory: Inventory | None = None,
        metadata: bool = False,
    ) -> None:
        self.directory = directory
        root = str(directory / "metadata") if metadata else ""
        self.place = replace(A_PLACE, metadata_root=root)
        self.clock = clock
        self.point = point
        self.inventory = an_inventory(4) if inventory is None else inventory
        self.claims: dict[tuple[str, str], Claim] = {}
        self.fetch: Callable[[ClaimRef], Claim] = self.stored
        self.pod_devices: frozenset[PodDevice] | Unknown = frozenset()
        self.configure: Callable[[Lease], object] = lambda _lease: None
        self.reset: Callable[[Lease], None] = lambda _lease: None
        self.used: set[DeviceName] = set()
        self.presences: dict[PodUid, Presence] = {}
        self.followed: set[ClaimUid] = set()
        self.believes_unprepare = False
        self.freed = 0
        self._waiting: list[tuple[type[DriverEvent], Event]] = []
        self.backend_calls: list[tuple[str, DeviceName, ClaimUid, ShareId]] = []
        self.events: list[DriverEvent] = []
        self.boot_id = A_BOOT
        self._open()

    def _open(self) -> None:
        clock = self.clock or time.monotonic
        sleep = self.clock.sleep if self.clock else time.sleep
        self.store = StateStore(self.directory / "state.db", boot_id=self.boot_id, point=self.point)
        metadata = MetadataDirectory(self.directory / "metadata", point=self.point)
        self.cdi = CdiDirectory(
            self.directory / "cdi", A_PLACE.cdi_kind, metadata, point=self.point
        )
        self.cdi.prepare()
        locks = Locks(self.directory / "locks", clock=clock, sleep=sleep)

        def lock(names: Iterable[str], until: float, purpose: str) -> AbstractContextManager[None]:
            return locks.locked(names, until=until, purpose=purpose)

        self.lock = lock
        self.workers = ThreadPoolExecutor(WORKERS)
        learn = HardwareRecord(self.store, A_PLACE.pool).learn
        hardware = LeasedHardware(_Backend(self), self.store, lambda: self.inventory, lock, learn)
        presence = None if self.believes_unprepare else self._presence
        usage = Usage(self.store, presence, hardware.in_use)
        hands = Hands(
            cdi=self.cdi,
            configure=hardware.configure,
            reset=hardware.reset,
            still_used=usage,
            clock=clock,
            sleep=sleep,
            point=self.point,
        )
        self.parts = NodeParts(
            place=self.place,
            inventory=lambda: self.inventory,
            store=self.store,
            cdi=self.cdi,
            executor=Executor(hands, self.workers),
            releasable=Releasable(A_PLACE, lambda: self.pod_devices, self._fetch),
            lock=lock,
            ask=ClaimReader(self._fetch, self.workers, clock=clock),
            usage=usage,
            learn=learn,
            followed=lambda ref: ref.uid in self.followed,
            observe=self._observe,
            clock=clock,
            sleep=sleep,
            wall=lambda: A_MOMENT,
        )
        self.prepare_claims = PrepareClaims(self.parts, self._fetch, self.workers)
        self.keeper = HeldDevices(self.parts, self.store, freed=self._freed)

    # The attributes are looked up at each call: a test sets them at any time.
    def _fetch(self, ref: ClaimRef) -> Claim:
        return self.fetch(ref)

    def _presence(self, pods: Collection[PodUid]) -> Mapping[PodUid, Presence]:
        return {pod: self.presences.get(pod, Gone()) for pod in pods}

    def told(self, kind: type[DriverEvent], heard: Event) -> None:
        """Set `heard` when an event of this kind is told."""
        self._waiting.append((kind, heard))

    def _observe(self, event: DriverEvent) -> None:
        self.events.append(event)
        for kind, heard in self._waiting:
            if isinstance(event, kind):
                heard.set()

    def _freed(self) -> None:
        self.freed += 1

    def add(self, *claims: Claim) -> tuple[ClaimRef, ...]:
        """Put claims on the API server; answers what the kubelet will ask for."""
        self.claims |= {(claim.ref.namespace, claim.ref.name): claim for claim in claims}
        return tuple(claim.ref for claim in claims)

    def delete(self, ref: ClaimRef) -> None:
        """Take a claim from the API server."""
        del self.claims[ref.namespace, ref.name]

    def stored(self, ref: ClaimRef) -> Claim:
        """The API server's answer."""
        if (ref.namespace, ref.name) not in self.claims:
            raise NotFound(f"resourceclaims {ref.namespace}/{ref.name} not found")
        return self.claims[ref.namespace, ref.name]

    def prepare(self, *refs: ClaimRef, until: float | None = None) -> Mapping[ClaimUid, Answer]:
        """One NodePrepareResources call."""
        return self.prepare_claims(refs, until=until)

    def unprepare(
        self, *refs: ClaimRef, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        """One NodeUnprepareResources call."""
        return UnprepareClaims(self.parts)(refs, until=until)

    def look_at_held(self) -> None:
        """What the leader does every second."""
        self.keeper.once()

    def recover(self) -> Mapping[ClaimUid, DriverError]:
        """What a start does before it serves."""
        return recover(self.parts, self.store, self.cdi.documents, boot_id=self.boot_id)

    def sweep(self) -> Sequence[str]:
        """What a start does when it serves."""
        return Sweep(self.parts, self.store, self.cdi.documents, self.allocated).once()

    def allocated(self) -> tuple[Claim, ...]:
        """The API server's list of claims that name a device of this node."""
        return tuple(self.claims.values())

    def restart(self, *, boot_id: str = A_BOOT, point: Callable[[str], None] = never) -> None:
        """A new process on the same disk; recovery is the caller's."""
        self.close()
        self.boot_id, self.point = boot_id, point
        self._open()

    def close(self) -> None:
        """End the process."""
        self.workers.shutdown()
        self.store.close()

    def lose_state(self) -> None:
        """Let the state file vanish while no process runs; the next one begins with an empty state."""
        self.close()
        for path in self.directory.glob("state.db*"):
            path.unlink()
        self._open()

    def disk(self) -> Disk:
        """What stands on the disk, read by the side door."""
        with closing(sqlite3.connect(self.directory / "state.db")) as db:
            claims = {
                uid: (phase, boot)
                for uid, phase, boot in db.execute("SELECT uid, phase, boot_id FROM claims")
            }
            owners = frozenset(db.execute("SELECT pool, device, share, claim_uid FROM owners"))
        directory = self.directory / "cdi"
        files = {
            path.name: path.read_text().replace(str(self.directory), "")
            for path in sorted(directory.iterdir())
        }
        metadata = self.directory / "metadata"
        described = {
            str(path.relative_to(metadata)): path.read_text()
            for path in sorted(metadata.glob("*/*"))
        }
        return Disk(claims, owners, files, described)

    def violations(self) -> list[str]:
        """Broken invariants, one sentence each."""
        disk = self.disk()
        with self.store.reading() as state:
            rows = {claim.ref.uid: claim for claim in state.all_claims()}
        names = {self.cdi.file(uid).name: uid for uid in rows}
        wrong = [f"file {name} belongs to no claim" for name in disk.files if name not in names]
        wrong += [
            f"claim {uid} is {rows[uid].phase.value} and has no right file"
            for name, uid in names.items()
            if disk.claims[uid] == ("Prepared", self.boot_id)
            and disk.files.get(name) != rows[uid].cdi_spec.replace(str(self.directory), "")
        ]
        wrong += [
            f"metadata file {name} belongs to no claim"
            for name in disk.metadata
            if name.partition("/")[0] not in rows
        ]
        wrong += [
            f"claim {uid} has no right metadata files"
            for uid, row in rows.items()
            if disk.claims[uid] == ("Prepared", self.boot_id)
            and row.metadata
            and self.cdi.read_metadata(uid) != row.metadata
        ]
        owned = Counter(key for claim in rows.values() for key in claim.owned)
        wrong += [f"device {key} has {count} owners" for key, count in owned.items() if count > 1]
        whole = {(key.pool, key.device) for key in owned if not key.share}
        wrong += [
            f"device {key} is owned by a share and as a whole"
            for key in owned
            if key.share and (key.pool, key.device) in whole
        ]
        wrong += [
            f"claim {uid} is held and {row.phase.value}"
            for uid, row in rows.items()
            if row.held is not None and row.phase is not Phase.STARTED
        ]
        expected = {
            (key.pool, key.device, key.share, str(uid))
            for uid, claim in rows.items()
            for key in claim.owned
        }
        if expected != disk.owners:
            wrong.append(f"owners {sorted(disk.owners)} differ from the claims' {sorted(expected)}")
        return wrong
