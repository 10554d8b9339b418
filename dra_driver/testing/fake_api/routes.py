# SPDX-License-Identifier: Apache-2.0
"""How are the path and the query of a Kubernetes API request parsed?"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from dra_driver.model.api.resource_claim import GROUP
from dra_driver.testing.fake_api.kinds import KINDS, OTHER_GROUPS, Object, ResourceKind
from dra_driver.testing.fake_api.store import Refused

SUBRESOURCES = ("", "status", "binding")


class Route(Struct, frozen=True):
    """A path below a served version; `name` is empty for a collection."""

    kind: ResourceKind
    version: str
    namespace: str
    name: str
    subresource: str


class Query(Struct, frozen=True):
    """The parameters of a list, watch or deletion."""

    watch: bool
    fields: str
    labels: str
    limit: int
    token: str
    resource_version: str
    timeout_seconds: float
    bookmarks: bool
    dry_run: bool
    field_manager: str


def page_not_found() -> Refused:
    """Return the real server's answer for a path without a kind."""
    return Refused(404, "NotFound", "the server could not find the requested resource")


def parse_route(path: str, versions: tuple[str, ...]) -> Route:
    """Return the route of a path. Raises Refused if nothing is served there."""
    parts = [part for part in urlsplit(path).path.split("/") if part]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[:2] == ["apis", GROUP] and len(parts) > 2 and parts[2] in versions:
        group, version, rest = GROUP, parts[2], parts[3:]
    elif parts[:1] == ["apis"] and "".join(parts[1:2]) in OTHER_GROUPS and parts[2:3] == ["v1"]:
        group, version, rest = parts[1], "v1", parts[3:]
    else:
        raise page_not_found()
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] in KINDS:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = [*rest, "", "", ""]
    kind = KINDS.get(plural)
    if subresource not in SUBRESOURCES:
        raise page_not_found()
    if (
        kind is None
        or kind.group != group
        or any(more)
        or (name and kind.namespaced and not namespace)
    ):
        raise page_not_found()
    return Route(kind, version, namespace, name, subresource)


def parse_query(path: str) -> Query:
    """Return the parameters of the query, with the server's defaults for missing ones."""
    given: Mapping[str, str] = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
    return Query(
        watch=given.get("watch", "") in ("1", "true"),
        fields=given.get("fieldSelector", ""),
        labels=given.get("labelSelector", ""),
        limit=int(given.get("limit", "0")),
        token=given.get("continue", ""),
        resource_version=given.get("resourceVersion", ""),
        timeout_seconds=float(given.get("timeoutSeconds", "1800")),
        bookmarks=given.get("allowWatchBookmarks", "") in ("1", "true"),
        dry_run=given.get("dryRun", "") == "All",
        field_manager=given.get("fieldManager", ""),
    )


def verb_of(method: str, path: str) -> str:
    """Return the verb of a request as RBAC names it: a GET of a collection is a list or a watch."""
    try:
        named = bool(parse_route(path, ("v1", "v1beta2", "v1beta1")).name)
    except Refused:
        named = True
    if method == "GET" and not named:
        return "watch" if parse_query(path).watch else "list"
    if method == "DELETE" and not named:
        return "deletecollection"
    return {
        "GET": "get",
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete",
    }.get(method, method)


def resource_of(path: str) -> str:
    """Return the plural (with "/status") in a path, or "discovery"."""
    try:
        route = parse_route(path, ("v1", "v1beta2", "v1beta1"))
    except Refused:
        return "discovery"
    return f"{route.kind.plural}/{route.subresource}" if route.subresource else route.kind.plural


def matcher(route: Route, query: Query) -> Callable[[Object], bool]:
    """Return a function that checks whether an object matches the selectors.

    Raises Refused (400) for a field that the kind cannot select by.
    """
    fields = [
        _requirement(text, ("metadata.name", "metadata.namespace", *route.kind.selectable))
        for text in _split(query.fields)
    ]
    labels = [_requirement(text, ()) for text in _split(query.labels)]

    def matches(obj: Object) -> bool:
        if route.namespace and obj["metadata"].get("namespace") != route.namespace:
            return False
        own = obj["metadata"].get("labels") or {}
        return all((_text(obj, key) == value) is equal for key, value, equal in fields) and all(
            (own.get(key) == value) is equal for key, value, equal in labels
        )

    return matches


def _split(selector: str) -> list[str]:
    return [part for part in selector.split(",") if part]


def _requirement(text: str, allowed: tuple[str, ...]) -> tuple[str, str, bool]:
    equal = "!=" not in text
    key, _, value = text.partition("!=" if not equal else "=")
    if allowed and key not in allowed:
        raise Refused(400, "BadRequest", f"field label not supported: {key}")
    return key, value.removeprefix("="), equal


def _text(obj: Object, path: str) -> str:
    value: Any = obj
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return "" if value is None else str(value)
