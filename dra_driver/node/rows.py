# SPDX-License-Identifier: Apache-2.0
"""How is a claim written into the state, and how does the driver notice a changed row?

SQLite notices a damaged page, but not a changed byte in a text. A flipped bit in a claim's row could give a container another
device. So each row has a digest of all columns that never change. The digest is stored with each device, where older drivers
ignore it. Rows of older drivers have no digest and are not checked.

The columns `phase`, `users`, `held`, `leases` and `metadata` do change. The phase has no digest: it must be one of two words. The other texts each
have their own digest. Drivers that do not know these columns leave them NULL.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from dra_driver.model.claim import ClaimRef, DeviceConfig
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, PoolName, ShareId
from dra_driver.model.lease import Lease
from dra_driver.model.state import (
    NOBODY_KNOWN,
    CallBegun,
    Held,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.node.opened import is_text

Row = tuple[str, str, str, str, str, str, str, str | None, str | None, str | None, str | None]
_FIRST_COLUMNS = "uid, namespace, name, phase, boot_id, devices, cdi_spec"
COLUMNS = f"{_FIRST_COLUMNS}, users, held, leases, metadata"
_SCHEMA_OF_USERS, _SCHEMA_OF_LEASES = 3, 4
_DIGEST_BYTES = 16
_sorted = json.JSONEncoder(sort_keys=True).encode  # json.dumps would make an encoder each time


def columns_of(schema: int) -> str:
    """Return COLUMNS as a file of this schema has them: NULL for a column that it does not have yet."""
    if schema >= _SCHEMA_OF_LEASES:
        return COLUMNS
    users = "users, held" if schema >= _SCHEMA_OF_USERS else "NULL, NULL"
    return f"{_FIRST_COLUMNS}, {users}, NULL, NULL"


def dump_claim(claim: PreparedClaim) -> Row:
    """Return a claim's row, in the order of COLUMNS."""
    ref = claim.ref
    return (
        ref.uid,
        ref.namespace,
        ref.name,
        claim.phase.value,
        claim.boot_id,
        _devices_text(claim),
        claim.cdi_spec,
        dump_users(ref.uid, claim.users),
        dump_held(ref.uid, claim.held),
        dump_leases(ref.uid, claim.leases),
        dump_metadata(ref.uid, claim.metadata),
    )


def _devices_text(claim: PreparedClaim) -> str:
    """Return the text of the column `devices`, with the row's digest."""
    entries = [_entry(device) for device in claim.devices]
    digest = _digest(claim.ref, claim.boot_id, entries, claim.cdi_spec)
    return json.dumps([entry | {"digest": digest} for entry in entries])


def sealed_again(ref: ClaimRef, boot_id: str, devices: str, before: str, cdi_spec: str) -> str:
    """Return the text of the column `devices` for a row that gets another CDI text; `devices` and `before` are the texts that it has.

    A row without digests gets one. Raises DamagedRow if the row is not as it was written.
    """
    try:
        entries, digests = _entries(devices)
        expected = {_digest(ref, boot_id, entries, before)} if digests else set()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRow(f"the row of claim {ref} cannot be read: {error}") from error
    if digests != expected:
        raise DamagedRow(f"the row of claim {ref} is not as it was written")
    digest = _digest(ref, boot_id, entries, cdi_spec)
    return json.dumps([entry | {"digest": digest} for entry in entries])


def dump_users(uid: ClaimUid, users: Users) -> str | None:
    """Return the text of the column `users`; NULL if no user is known."""
    if users == NOBODY_KNOWN:
        return None
    entry: dict[str, object] = {"pods": users.pods, "sole": users.sole, "unnamed": users.unnamed}
    if users.call is not None:
        entry["call"] = {"checkpoint": users.call.checkpoint, "pods": sorted(users.call.pods)}
    return _sealed(uid, entry)


def dump_held(uid: ClaimUid, held: Held | None) -> str | None:
    """Return the text of the column `held`; NULL for a claim that is not held."""
    if held is None:
        return None
    entry = {"reason": held.reason, "since": held.since}
    return _sealed(uid, entry | {"unasked": held.unasked, "by_admin": held.by_admin})


def dump_leases(uid: ClaimUid, leases: tuple[Lease, ...] | None) -> str | None:
    """Return the text of the column `leases`; NULL if they are not known."""
    if leases is None:
        return None
    return _sealed(uid, {"leases": [_lease_entry(lease) for lease in leases]})


def dump_metadata(uid: ClaimUid, metadata: str) -> str | None:
    """Return the text of the column `metadata`; NULL if the claim has no metadata files."""
    return _sealed(uid, {"files": metadata}) if metadata else None


def load_claim(row: Row) -> PreparedClaim:
    """Return the claim of a row. Raises DamagedRow if the row is not as it was written."""
    uid, namespace, name, phase, boot_id, devices, cdi_spec, users, held, leases, metadata = row
    if not all(map(is_text, row)):
        raise DamagedRow(f"the row of claim {uid!a} has a text that is not UTF-8")
    ref = ClaimRef(namespace, name, ClaimUid(uid))
    try:
        entries, digests = _entries(devices)
        loaded = tuple(map(_device, entries))
        claim = PreparedClaim(
            ref,
            Phase(phase),
            boot_id,
            loaded,
            cdi_spec,
            NOBODY_KNOWN if users is None else _users(_opened(ref.uid, users)),
            None if held is None else _held(_opened(ref.uid, held)),
            None if leases is None else _leases(ref.uid, _opened(ref.uid, leases)),
            "" if metadata is None else str(_opened(ref.uid, metadata)["files"]),
        )
        # The digest covers the entries as they are stored: a newer driver may have written more fields.
        expected = {_digest(ref, boot_id, entries, cdi_spec)} if digests else set()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRow(f"the row of claim {uid!a} cannot be read: {error}") from error
    if digests != expected:
        raise DamagedRow(f"the row of claim {ref} is not as it was written")
    return claim


class DamagedRow(sqlite3.DatabaseError):
    """One row is not as it was written. Other rows may be good."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def _entries(devices: str) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the entries of the column `devices`, and the digests that they had."""
    entries = json.loads(devices)
    return entries, {entry.pop("digest", "") for entry in entries} - {""}


def _digest(ref: ClaimRef, boot_id: str, entries: Sequence[object], cdi_spec: str) -> str:
    text = _sorted([ref.uid, ref.namespace, ref.name, boot_id, entries, cdi_spec])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _sealed(uid: ClaimUid, entry: Mapping[str, object]) -> str:
    return json.dumps({**entry, "digest": _seal(uid, entry)})


def _opened(uid: ClaimUid, text: str) -> Mapping[str, Any]:
    entry: dict[str, Any] = json.loads(text)
    if entry.pop("digest") != _seal(uid, entry):
        raise ValueError(f"{text[:200]} is not as it was written")
    return entry


def _seal(uid: ClaimUid, entry: Mapping[str, object]) -> str:
    text = _sorted([uid, entry])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _users(entry: Mapping[str, Any]) -> Users:
    pods = entry["pods"]
    known = None if pods is None else tuple(map(PodUid, pods))
    return Users(known, entry["sole"], entry["unnamed"], _call(entry.get("call")))


def _call(entry: Mapping[str, Any] | None) -> CallBegun | None:
    if entry is None:
        return None
    return CallBegun(str(entry["checkpoint"]), frozenset(map(PodUid, entry["pods"])))


def _held(entry: Mapping[str, Any]) -> Held:
    return Held(entry["reason"], entry["since"], entry["unasked"], entry["by_admin"])


def _lease_entry(lease: Lease) -> dict[str, object]:
    config = lease.config
    return {
        "index": lease.index,
        "request": lease.request,
        "device": lease.device,
        "share": lease.share_id,
        "consumed": dict(lease.consumed_capacity),
        "admin": lease.admin_access,
        "config": {
            "apiVersion": config.api_version,
            "kind": config.kind,
            "value": msgspec.to_builtins(config.value, str_keys=True),
        },
        "backend": lease.backend,
        "parent": lease.parent,
        "parts": lease.parts,
        "profile": lease.profile,
    }


def _leases(uid: ClaimUid, entry: Mapping[str, Any]) -> tuple[Lease, ...]:
    return tuple(
        Lease(
            claim_uid=uid,
            request=one["request"],
            device=DeviceName(one["device"]),
            index=one["index"],
            share_id=ShareId(one["share"]),
            consumed_capacity=one["consumed"],
            admin_access=one["admin"],
            # `planning.config.restored` gives the value its type again, with the kinds of the backend.
            config=DeviceConfig(
                one["config"]["apiVersion"], one["config"]["kind"], one["config"]["value"]
            ),
            backend=one["backend"],
            parent=one["parent"],
            parts=tuple(one["parts"]),
            profile=one["profile"],
        )
        for one in entry["leases"]
    )


def _entry(device: PreparedDevice) -> dict[str, object]:
    # An older driver that writes the row anew leaves it out, and the row is one of an unknown answer.
    by_name = {"by_name": True} if device.by_name else {}
    return {
        "requests": device.request_names,
        "pool": device.pool,
        "device": device.device,
        "cdi": device.cdi_ids,
        "uuid": device.uuid,
        "share": device.share_id,
        "admin": device.admin_access,
        **by_name,
    }


def _device(entry: Mapping[str, Any]) -> PreparedDevice:
    return PreparedDevice(
        request_names=tuple(entry["requests"]),
        pool=PoolName(entry["pool"]),
        device=DeviceName(entry["device"]),
        cdi_ids=tuple(entry["cdi"]),
        uuid=entry["uuid"],
        share_id=ShareId(entry.get("share", "")),
        admin_access=entry.get("admin", False),
        by_name=entry.get("by_name", False),
    )
