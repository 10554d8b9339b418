# SPDX-License-Identifier: Apache-2.0
"""Server-side apply, for the only object that the driver applies: its entries in status.devices of a ResourceClaim.

As in the real server, metadata.managedFields says which field manager applied which entries, and which conditions of them. What the manager
applied before and does not apply now is removed, unless another manager applied it too.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from dra_driver.testing.fake_api.kinds import Object
from dra_driver.testing.fake_api.store import Refused

CONTENT_TYPE = "application/apply-patch+yaml"
MOST_CONDITIONS = 8
LARGEST_DATA_BYTES = 10 * 1024
_KEYS = ("driver", "pool", "device", "shareID")


def applied_devices(present: Object, body: Object, manager: str) -> Object:
    """Return the claim with the entries of `body` applied. Raises Refused."""
    if not manager:
        raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
    uid = body.get("metadata", {}).get("uid", "")
    if uid and uid != present["metadata"]["uid"]:
        why = f'metadata.uid: Invalid value: "{uid}": field is immutable'
        raise Refused(422, "Invalid", why)
    wanted = {_key(entry): entry for entry in body.get("status", {}).get("devices") or []}
    status = present.get("status") or {}
    if causes := [why for entry in wanted.values() for why in _wrong(entry, status)]:
        raise Refused(422, "Invalid", "; ".join(causes))
    entries = {_key(entry): entry for entry in status.get("devices") or []}
    others = _applied(present, lambda name: name != manager)
    for key, before in _applied(present, lambda name: name == manager).items():
        if key not in wanted and key not in others:
            entries.pop(key, None)
        elif key in entries:
            lost = before - _types(wanted.get(key, {})) - others.get(key, set())
            entries[key] = _without(entries[key], lost)
    for key, entry in wanted.items():
        entries[key] = _joined(entries.get(key, {}), entry)
    status = {**status, "devices": list(entries.values())}
    if not entries:
        del status["devices"]
    return {**present, "metadata": _managed(present, manager, wanted), "status": status}


def _joined(present: Object, entry: Object) -> Object:
    """Conditions of other types stay: another field manager may have applied them."""
    types = _types(entry)
    kept = [one for one in present.get("conditions") or () if one["type"] not in types]
    conditions = [*kept, *(entry.get("conditions") or ())]
    return {**present, **entry, **({"conditions": conditions} if conditions else {})}


def _key(entry: Object) -> str:
    return json.dumps({key: entry[key] for key in _KEYS if key in entry})


def _wrong(entry: Object, status: Object) -> Iterator[str]:
    results = (status.get("allocation") or {}).get("devices", {}).get("results") or []
    if _key(entry) not in map(_key, results):
        yield f"status.devices: Invalid value: {_key(entry)}: must be an allocated device in the claim"
    if len(entry.get("conditions") or ()) > MOST_CONDITIONS:
        yield f"status.devices.conditions: Too many: must have at most {MOST_CONDITIONS} items"
    data = entry.get("data", {})
    if not isinstance(data, dict):
        yield "status.devices.data: Invalid value: must be a JSON object"
    if len(json.dumps(data)) > LARGEST_DATA_BYTES:
        yield f"status.devices.data: Too long: may not be more than {LARGEST_DATA_BYTES} bytes"


def _types(entry: Object) -> set[str]:
    return {one["type"] for one in entry.get("conditions") or ()}


def _without(entry: Object, types: set[str]) -> Object:
    left = [one for one in entry.get("conditions") or () if one["type"] not in types]
    rest = {name: value for name, value in entry.items() if name != "conditions"}
    return {**rest, "conditions": left} if left else rest


def _applied(present: Object, wanted: Callable[[str], bool]) -> dict[str, set[str]]:
    """The entries that these field managers applied, and the types of the conditions in them."""
    found: dict[str, set[str]] = {}
    for entry in present["metadata"].get("managedFields") or []:
        if wanted(entry["manager"]):
            fields: dict[str, Any] = entry["fieldsV1"]["f:status"]["f:devices"]
            for key, inner in fields.items():
                types = {json.loads(one[2:])["type"] for one in inner.get("f:conditions", {})}
                found.setdefault(key.removeprefix("k:"), set()).update(types)
    return found


def _managed(present: Object, manager: str, wanted: dict[str, Object]) -> Object:
    metadata: Object = present["metadata"]
    others = [one for one in metadata.get("managedFields") or [] if one["manager"] != manager]
    fields: Object = {
        "f:status": {"f:devices": {f"k:{key}": _fields(one) for key, one in wanted.items()}}
    }
    own = {
        "manager": manager,
        "operation": "Apply",
        "subresource": "status",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**metadata, "managedFields": [*others, own]}


def _fields(entry: Object) -> Object:
    conditions: Object = {f"k:{json.dumps({'type': one})}": {} for one in sorted(_types(entry))}
    return {"f:conditions": conditions} if conditions else {}
