# SPDX-License-Identifier: Apache-2.0
"""One transaction of the state: which rows are read and written, and who owns what.

A claim owns devices, or shares of devices (table `owners`). Different devices can be the same hardware: a GPU, its partitions, and
partitions that overlap. The table `hardware` says which physical resource is behind each device, as the last scan found it. With it
triggers write for each owner the resources that it occupies (table `occupied`), and refuse a row that overlaps with one of another
device. So SQLite itself excludes two owners of one piece of hardware, also for an older driver that knows only `owners`.

What shares consume of a device's capacity is in the table `consumed` (`dra_driver.node.consumed`).
"""

import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import PLUGIN_UID_PREFIX, ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, PoolName
from dra_driver.model.lease import Hardware, Lease, Piece
from dra_driver.model.state import NOBODY_KNOWN, Held, NodeState, Phase, PreparedClaim, Users
from dra_driver.node.consumed import consumption, write_consumption
from dra_driver.node.decoded_rows import DecodedRows
from dra_driver.node.published import dump_published, load_backend_name, load_published
from dra_driver.node.rows import (
    COLUMNS,
    dump_claim,
    dump_held,
    dump_leases,
    dump_metadata,
    dump_users,
    load_claim,
    sealed_again,
)


class StateTransaction:
    """One transaction. The rows that it has read do not change until it commits."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        boot_id: str,
        *,
        columns: str = COLUMNS,
        decoded: DecodedRows | None = None,
    ) -> None:
        """`decoded` are the rows that were read before, if there will be more transactions."""
        self._db = connection
        self._boot_id = boot_id
        self._columns = columns
        self._decoded = decoded or DecodedRows()

    def read(self, *, uids: Iterable[ClaimUid] = (), keys: Iterable[DeviceKey] = ()) -> NodeState:
        """Return the rows of these claims, the owners of these devices or shares, and for shares what others consume of the devices."""
        claims = {uid: claim for uid in uids if (claim := self._claim(uid)) is not None}
        asked = tuple(keys)
        owners = {key: owner for key in asked if (owner := self._owner(key, claims)) is not None}
        shared = dict.fromkeys(DeviceKey(key.pool, key.device) for key in asked if key.share)
        consumed = {key: found for key in shared if (found := consumption(self._db, key, claims))}
        return NodeState(self._boot_id, claims, owners, consumed)

    def start(self, claim: PreparedClaim) -> None:
        """Reserve the claim's devices and write its row. Raises Permanent if another claim owns one of them.

        Pods that the row has from this boot stay in it: another thread may have added them since the caller read the row.
        """
        before = self._claim(claim.ref.uid)
        kept: frozenset[DeviceKey] = frozenset()
        same_boot = before is not None and before.boot_id == claim.boot_id
        if before is not None and same_boot:
            claim = replace(claim, users=before.users.joined(claim.users))
        if before is not None and (same_boot or claim.is_fixed):
            # What it owns already it goes on to own, also if another claim owns the same hardware (`_occupy`).
            kept = frozenset(before.owned) & frozenset(claim.owned)
        self._leave(claim.ref.uid, kept)
        leases = {(lease.device, lease.share_id): lease for lease in claim.leases or ()}
        for key in claim.owned:
            lease = leases.get((key.device, key.share))
            try:
                if key not in kept:
                    self._db.execute(_OWN, (key.pool, key.device, key.share, claim.ref.uid))
                if lease is not None:
                    self._occupy_leased(key, lease)
            except sqlite3.IntegrityError as error:
                owner = self._owner(key, (claim.ref.uid,)) or self._occupier(key, lease)
                raise Permanent(
                    f"device {key} of claim {claim.ref} is owned by claim {owner}"
                ) from error
        self._insert(claim)

    def restore(self, claim: PreparedClaim) -> None:
        """Write the row of a held claim into a new state file. Raises sqlite3.IntegrityError if another claim owns one of its devices.

        Unlike `start`, it keeps two claims that own the same hardware (`_occupy`): both may be in use.
        """
        leases = {(lease.device, lease.share_id): lease for lease in claim.leases or ()}
        for key in claim.owned:
            owner = (key.pool, key.device, key.share, claim.ref.uid)
            self._db.execute(_OWN, owner)
            lease = leases.get((key.device, key.share))
            if lease is not None and lease.parent:
                for piece in Hardware(lease.parent, lease.parts).pieces:
                    self._occupy_too(owner, piece)
        self._insert(claim)

    def _insert(self, claim: PreparedClaim) -> None:
        # Name the columns: a newer driver may have added others.
        self._db.execute(
            f"INSERT INTO claims ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  a constant
            dump_claim(claim),
        )
        write_consumption(self._db, claim)

    def set_phase(self, uid: ClaimUid, phase: Phase) -> None:
        """Change a claim's phase. An unknown claim is ignored."""
        self._db.execute("UPDATE claims SET phase = ? WHERE uid = ?", (phase.value, uid))

    def set_prepared(self, uid: ClaimUid, cdi_spec: str, metadata: str = "") -> None:
        """Mark the claim Prepared, with the texts of its CDI file and of its metadata files. An unknown claim is ignored."""
        # Only these columns: each preparation waits for it.
        row = self._db.execute(
            "SELECT namespace, name, boot_id, devices, cdi_spec FROM claims WHERE uid = ?", (uid,)
        ).fetchone()
        if row is not None:
            namespace, name, boot_id, devices, before = row
            # The digest in `devices` covers the text.
            sealed = sealed_again(
                ClaimRef(namespace, name, uid), boot_id, devices, before, cdi_spec
            )
            self._db.execute(
                "UPDATE claims SET phase = ?, cdi_spec = ?, devices = ?, metadata = ? WHERE uid = ?",
                (Phase.PREPARED.value, cdi_spec, sealed, dump_metadata(uid, metadata), uid),
            )

    def set_undone(self, lease: Lease) -> None:
        """Remove a lease whose set-up is undone from its claim's row. An unknown lease is ignored."""
        row = self._claim(lease.claim_uid)
        if row is not None and row.leases is not None:
            left = tuple(one for one in row.leases if one.index != lease.index)
            self._db.execute(
                "UPDATE claims SET leases = ? WHERE uid = ?",
                (dump_leases(row.ref.uid, left), row.ref.uid),
            )

    def hold(self, uid: ClaimUid, held: Held, users: Users = NOBODY_KNOWN) -> None:
        """Mark the claim as held: the driver answers no call from its row, and the claim keeps its devices. An unknown claim is
        ignored.
        """
        self.add_users(uid, users)
        self._db.execute(
            "UPDATE claims SET phase = ?, held = ? WHERE uid = ?",
            (Phase.STARTED.value, dump_held(uid, held), uid),
        )

    def add_users(self, uid: ClaimUid, users: Users) -> None:
        """Add pods that may use the claim. An unknown claim is ignored."""
        if users == NOBODY_KNOWN:
            return
        row = self._claim(uid)
        if row is not None and (joined := row.users.joined(users)) != row.users:
            self._db.execute(
                "UPDATE claims SET users = ? WHERE uid = ?", (dump_users(uid, joined), uid)
            )

    def held_claims(self) -> tuple[PreparedClaim, ...]:
        """Return every held claim, by UID."""
        rows = self._db.execute(
            f"SELECT {COLUMNS} FROM claims WHERE held IS NOT NULL ORDER BY uid"  # noqa: S608  a constant
        )
        return tuple(load_claim(row) for row in rows)

    def forget(self, uid: ClaimUid) -> None:
        """Release the claim's devices and remove its row. An unknown claim is ignored."""
        self._leave(uid, frozenset())

    def _leave(self, uid: ClaimUid, kept: frozenset[DeviceKey]) -> None:
        """Remove the claim's row, and the claim as an owner of all but some devices."""
        if kept:
            owned = self._db.execute(
                "SELECT pool, device, share FROM owners WHERE claim_uid = ?", (uid,)
            ).fetchall()
            self._db.executemany(
                "DELETE FROM owners WHERE pool = ? AND device = ? AND share = ?",
                [key for key in owned if DeviceKey(*key) not in kept],
            )
        else:
            self._db.execute("DELETE FROM owners WHERE claim_uid = ?", (uid,))
        self._db.execute("DELETE FROM claims WHERE uid = ?", (uid,))

    def all_claims(self) -> tuple[PreparedClaim, ...]:
        """Return every claim, by UID. The start, background tasks and tools use this; a kubelet's call reads by key."""
        rows = self._db.execute(f"SELECT {self._columns} FROM claims ORDER BY uid")  # noqa: S608  a constant
        return self._decoded.claims(rows)

    def owned_devices(self, pool: PoolName) -> frozenset[DeviceName]:
        """Return the devices of the pool that a claim owns, as a whole or by a share."""
        rows = self._db.execute("SELECT DISTINCT device FROM owners WHERE pool = ?", (pool,))
        return frozenset(DeviceName(device) for (device,) in rows)

    def claimed_devices(self, pool: PoolName) -> frozenset[DeviceName]:
        """Return the devices of the pool that claims own, and not containers by the device plugin API."""
        return self._devices_of(pool, "NOT LIKE")

    def plugin_devices(self, pool: PoolName) -> frozenset[DeviceName]:
        """Return the devices of the pool that were given out by the device plugin API."""
        return self._devices_of(pool, "LIKE")

    def _devices_of(self, pool: PoolName, is_like: str) -> frozenset[DeviceName]:
        rows = self._db.execute(
            f"SELECT DISTINCT device FROM owners WHERE pool = ? AND claim_uid {is_like} ?",  # noqa: S608  a constant
            (pool, f"{PLUGIN_UID_PREFIX}%"),
        )
        return frozenset(DeviceName(device) for (device,) in rows)

    def has_plugin_rows(self) -> bool:
        """Whether anything was given out by the device plugin API."""
        found = self._db.execute(
            "SELECT 1 FROM claims WHERE uid LIKE ? LIMIT 1", (f"{PLUGIN_UID_PREFIX}%",)
        )
        return found.fetchone() is not None

    def has_other_lease(self, lease: Lease) -> bool:
        """Whether another lease of the same parent may be set up. A row without leases may have one."""
        # CROSS JOIN keeps this order, so the first other claim of a thousand ends the search.
        rows = self._db.execute(
            f"SELECT {COLUMNS} FROM occupied CROSS JOIN claims ON uid = claim_uid WHERE parent = ?",  # noqa: S608  a constant
            (lease.parent,),
        )
        return any(_has_other(_loaded(row), lease) for row in rows)

    def learn_hardware(self, pool: PoolName, found: Mapping[DeviceName, Hardware]) -> None:
        """Write down which physical resource is behind each device of the pool. A device that a claim owns and that is not found keeps
        what is known of it.
        """
        known = self._hardware(pool)
        owned = self.owned_devices(pool)
        wanted = {name: parts for name, parts in known.items() if name in owned} | {
            name: resource.pieces for name, resource in found.items()
        }
        if wanted != known:
            self._db.execute("DELETE FROM hardware WHERE pool = ?", (pool,))
            self._db.executemany(
                "INSERT INTO hardware (pool, device, parent, part) VALUES (?, ?, ?, ?)",
                [(pool, name, *pair) for name, pairs in wanted.items() for pair in sorted(pairs)],
            )
        self._occupy(pool)

    def _hardware(self, pool: PoolName) -> dict[DeviceName, frozenset[Piece]]:
        return _by_device(
            self._db.execute("SELECT device, parent, part FROM hardware WHERE pool = ?", (pool,))
        )

    def occupied(self, pool: PoolName) -> Mapping[DeviceName, frozenset[Piece]]:
        """Return what the owners of the pool's devices occupy, by the device that they own as a whole or by a share."""
        return _by_device(
            self._db.execute("SELECT device, parent, part FROM occupied WHERE pool = ?", (pool,))
        )

    def _occupy(self, pool: PoolName) -> None:
        """Write what the owners of the pool's devices occupy, as `hardware` has it now.

        An owner of this boot goes on to occupy what it did before: it may be set up there. If two claims own the same hardware already,
        both occupy it, and no third one gets it before both have left.
        """
        self._db.execute(
            "DELETE FROM occupied WHERE pool = ? AND claim_uid IN (SELECT uid FROM claims WHERE boot_id <> ?)",
            (pool, self._boot_id),
        )
        wanted = self._db.execute(
            """SELECT o.pool, o.device, o.share, o.claim_uid, h.parent, h.part FROM owners o
            JOIN hardware h ON h.pool = o.pool AND h.device = o.device WHERE o.pool = ? EXCEPT
            SELECT pool, device, share, claim_uid, parent, part FROM occupied""",
            (pool,),
        ).fetchall()
        for *row, parent, part in wanted:
            self._occupy_too(row, (parent, part))

    def _occupy_too(self, owner: Sequence[str], piece: Piece) -> None:
        """Write that an owner (pool, device, share, claim) occupies a piece of hardware, also if another one does."""
        # The trigger that refuses an overlap watches inserts only, not updates.
        self._db.execute(_OCCUPY, (*owner, _NOWHERE, ""))
        self._db.execute(
            "UPDATE occupied SET parent = ?, part = ? WHERE parent = ?", (*piece, _NOWHERE)
        )

    def _occupy_leased(self, key: DeviceKey, lease: Lease) -> None:
        """Write what a lease occupies. `hardware` may have something else: another process may have scanned other hardware since, or not
        yet all of it.
        """
        uid = lease.claim_uid
        for parent, part in Hardware(lease.parent, lease.parts).pieces if lease.parent else ():
            place = (parent, part, key.pool, key.device, key.share)
            found = self._db.execute(
                "SELECT 1 FROM occupied WHERE (parent, part, pool, device, share) = (?, ?, ?, ?, ?)",
                place,
            ).fetchone()
            if found is None:
                self._db.execute(_OCCUPY, (key.pool, key.device, key.share, uid, parent, part))

    def _occupier(self, key: DeviceKey, lease: Lease | None) -> ClaimRef | None:
        """Return a claim that occupies another device which is the same hardware."""
        parts = () if lease is None else Hardware(lease.parent, lease.parts).pieces
        rows = [
            row
            for parent, part in parts
            for row in self._db.execute(
                """SELECT namespace, name, uid FROM occupied JOIN claims ON uid = claim_uid
                WHERE parent = ? AND (part = ? OR part = '' OR ? = '') AND device <> ?""",
                (parent, part, part, key.device),
            )
        ]
        return next((ClaimRef(space, name, ClaimUid(uid)) for space, name, uid in rows), None)

    def published(self, pool: PoolName) -> tuple[Device, ...]:
        """Return the devices that were published last, in their order."""
        rows = self._db.execute(
            "SELECT device, content FROM published WHERE pool = ? ORDER BY position", (pool,)
        )
        devices = [load_published(DeviceName(device), content) for device, content in rows]
        return tuple(device for device in devices if device is not None)

    def published_by(self, pool: PoolName) -> Mapping[DeviceName, str]:
        """Return the backend of each published device; "" if it is not known."""
        rows = self._db.execute("SELECT device, content FROM published WHERE pool = ?", (pool,))
        return {DeviceName(device): load_backend_name(content) for device, content in rows}

    def set_published(
        self,
        pool: PoolName,
        devices: Sequence[Device],
        backends: Mapping[DeviceName, str] = MappingProxyType({}),
    ) -> None:
        """Replace the record of published devices by these devices, and the names of their backends."""
        self._db.execute("DELETE FROM published WHERE pool = ?", (pool,))
        self._db.executemany(
            "INSERT INTO published (pool, position, device, content) VALUES (?, ?, ?, ?)",
            [
                (
                    pool,
                    position,
                    device.name,
                    dump_published(device, backends.get(DeviceName(device.name), "")),
                )
                for position, device in enumerate(devices)
            ],
        )

    def _claim(self, uid: ClaimUid) -> PreparedClaim | None:
        row = self._db.execute(
            f"SELECT {COLUMNS} FROM claims WHERE uid = ?",  # noqa: S608  a constant
            (uid,),
        ).fetchone()
        return load_claim(row) if row else None

    def _owner(self, key: DeviceKey, asking: Container[ClaimUid] = ()) -> ClaimRef | None:
        # A device has few owners, so no index besides the primary key is needed.
        rows = self._db.execute(
            _OWNERS_OF, {"pool": key.pool, "device": key.device, "share": key.share}
        )
        owners = [ClaimRef(namespace, name, ClaimUid(uid)) for namespace, name, uid in rows]
        others = [owner for owner in owners if owner.uid not in asking]
        return next(iter(others or owners), None)


# A claim asks once for each of its leases, and finds its own row each time. The text of hundreds of leases takes milliseconds to read.
_loaded = lru_cache(maxsize=8)(load_claim)
_NOWHERE = "\x00"  # the parent of no hardware
_OWN = "INSERT INTO owners (pool, device, share, claim_uid) VALUES (?, ?, ?, ?)"
_OCCUPY = (
    "INSERT INTO occupied (pool, device, share, claim_uid, parent, part) VALUES (?, ?, ?, ?, ?, ?)"
)
_OWNERS_OF = """
    SELECT namespace, name, uid FROM (
        SELECT claim_uid, share, 0 AS far FROM owners
            WHERE pool = :pool AND device = :device AND share IN (:share, '')
        UNION ALL
        SELECT claim_uid, share, 0 FROM owners WHERE :share = '' AND pool = :pool AND device = :device AND share <> ''
        UNION ALL
        SELECT o.claim_uid, o.share, 1 FROM hardware h JOIN occupied o ON o.parent = h.parent
            WHERE h.pool = :pool AND h.device = :device AND o.device <> h.device AND (o.part = h.part OR o.part = '' OR h.part = '')
    ) JOIN claims ON uid = claim_uid ORDER BY far, share"""


def _by_device(rows: Iterable[tuple[str, str, str]]) -> dict[DeviceName, frozenset[Piece]]:
    found: dict[DeviceName, frozenset[Piece]] = {}
    for device, parent, part in rows:
        name = DeviceName(device)
        found[name] = found.get(name, frozenset()) | {(parent, part)}
    return found


def _has_other(row: PreparedClaim, lease: Lease) -> bool:
    if row.leases is None:
        return row.ref.uid != lease.claim_uid
    return any(
        other.parent == lease.parent
        and not other.admin_access
        and (other.claim_uid, other.index) != (lease.claim_uid, lease.index)
        for other in row.leases
    )
