# SPDX-License-Identifier: Apache-2.0
"""Server-side apply for Nodes: labels, and by the path of the status conditions.

As in the real server, metadata.managedFields says which field manager wrote which of them. What a manager applied before and does not apply
now is removed, unless another manager wrote it too. Another value than that of another manager is a conflict (the fake does not know
`force`). A write of another kind that changes a label takes it from those who applied it.
"""

import json
from typing import Any

from dra_driver.testing.fake_api.kinds import Object
from dra_driver.testing.fake_api.store import Refused

SOMEBODY = "somebody"
"""The field manager of what was written without an apply."""


def applied_node(present: Object, body: Object, manager: str, subresource: str) -> Object:
    """Return the Node with the labels, or the conditions, of `body` applied. Raises Refused."""
    if not manager:
        raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
    metadata: Object = present["metadata"]
    uid = body.get("metadata", {}).get("uid", "")
    if uid and uid != metadata["uid"]:
        why = f'metadata.uid: Invalid value: "{uid}": field is immutable'
        raise Refused(422, "Invalid", why)
    is_status = subresource == "status"
    wanted = _conditions(body) if is_status else dict(body.get("metadata", {}).get("labels") or {})
    found = _conditions(present) if is_status else dict(metadata.get("labels") or {})
    owners = _owners(metadata, subresource)
    mine = owners.pop(manager, set())
    taken = [
        key
        for key, value in wanted.items()
        if key in found and found[key] != value and key not in mine
    ]
    shared = set().union(*owners.values())
    taken += [key for key, value in wanted.items() if key in mine & shared and found[key] != value]
    if taken:
        fields = ", ".join(
            f".{'status.conditions' if is_status else 'metadata.labels'}.{key}"
            for key in sorted(taken)
        )
        raise Refused(409, "Conflict", f"Apply failed with {len(taken)} conflicts: {fields}")
    kept = {
        key: value
        for key, value in found.items()
        if key in wanted or key not in mine or key in shared
    }
    after = {**kept, **wanted}
    owners[manager] = set(wanted)
    metadata = {**metadata, "managedFields": _written(owners, subresource, metadata)}
    if is_status:
        status = {**(present.get("status") or {}), "conditions": list(after.values())}
        return {**present, "metadata": metadata, "status": status}
    return {**present, "metadata": {**metadata, "labels": after}}


def noticed(before: Object, after: Object) -> Object:
    """Return the Node as somebody wrote it without an apply: the labels that changed belong to them now."""
    old, new = (dict(one["metadata"].get("labels") or {}) for one in (before, after))
    changed = {key for key in {**old, **new} if old.get(key) != new.get(key)}
    if not changed:
        return after
    metadata = before["metadata"]
    owners = {name: keys - changed for name, keys in _owners(metadata, "").items()}
    owners[SOMEBODY] = owners.get(SOMEBODY, set()) | (changed & new.keys())
    written = _written(owners, "", metadata)
    return {**after, "metadata": {**after["metadata"], "managedFields": written}}


def _conditions(node: Object) -> dict[str, Any]:
    return {one["type"]: one for one in (node.get("status") or {}).get("conditions") or ()}


def _owners(metadata: Object, subresource: str) -> dict[str, set[str]]:
    """The labels, or the types of the conditions, that each field manager wrote."""
    found: dict[str, set[str]] = {}
    for entry in metadata.get("managedFields") or ():
        if entry.get("subresource", "") == subresource:
            fields: Object = entry["fieldsV1"]
            if subresource:
                keys = {json.loads(key[2:])["type"] for key in fields["f:status"]["f:conditions"]}
            else:
                keys = {key[2:] for key in fields["f:metadata"]["f:labels"]}
            found[entry["manager"]] = keys
    return found


def _written(owners: dict[str, set[str]], subresource: str, metadata: Object) -> list[Object]:
    others = [
        entry
        for entry in metadata.get("managedFields") or ()
        if entry.get("subresource", "") != subresource
    ]
    return [*others, *(_entry(name, owners[name], subresource) for name in owners if owners[name])]


def _entry(manager: str, keys: set[str], subresource: str) -> Object:
    ordered = sorted(keys)
    fields: Object = (
        {"f:status": {"f:conditions": {f"k:{json.dumps({'type': key})}": {} for key in ordered}}}
        if subresource
        else {"f:metadata": {"f:labels": {f"f:{key}": {} for key in ordered}}}
    )
    return {
        "manager": manager,
        "operation": "Update" if manager == SOMEBODY else "Apply",
        "apiVersion": "v1",
        **({"subresource": subresource} if subresource else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
