# SPDX-License-Identifier: Apache-2.0
"""The verbs of the Kubernetes API: each is a function from a parsed request to an HTTP status and an object."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dra_driver.model.api.resource_claim import GROUP
from dra_driver.testing.fake_api.apply import CONTENT_TYPE, applied_devices
from dra_driver.testing.fake_api.apply_node import applied_node, noticed
from dra_driver.testing.fake_api.kinds import Object, convert
from dra_driver.testing.fake_api.raw import loads
from dra_driver.testing.fake_api.routes import Route, matcher, page_not_found, parse_query
from dra_driver.testing.fake_api.store import Preconditions, Refused, Store

MERGE_PATCHES = ("application/merge-patch+json", "application/strategic-merge-patch+json")

Result = tuple[int, Object]


class Ask(Struct, frozen=True):
    """One parsed request: the `path` with its query, the route, and the body as bytes."""

    store: Store
    route: Route
    path: str
    body: bytes
    content_type: str
    accept: str = ""

    def json(self) -> Object:
        """Return the body as a JSON object. Raises Refused (400) if the body is no JSON object."""
        try:
            body = loads(self.body)
        except ValueError as error:
            raise Refused(400, "BadRequest", f"json parse error: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, "BadRequest", "the body is no JSON object")
        return body

    def read(self, *, kind: str, api_version: str) -> Object:
        """Return the object in the body. Raises Refused if its kind or version differs from the path."""
        obj = self.json()
        if (obj.get("kind"), obj.get("apiVersion")) != (kind, api_version):
            why = f"the object provided is unrecognized (must be of type {kind})"
            raise Refused(400, "BadRequest", why)
        return stored_form(self.route, obj)

    def read_own_kind(self) -> Object:
        kind = self.route.kind
        return self.read(kind=kind.name, api_version=kind.api_version(self.route.version))


def served_form(route: Route, obj: Object) -> Object:
    """Return a stored object in the version of the request."""
    if route.kind.group != GROUP:
        return obj
    return convert(obj, route.version, direction="serve")


def stored_form(route: Route, obj: Object) -> Object:
    """Return an object from a request, in the form of the store (v1)."""
    if route.kind.group != GROUP:
        return obj
    return convert(obj, route.version, direction="store")


def do(verb: str, ask: Ask) -> Result:
    """Carry out a request. Raises Refused if the server refuses it."""
    action = VERBS.get(verb)
    if action is None:
        raise Refused(405, "MethodNotAllowed", f"the server does not allow {verb} here")
    return action(ask)


def _get(ask: Ask) -> Result:
    route = ask.route
    stored = ask.store.get(route.kind, route.name, namespace=route.namespace)
    return 200, served_form(route, stored)


def _list(ask: Ask) -> Result:
    query = parse_query(ask.path)
    matches = matcher(ask.route, query)
    write = _asked_form(ask.accept)
    items, metadata = ask.store.page(ask.route.kind, matches, limit=query.limit, token=query.token)
    return 200, write(ask.route, items, metadata)


def _create(ask: Ask) -> Result:
    route = ask.route
    if route.subresource == "binding":
        return _bind(ask)
    if route.name:
        raise page_not_found()
    obj = ask.read_own_kind()
    if obj.get("metadata", {}).get("namespace", route.namespace) != route.namespace:
        why = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise Refused(400, "BadRequest", why)
    dry_run = parse_query(ask.path).dry_run
    created = ask.store.create(route.kind, obj, namespace=route.namespace, dry_run=dry_run)
    return 201, served_form(route, created)


def _bind(ask: Ask) -> Result:
    node = ask.read(kind="Binding", api_version="v1").get("target", {}).get("name", "")

    def bound(pod: Object) -> Object:
        return {**pod, "spec": {**pod.get("spec", {}), "nodeName": node}}

    route = ask.route
    ask.store.update(route.kind, route.name, bound, namespace=route.namespace)
    return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}


def _update(ask: Ask) -> Result:
    obj = ask.read_own_kind()
    name = obj.get("metadata", {}).get("name", "")
    if name != ask.route.name:
        why = (
            f"the name of the object ({name}) does not match the name on the URL ({ask.route.name})"
        )
        raise Refused(400, "BadRequest", why)
    return _replace(ask, lambda _present: obj)


def _patch(ask: Ask) -> Result:
    patch, route = ask.json(), ask.route
    manager = parse_query(ask.path).field_manager
    if ask.content_type == CONTENT_TYPE and (apply := _apply_of(route)) is not None:
        stored = ask.store.update(
            route.kind,
            route.name,
            lambda present: apply(present, patch, manager),
            namespace=route.namespace,
        )
        return 200, served_form(route, stored)
    if ask.content_type not in MERGE_PATCHES:
        why = "the fake takes merge patches, an apply of a Node, and one of the status of a ResourceClaim"
        raise Refused(415, "UnsupportedMediaType", why)

    def patched(present: Object) -> Object:
        return stored_form(route, merge_patch(served_form(route, present), patch))

    return _replace(ask, patched)


def _apply_of(route: Route) -> Callable[[Object, Object, str], Object] | None:
    """The function that applies an object of this path; None if the fake has none."""
    if (route.kind.plural, route.subresource) == ("resourceclaims", "status"):
        return applied_devices
    if route.kind.plural == "nodes":
        return lambda present, body, manager: applied_node(
            present, body, manager, route.subresource
        )
    return None


def _replace(ask: Ask, change: Callable[[Object], Object]) -> Result:
    """Replace the object without its status, or only its status; the path decides which."""
    route = ask.route

    def merged(present: Object) -> Object:
        wanted = change(present)
        if route.kind.plural == "nodes" and not route.subresource:
            wanted = noticed(present, wanted)
        if route.subresource == "status":
            version = wanted.get("metadata", {}).get("resourceVersion")
            metadata = {**present["metadata"], "resourceVersion": version}
            return {**present, "metadata": metadata, "status": wanted.get("status", {})}
        if route.kind.has_status:
            wanted = {key: value for key, value in wanted.items() if key != "status"}
            return {**wanted, "status": present["status"]} if "status" in present else wanted
        return wanted

    stored = ask.store.update(route.kind, route.name, merged, namespace=route.namespace)
    return 200, served_form(route, stored)


def _delete(ask: Ask) -> Result:
    route = ask.route
    given = (ask.json() if ask.body else {}).get("preconditions") or {}
    preconditions = Preconditions(given.get("uid"), given.get("resourceVersion"))
    gone = ask.store.delete(route.kind, route.name, preconditions, namespace=route.namespace)
    return 200, served_form(route, gone)


def _delete_collection(ask: Ask) -> Result:
    route = ask.route
    items, metadata = ask.store.page(route.kind, matcher(route, parse_query(ask.path)))
    for item in items:
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace", "")
        ask.store.delete(route.kind, name, Preconditions(), namespace=namespace)
    return 200, _list_object(route, items, metadata)


VERBS: dict[str, Callable[[Ask], Result]] = {
    "get": _get,
    "list": _list,
    "create": _create,
    "update": _update,
    "patch": _patch,
    "delete": _delete,
    "deletecollection": _delete_collection,
}


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _list_object(route: Route, items: list[Object], metadata: Object) -> Object:
    """Return a list. Its items have no kind and apiVersion, as from the real server."""
    served = [served_form(route, item) for item in items]
    bare = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in served]
    return {
        "kind": f"{route.kind.name}List",
        "apiVersion": route.kind.api_version(route.version),
        "metadata": metadata,
        "items": bare,
    }


def _metadata_list(_route: Route, items: list[Object], metadata: Object) -> Object:
    """Return a list with only the metadata of the objects."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "items": [{"metadata": item["metadata"]} for item in items],
    }


def _table(_route: Route, items: list[Object], metadata: Object) -> Object:
    """Return a list as a Table: each row begins with the name. It never includes the objects."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name"}],
        "rows": [{"cells": [item["metadata"]["name"]], "object": None} for item in items],
    }


_FORMS: dict[str, Callable[[Route, list[Object], Object], Object]] = {
    "PartialObjectMetadataList": _metadata_list,
    "Table": _table,
}


def _asked_form(accept: str) -> Callable[[Route, list[Object], Object], Object]:
    """Return the function that writes a list in the requested form.

    Raises Refused (406) for an unknown form, or one that this version does not have (real servers know v1beta1 as well).
    """
    options = dict(part.strip().partition("=")[::2] for part in accept.split(";")[1:])
    if "as" not in options:
        return _list_object
    form = _FORMS.get(options["as"])
    if form is None or (options.get("g"), options.get("v")) != ("meta.k8s.io", "v1"):
        raise Refused(
            406, "NotAcceptable", "only the following media types are accepted: application/json"
        )
    return form
