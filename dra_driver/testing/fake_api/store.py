# SPDX-License-Identifier: Apache-2.0
"""The store of the fake API server: resource versions, conflicts, preconditions, and a history for watches.

One lock protects everything. Each write gets the next resource version and appends a `Change` to the history. A watch reads the
history from its version on, and waits on the condition for more. `compact` deletes the history: then old watches and old `continue`
tokens get 410, as from a real server.

Callers pass and get copies of objects, in v1 form. `Refused` is an exception with the server's Status object.
"""

import base64
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct, field

from dra_driver.testing.fake_api.kinds import KINDS, Object, ResourceKind, fill_in
from dra_driver.testing.fake_api.rules import (
    Cause,
    check_name,
    check_slice,
    fill_in_slice,
    normalise_slice,
)

Matcher = Callable[[Object], bool]


class Change(Struct, frozen=True):
    """One write in the history. `before` is None for a creation, `after` is None for a deletion."""

    version: int
    plural: str
    before: Object | None
    after: Object | None
    last: Object


class Preconditions(Struct, frozen=True):
    """The UID and the resource version that an object must have to be deleted."""

    uid: str | None = None
    resource_version: str | None = None


class Refused(Exception):
    """The server refuses the request. The exception has the Status object of the answer."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": dict(details or {}),
            "code": code,
        }


def not_found(kind: ResourceKind, name: str) -> Refused:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return Refused(404, "NotFound", f'{kind.qualified} "{name}" not found', details)


def conflict(kind: ResourceKind, name: str, why: str) -> Refused:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return Refused(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}',
        details,
    )


def invalid(kind: ResourceKind, name: str, causes: list[Cause]) -> Refused:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "name": name,
        "group": kind.group,
        "kind": kind.name,
        "causes": [
            {"reason": cause.reason, "message": cause.message, "field": cause.field}
            for cause in causes
        ],
    }
    return Refused(
        422, "Invalid", f'{kind.name}.{kind.group} "{name}" is invalid: {listed}', details
    )


def expired(message: str) -> Refused:
    return Refused(410, "Expired", message)


class Store(Struct):
    """All objects of the cluster. `dropped_fields` are paths that the store silently removes from every write, as for a feature gate that is off."""

    condition: threading.Condition = field(default_factory=threading.Condition)
    version: int = 100
    compacted: int = 0
    history: list[Change] = field(default_factory=list)
    dropped_fields: tuple[str, ...] = ()
    _objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)

    def create(
        self,
        kind: ResourceKind,
        obj: Object,
        *,
        namespace: str = "",
        trusted: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Create `obj`; a dry run stores nothing.

        A `trusted` write comes from the test itself: the store does not check it, and keeps its status.
        """
        obj = deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if not trusted:
            self._admit(kind, obj)
            fill_in(obj)
        with self.condition:
            key = (kind.plural, namespace, metadata["name"])
            if key in self._objects:
                details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural}
                raise Refused(
                    409,
                    "AlreadyExists",
                    f'{kind.qualified} "{metadata["name"]}" already exists',
                    details,
                )
            metadata.update(uid=str(uuid.uuid4()), generation=1, creationTimestamp=_now())
            if kind.namespaced:
                metadata["namespace"] = namespace
            if kind.has_status and not kind.created_with_status and not trusted:
                obj.pop("status", None)
            return obj if dry_run else self._write(kind, key, obj)

    def get(self, kind: ResourceKind, name: str, *, namespace: str = "") -> Object:
        with self.condition:
            obj = self._objects.get((kind.plural, namespace, name))
            if obj is None:
                raise not_found(kind, name)
            return deepcopy(obj)

    def page(
        self, kind: ResourceKind, matches: Matcher, *, limit: int = 0, token: str = ""
    ) -> tuple[list[Object], Object]:
        """Return one page of objects, and the metadata of the list. A token is valid until `compact`."""
        with self.condition:
            keys = sorted(
                key for key, obj in self._objects.items() if key[0] == kind.plural and matches(obj)
            )
            version = self.version
            if token:
                version, after = _read_token(token)
                if version < self.compacted:
                    raise expired(
                        "The provided continue parameter is too old to display a consistent list result."
                    )
                keys = [key for key in keys if key > after]
            page = keys[:limit] if limit else keys
            metadata: Object = {"resourceVersion": str(version)}
            if len(page) < len(keys):
                metadata |= {
                    "continue": _token(version, page[-1]),
                    "remainingItemCount": len(keys) - len(page),
                }
            return [deepcopy(self._objects[key]) for key in page], metadata

    def update(
        self,
        kind: ResourceKind,
        name: str,
        change: Callable[[Object], Object],
        *,
        namespace: str = "",
        trusted: bool = False,
    ) -> Object:
        """Replace an object by the result of `change`, if its resourceVersion and UID match."""
        with self.condition:
            present = self.get(kind, name, namespace=namespace)
            wanted = deepcopy(change(deepcopy(present)))
            if not trusted:
                self._compare(kind, present, wanted)
            kept = (
                "uid",
                "creationTimestamp",
                "generation",
                "name",
                "namespace",
                "deletionTimestamp",
                "resourceVersion",
            )
            metadata = wanted.setdefault("metadata", {})
            metadata.update(
                {key: present["metadata"][key] for key in kept if key in present["metadata"]}
            )
            if wanted == present:
                return present  # the real server does not write an update without a change
            if wanted.get("spec") != present.get("spec"):
                metadata["generation"] += 1
            key = (kind.plural, namespace, name)
            if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
                return self._remove(kind, key)
            return self._write(kind, key, wanted)

    def delete(
        self, kind: ResourceKind, name: str, preconditions: Preconditions, *, namespace: str = ""
    ) -> Object:
        with self.condition:
            present = self.get(kind, name, namespace=namespace)
            metadata = present["metadata"]
            for what, wanted, found in (
                ("UID", preconditions.uid, metadata["uid"]),
                ("ResourceVersion", preconditions.resource_version, metadata["resourceVersion"]),
            ):
                if wanted is not None and wanted != found:
                    why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
                    raise conflict(kind, name, why)
            if metadata.get("finalizers"):
                metadata.setdefault("deletionTimestamp", _now())
                return self._write(kind, (kind.plural, namespace, name), present)
            return self._remove(kind, (kind.plural, namespace, name))

    def compact(self) -> None:
        """Delete the history: older watches and `continue` tokens get 410 from now on."""
        with self.condition:
            self.version += 1
            self.compacted = self.version
            self.history.clear()
            self.condition.notify_all()

    def changes(self, version: int) -> list[Change]:
        """Return the changes after `version`.

        Raises Refused (410) if `compact` deleted them. The caller must hold the condition.
        """
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        return [change for change in self.history if change.version > version]

    def _admit(self, kind: ResourceKind, obj: Object) -> None:
        name = obj["metadata"].get("name", "")
        if not name:
            raise Refused(
                422,
                "Invalid",
                f"{kind.name} is invalid: metadata.name: Required value: name or generateName is required",
            )
        causes = check_name(name)
        for path in self.dropped_fields:
            drop_field(obj, path.split("."))
        if kind.plural == "resourceslices":
            if wrong := normalise_slice(obj.setdefault("spec", {})):
                why = f"ResourceSlice cannot be handled as a ResourceSlice: {wrong}"
                raise Refused(400, "BadRequest", why)
            fill_in_slice(obj["spec"], now=_now())
            causes += check_slice(obj["spec"])
        if causes:
            raise invalid(kind, name, causes)

    def _compare(self, kind: ResourceKind, present: Object, wanted: Object) -> None:
        name = present["metadata"]["name"]
        metadata = wanted.setdefault("metadata", {})
        if metadata.get("uid") not in (None, "", present["metadata"]["uid"]):
            raise conflict(
                kind, name, f"Precondition failed: UID in precondition: {metadata['uid']}"
            )
        if metadata.get("resourceVersion") not in (
            None,
            "",
            present["metadata"]["resourceVersion"],
        ):
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(kind, name, why)
        self._admit(kind, wanted)
        changed = [path for path in kind.immutable if _at(present, path) != _at(wanted, path)]
        if changed:
            why = "field is immutable"
            causes = [
                Cause(path, "FieldValueInvalid", f'Invalid value: "{_at(wanted, path)}": {why}')
                for path in changed
            ]
            raise invalid(kind, name, causes)

    def _write(self, kind: ResourceKind, key: tuple[str, str, str], obj: Object) -> Object:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        before = self._objects.get(key)
        self._objects[key] = obj
        self._record(Change(self.version, kind.plural, before, obj, obj))
        return deepcopy(obj)

    def _remove(self, kind: ResourceKind, key: tuple[str, str, str]) -> Object:
        self.version += 1
        before = self._objects.pop(key)
        last = deepcopy(before)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._record(Change(self.version, kind.plural, before, None, last))
        return last

    def _record(self, change: Change) -> None:
        self.history.append(change)
        self.condition.notify_all()


def event_type(change: Change, matches: Matcher) -> Literal["ADDED", "MODIFIED", "DELETED"] | None:
    """Return the event of a change for a watch with this selector. An object that begins to match is ADDED for this watch."""
    was = change.before is not None and matches(change.before)
    now = change.after is not None and matches(change.after)
    if now:
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else None


def drop_field(value: Any, path: list[str]) -> None:
    """Remove the field at this path; "*" in the path means every entry of a list or map."""
    head, rest = path[0], path[1:]
    if isinstance(value, list):
        for entry in value:
            drop_field(entry, rest if head == "*" else path)
    elif isinstance(value, dict):
        for key in tuple(value) if head == "*" else (head,):
            if not rest:
                value.pop(key, None)
            elif key in value:
                drop_field(value[key], rest)


def kind_of(plural: str) -> ResourceKind:
    return KINDS[plural]


def _at(obj: Object, path: str) -> Any:
    value: Any = obj
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _token(version: int, after: tuple[str, str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *after]).encode()).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str, str]]:
    try:
        version, plural, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise Refused(400, "BadRequest", f"invalid continue token: {error}") from error
    return version, (plural, namespace, name)
