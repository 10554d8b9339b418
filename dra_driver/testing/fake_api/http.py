# SPDX-License-Identifier: Apache-2.0
"""How does the fake API server speak HTTP? One request at a time per connection, HTTP/1.1 with keep-alive.

`Handler` finds the verb, lets a waiting fault have the request, checks the bearer token, and calls the store. Answers are
JSON, compressed from 128 KiB on when the client takes gzip (as the real server does); a watch is a chunked stream of
lines. A watch ends when its time is over, when its history is compacted, or when the server stops.
"""

import gzip
import json
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from dra_driver.testing.fake_api.faults import (
    Answer,
    CutWatch,
    Faults,
    Hold,
    Request,
    Reset,
    WatchLine,
)
from dra_driver.testing.fake_api.kinds import GROUP, KINDS, VERSIONS, Kind, Object, convert
from dra_driver.testing.fake_api.routes import (
    Query,
    Route,
    matcher,
    page_not_found,
    parse_query,
    parse_route,
    resource_of,
    verb_of,
)
from dra_driver.testing.fake_api.store import Preconditions, Refused, Store, event_type

GZIP_FROM_BYTES = 128 * 1024
BOOKMARK_SECONDS = 60.0


@dataclass(slots=True)
class Cluster:
    """What all connections share."""

    versions: tuple[str, ...]
    store: Store = field(default_factory=Store)
    faults: Faults = field(default_factory=Faults)
    requests: list[Request] = field(default_factory=list)
    tokens: frozenset[str] | None = None
    stopping: Event = field(default_factory=Event)
    bookmark_seconds: float = BOOKMARK_SECONDS


class Server(ThreadingHTTPServer):
    """Listens; knows its open connections, so that stopping it can end them."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], cluster: Cluster) -> None:
        self.cluster = cluster
        self._open: set[socket.socket] = set()
        self._open_lock = Lock()
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""

    def end_connections(self) -> None:
        """Break every open connection; their threads end."""
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version = "fake-kube-apiserver"

    @property
    def cluster(self) -> Cluster:
        return cast("Server", self.server).cluster

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """The request log is `Cluster.requests`."""

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def answer(self) -> None:
        """Read one request, do it, send the answer."""
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        verb, resource = verb_of(self.command, self.path), resource_of(self.path)
        self.cluster.requests.append(
            Request(verb, resource, self.path, self.headers.get("User-Agent", ""))
        )
        fault = self.cluster.faults.take(verb, resource)
        match fault:
            case Answer(status, headers, body):
                self._send(status, body, headers)
                return
            case Reset():
                self._reset()
                return
            case Hold(until):
                self._hold(until)
            case CutWatch() | WatchLine() | None:
                pass
        try:
            self._check_token()
            if verb == "watch":
                self._watch(fault if isinstance(fault, CutWatch | WatchLine) else None)
            else:
                code, obj = self._do(verb)
                self._send(code, json.dumps(obj).encode())
        except Refused as refused:
            self._send(refused.code, json.dumps(refused.status).encode())

    def _check_token(self) -> None:
        tokens = self.cluster.tokens
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if tokens is not None and given not in tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _hold(self, until: Event) -> None:
        while not until.wait(0.05) and not self.cluster.stopping.is_set():
            continue

    def _reset(self) -> None:
        """Close with RST, as a dying load balancer does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def _send(self, status: int, body: bytes, headers: Any = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if len(body) >= GZIP_FROM_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    # What is asked

    def _do(self, verb: str) -> tuple[int, Object]:
        fixed = _fixed_page(urlsplit(self.path).path, self.cluster.versions)
        if fixed is not None:
            return 200, fixed
        route = parse_route(self.path, self.cluster.versions)
        call = self._VERBS.get(verb)
        if call is None:
            raise Refused(405, "MethodNotAllowed", f"the server does not allow {self.command} here")
        code, obj = call(self, route)
        return code, obj

    def _get(self, route: Route) -> tuple[int, Object]:
        stored = self.cluster.store.get(route.kind, route.name, namespace=route.namespace)
        return 200, _served(stored, route)

    def _list(self, route: Route) -> tuple[int, Object]:
        query = parse_query(self.path)
        items, metadata = self.cluster.store.page(
            route.kind, matcher(route, query), limit=query.limit, token=query.token
        )
        bare = [_bare(_served(item, route)) for item in items]
        kind = f"{route.kind.name}List"
        return 200, {
            "kind": kind,
            "apiVersion": route.kind.api_version(route.version),
            "metadata": metadata,
            "items": bare,
        }

    def _create(self, route: Route) -> tuple[int, Object]:
        obj = self._read(route)
        if route.subresource == "binding":
            return self._bind(route, obj)
        if route.name:
            raise page_not_found()
        named = obj.get("metadata", {}).get("namespace", route.namespace)
        if named != route.namespace:
            raise Refused(
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            )
        return 201, _served(
            self.cluster.store.create(route.kind, obj, namespace=route.namespace), route
        )

    def _bind(self, route: Route, binding: Object) -> tuple[int, Object]:
        def bound(pod: Object) -> Object:
            pod.setdefault("spec", {})["nodeName"] = binding.get("target", {}).get("name", "")
            return pod

        self.cluster.store.update(route.kind, route.name, bound, namespace=route.namespace)
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}

    def _update(self, route: Route) -> tuple[int, Object]:
        obj = self._read(route)
        name = obj.get("metadata", {}).get("name", "")
        if name != route.name:
            why = (
                f"the name of the object ({name}) does not match the name on the URL ({route.name})"
            )
            raise Refused(400, "BadRequest", why)
        return self._replace(route, lambda _present: obj)

    def _patch(self, route: Route) -> tuple[int, Object]:
        if self.headers.get("Content-Type", "") not in (
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ):
            raise Refused(415, "UnsupportedMediaType", "the fake takes merge patches only")
        patch = self._json()
        return self._replace(
            route, lambda present: convert_back(route, merge_patch(_served(present, route), patch))
        )

    def _replace(self, route: Route, change: Any) -> tuple[int, Object]:
        def merged(present: Object) -> Object:
            wanted: Object = change(present)
            if route.subresource == "status":
                metadata = {
                    **present["metadata"],
                    "resourceVersion": wanted.get("metadata", {}).get("resourceVersion"),
                }
                return {**present, "metadata": metadata, "status": wanted.get("status", {})}
            if route.kind.has_status:
                wanted = {key: value for key, value in wanted.items() if key != "status"}
                return {**wanted, "status": present["status"]} if "status" in present else wanted
            return wanted

        stored = self.cluster.store.update(
            route.kind, route.name, merged, namespace=route.namespace
        )
        return 200, _served(stored, route)

    def _delete(self, route: Route) -> tuple[int, Object]:
        options = self._json() if self._body else {}
        given = options.get("preconditions") or {}
        preconditions = Preconditions(given.get("uid"), given.get("resourceVersion"))
        gone = self.cluster.store.delete(
            route.kind, route.name, preconditions, namespace=route.namespace
        )
        return 200, _served(gone, route)

    def _delete_collection(self, route: Route) -> tuple[int, Object]:
        store = self.cluster.store
        items, metadata = store.page(route.kind, matcher(route, parse_query(self.path)))
        for item in items:
            store.delete(
                route.kind,
                item["metadata"]["name"],
                Preconditions(),
                namespace=item["metadata"].get("namespace", ""),
            )
        kind = f"{route.kind.name}List"
        return 200, {
            "kind": kind,
            "apiVersion": route.kind.api_version(route.version),
            "metadata": metadata,
            "items": items,
        }

    _VERBS: ClassVar[dict[str, Any]] = {
        "get": _get,
        "list": _list,
        "create": _create,
        "update": _update,
        "patch": _patch,
        "delete": _delete,
        "deletecollection": _delete_collection,
    }

    def _json(self) -> Object:
        try:
            body = json.loads(self._body)
        except ValueError as error:
            raise Refused(400, "BadRequest", f"json parse error: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, "BadRequest", "the body is no JSON object")
        return body

    def _read(self, route: Route) -> Object:
        obj = self._json()
        expected = (
            ("Binding", "v1")
            if route.subresource == "binding"
            else (route.kind.name, route.kind.api_version(route.version))
        )
        if (obj.get("kind"), obj.get("apiVersion")) != expected:
            raise Refused(
                400,
                "BadRequest",
                f"the object provided is unrecognized (must be of type {expected[0]})",
            )
        return convert_back(route, obj)

    # Watches

    def _watch(self, fault: CutWatch | WatchLine | None) -> None:
        route, query = parse_route(self.path, self.cluster.versions), parse_query(self.path)
        matches = matcher(route, query)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isinstance(fault, CutWatch):
            self._cut(clean=fault.clean)
            return
        if isinstance(fault, WatchLine):
            self._send_line(fault.line, fault.piece)
        try:
            for event in self._events(route, query, matches):
                self._send_line(json.dumps(event).encode() + b"\n")
        except Refused as refused:
            self._send_line(
                json.dumps({"type": "ERROR", "object": refused.status}).encode() + b"\n"
            )
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, route: Route, query: Query, matches: Any) -> Iterable[Object]:
        cluster, store = self.cluster, self.cluster.store
        until = time.monotonic() + query.timeout_seconds
        bookmark_at = time.monotonic() + cluster.bookmark_seconds
        version = int(query.resource_version or 0)
        if version == 0:
            items, metadata = store.page(route.kind, matches)
            version = int(metadata["resourceVersion"])
            yield from ({"type": "ADDED", "object": _served(item, route)} for item in items)
        while not cluster.stopping.is_set() and time.monotonic() < until:
            with store.condition:
                changes = store.changes(version)
                if not changes:
                    now = time.monotonic()
                    store.condition.wait(max(0.0, min(until, bookmark_at) - now))
                    changes = store.changes(version)
                latest = store.version
            for change in changes:
                kind = event_type(change, matches) if change.plural == route.kind.plural else None
                if kind:
                    yield {"type": kind, "object": _served(change.last, route)}
            version = max(version, changes[-1].version if changes else version)
            if query.bookmarks and time.monotonic() >= bookmark_at:
                bookmark_at += cluster.bookmark_seconds
                yield {"type": "BOOKMARK", "object": _bookmark(route, latest)}

    def _cut(self, *, clean: bool) -> None:
        half = b'{"type":"ADDED","object":{"kind":"Resour'
        self._chunk(half)
        if clean:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._reset()

    def _send_line(self, line: bytes, piece: int = 0) -> None:
        for start in range(0, len(line), piece or len(line)):
            self._chunk(line[start : start + (piece or len(line))])

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def convert_back(route: Route, obj: Object) -> Object:
    """An object that arrived, in the form in which the store keeps it."""
    return convert(obj, route.version, direction="store") if route.kind.group == GROUP else obj


def _served(obj: Object, route: Route) -> Object:
    return convert(obj, route.version, direction="serve") if route.kind.group == GROUP else obj


def _bare(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _bookmark(route: Route, version: int) -> Object:
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {
        "kind": route.kind.name,
        "apiVersion": route.kind.api_version(route.version),
        "metadata": metadata,
    }


def _fixed_page(path: str, versions: tuple[str, ...]) -> Object | None:
    """Discovery and health: pages that depend on the served versions alone."""
    served = [
        {"groupVersion": f"{GROUP}/{version}", "version": version}
        for version in VERSIONS
        if version in versions
    ]
    group = {"name": GROUP, "versions": served, "preferredVersion": served[0] if served else {}}
    pages: dict[str, Object] = {
        "/readyz": {"ok": True},
        "/livez": {"ok": True},
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0+fake"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": _resource_list("", "v1"),
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group] if served else []},
    }
    if served:
        pages[f"/apis/{GROUP}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    pages |= {f"/apis/{GROUP}/{version}": _resource_list(GROUP, version) for version in versions}
    return pages.get(path.rstrip("/"))


def _resource_list(group: str, version: str) -> Object:
    def entry(kind: Kind) -> Object:
        return {
            "name": kind.plural,
            "kind": kind.name,
            "namespaced": kind.namespaced,
            "singularName": "",
            "verbs": list(Handler._VERBS),
        }

    kinds = [entry(kind) for kind in KINDS.values() if kind.group == group]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": kinds,
    }
