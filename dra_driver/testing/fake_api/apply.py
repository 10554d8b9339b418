# SPDX-License-Identifier: Apache-2.0
"""Server-side apply, for the only object that the driver applies: its entries in status.devices of a ResourceClaim.

As in the real server, metadata.managedFields says which field manager applied which entries. An entry that the manager applied before
and that is missing now is removed; entries of others stay.
"""

import json
from collections.abc import Iterator
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
    gone = _applied_by(present, manager) - wanted.keys()
    entries = {_key(entry): entry for entry in status.get("devices") or []}
    entries = {key: entry for key, entry in entries.items() if key not in gone}
    for key, entry in wanted.items():
        entries[key] = _joined(entries.get(key, {}), entry)
    status = {**status, "devices": list(entries.values())}
    if not entries:
        del status["devices"]
    return {**present, "metadata": _managed(present, manager, wanted), "status": status}


def _joined(present: Object, entry: Object) -> Object:
    """Conditions of other types stay: another field manager may have applied them."""
    types = {one["type"] for one in entry.get("conditions") or ()}
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


def _applied_by(present: Object, manager: str) -> set[str]:
    for entry in present["metadata"].get("managedFields") or []:
        if entry["manager"] == manager:
            fields: dict[str, Any] = entry["fieldsV1"]["f:status"]["f:devices"]
            return {key.removeprefix("k:") for key in fields}
    return set()


def _managed(present: Object, manager: str, wanted: dict[str, Object]) -> Object:
    metadata: Object = present["metadata"]
    others = [one for one in metadata.get("managedFields") or [] if one["manager"] != manager]
    fields: Object = {"f:status": {"f:devices": {f"k:{key}": {} for key in wanted}}}
    own = {
        "manager": manager,
        "operation": "Apply",
        "subresource": "status",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**metadata, "managedFields": [*others, own]}
