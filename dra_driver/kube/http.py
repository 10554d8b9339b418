# SPDX-License-Identifier: Apache-2.0
"""The client: `KubeApi` over HTTP, one object for one driver on one node.

It keeps three facts between calls, and reads everything else each time:

- the served API version, until the server answers that a path of it is not served (the cluster was upgraded);
- the UID of the Node, for owner references, until the server refuses a slice or somebody deletes one: the garbage collector
  deletes slices whose Node was deleted and created again;
- the version of the kubelet and the labels of the Node, for a minute.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Event
from typing import Any, TypeVar
from urllib.parse import quote

import urllib3

from dra_driver.errors import DriverError
from dra_driver.kube.answers import claim_for_driver, load_whole, loaded, read_claim
from dra_driver.kube.base import (
    ClaimEvent,
    ClaimFound,
    Conflict,
    Expired,
    Invalid,
    Malformed,
    NodeEvent,
    NotFound,
    NotServed,
    SliceEvent,
    SliceList,
)
from dra_driver.kube.claims import ClaimDoor
from dra_driver.kube.connection import Connection
from dra_driver.kube.decode import Found, identity
from dra_driver.kube.device_statuses import apply_of, missing_right
from dra_driver.kube.discovery import Wire
from dra_driver.kube.events import NAMESPACE, Repeats, Reporter, dump_event
from dra_driver.kube.failures import ApiCall, malformed
from dra_driver.kube.lists import Listing
from dra_driver.kube.node_facts import NodeFacts, part
from dra_driver.kube.own_node import HttpOwnNode
from dra_driver.kube.served import ServedVersion
from dra_driver.kube.slices import (
    Author,
    load_slice,
    read_holder,
    read_slice,
    rewrite_metadata,
    write_slice,
)
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.kube.unreadable import UnreadableReporter
from dra_driver.kube.watch import SILENT_WATCH_SECONDS, read_event, read_lines
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus, DeviceClass
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import Observer, ignore
from dra_driver.model.ids import DriverName, NodeName, PoolName
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    SliceChange,
    SliceHolder,
    StoredSlice,
    UpdateSlice,
)

WATCH_SECONDS = (300, 600)
LIST_RETRIES = 2

_random_between = random.SystemRandom().randint
_Answer = TypeVar("_Answer")


class HttpKubeApi:
    """`KubeApi` over HTTP; safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        driver: DriverName,
        node: NodeName,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        observe: Observer = ignore,
    ) -> None:
        """`observe` gets one event for each attempt at a request, and one for each object that cannot be read."""
        self._transport = Transport(connection, sleep=sleep, clock=clock, observe=observe)
        self._server = connection.shown_server
        self._driver = driver
        self._node = node
        self._repeats = Repeats(clock=clock)
        self._unreadable = UnreadableReporter(observe)
        self._served = ServedVersion(self._transport, self._server)
        self._nobody = Author(driver, node, "")
        self._node_facts = NodeFacts(self._transport, node, clock)

    def __repr__(self) -> str:
        return (
            f"<HttpKubeApi {self._server} {self._served} driver={self._driver} node={self._node}>"
        )

    def close(self) -> None:
        """Close idle connections. A request that fails from now on is not repeated."""
        self._transport.close()

    def get_claim(self, ref: ClaimRef) -> Claim:
        def get(wire: Wire) -> Claim:
            path = f"{wire.path}/namespaces/{quote(ref.namespace, safe='')}/resourceclaims/{quote(ref.name, safe='')}"
            call = ApiCall("get", "resourceclaims", f"{ref.namespace}/{ref.name}")
            exchange = self._transport.named(Exchange(call, "GET", path))
            return read_claim(exchange.call, self._transport.fetch(exchange), wire, self._driver)

        return self._served.call(get)

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        return self._served.call(
            lambda wire: ClaimDoor(self._transport, self._server, wire).find(ref)
        )

    def watch_claim(
        self, ref: ClaimRef, resource_version: str, stop: Event, *, seconds: int | None = None
    ) -> Iterator[ClaimEvent]:
        door = ClaimDoor(self._transport, self._server, self._served.get())
        seconds = seconds or _random_between(*WATCH_SECONDS)
        try:
            yield from door.watch(ref, resource_version, stop, seconds=seconds)
        except NotServed:
            self._served.forget()
            raise

    def report_devices(
        self, ref: ClaimRef, devices: Sequence[AllocatedDeviceStatus], *, part: str = ""
    ) -> None:
        def apply(wire: Wire) -> None:
            self._transport.request(apply_of(wire, self._driver, ref, devices, part))

        with missing_right(self._driver):
            self._served.call(apply)

    def list_slices(self) -> SliceList:
        return self._again_if_expired(self._list_slices)

    def watch_slices(self, resource_version: str, stop: Event) -> Iterator[SliceEvent]:
        wire = self._served.get()
        call = ApiCall(
            "watch",
            "resourceslices",
            f"of node {self._node} from version {resource_version}",
            self._server,
        )
        seconds = _random_between(*WATCH_SECONDS)
        query = self._selector() | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        exchange = Exchange(call, "GET", f"{wire.path}/resourceslices", query)
        try:
            response = self._transport.open_watch(
                exchange, read_timeout_seconds=seconds + SILENT_WATCH_SECONDS
            )
            for line in read_lines(response, stop):
                event = self._slice_event(wire, call, line)
                if event is not None:
                    yield event
        except NotServed:
            self._served.forget()
            raise
        except urllib3.exceptions.HTTPError as error:
            raise self._transport.broken(call, error) from error

    def apply_slice_change(self, change: SliceChange) -> StoredSlice | None:
        try:
            return self._served.call(lambda wire: self._apply(wire, change))
        except Invalid:
            self._forget_node()
            raise

    def try_slice(self, name: str, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        return self._served.call(lambda wire: self._create(wire, name, spec, dry_run=True)).spec

    def slice_holder(self, name: str) -> SliceHolder:
        def get(wire: Wire) -> SliceHolder:
            path = f"{wire.path}/resourceslices/{quote(name, safe='')}"
            call = ApiCall("get", "resourceslices", name)
            return read_holder(self._transport.request(Exchange(call, "GET", path)))

        return self._served.call(get)

    def allocated_claims(self, pool: PoolName) -> tuple[Claim, ...]:
        return self._again_if_expired(lambda wire: tuple(self._allocated(wire, pool)))

    def device_classes(self) -> tuple[DeviceClass, ...]:
        return self._again_if_expired(lambda wire: tuple(self._classes(wire)))

    def serves_dra(self) -> None:
        self._served.get()

    def kubelet_version(self) -> str:
        return self._node_facts.kubelet_version()

    def node_amounts(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Capacity and allocatable of this node's Node object, as quantities by resource."""
        return self._node_facts.amounts()

    def node_labels(self) -> Mapping[str, str]:
        return self._node_facts.labels()

    def own_node(self) -> HttpOwnNode:
        """The door to this driver's own Node."""
        return HttpOwnNode(self._transport, self._driver, self._node)

    def server_version(self) -> str:
        exchange = Exchange(ApiCall("get", "/version"), "GET", "/version")
        return str(self._transport.request(exchange).get("gitVersion") or "")

    def emit_event(self, event: NodeEvent) -> None:
        if not self._repeats.claim(event):
            return
        try:
            body = dump_event(event, Reporter(self._driver, self._node, self._node_facts.uid()))
            call = ApiCall("create", "events", f"{event.reason} on node {self._node}")
            self._transport.request(
                Exchange(call, "POST", f"/api/v1/namespaces/{NAMESPACE}/events", body=body)
            )
        except BaseException:
            self._repeats.forget(event)
            raise

    # Slices

    def _apply(self, wire: Wire, change: SliceChange) -> StoredSlice | None:
        match change:
            case CreateSlice(name, spec):
                return self._create(wire, name, spec)
            case UpdateSlice(present, spec):
                return self._update(wire, present, spec)
            case DeleteSlice(present):
                return self._delete(wire, present)

    def _create(
        self, wire: Wire, name: str, spec: ResourceSliceSpec, *, dry_run: bool = False
    ) -> StoredSlice:
        body = write_slice(wire, {"name": name}, spec, self._author())
        call = ApiCall("create", "resourceslices", name, self._server)
        query = {"dryRun": "All"} if dry_run else {}
        exchange = Exchange(call, "POST", f"{wire.path}/resourceslices", query, body=body)
        return self._read_slice(call, wire, self._transport.request(exchange))

    def _update(self, wire: Wire, present: StoredSlice, spec: ResourceSliceSpec) -> StoredSlice:
        path = f"{wire.path}/resourceslices/{quote(present.name, safe='')}"
        body = write_slice(wire, rewrite_metadata(present), spec, self._author())
        call = ApiCall("update", "resourceslices", present.name, self._server)
        exchange = Exchange(call, "PUT", path, body=body)
        try:
            return self._read_slice(call, wire, self._transport.request(exchange))
        except NotFound as error:
            # Somebody deleted it, or the API server was restored from an older backup. The caller must read again, as after
            # a change.
            raise Conflict(str(error)) from error

    def _delete(self, wire: Wire, present: StoredSlice) -> StoredSlice | None:
        if "metadata.finalizers" in present.unlike:
            present = self._without_finalizers(wire, present)
        preconditions = {"uid": present.uid, "resourceVersion": present.resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        path = f"{wire.path}/resourceslices/{quote(present.name, safe='')}"
        try:
            self._transport.request(
                Exchange(
                    ApiCall("delete", "resourceslices", present.name), "DELETE", path, body=body
                )
            )
        except NotFound:
            return None  # it does not exist any more, which is the goal
        return None

    def _author(self) -> Author:
        return Author(self._driver, self._node, self._node_facts.uid())

    def _author_if_known(self) -> Author:
        """The author for a comparison. Without a Node its UID is unknown, but slices can still be read and deleted."""
        try:
            return self._author()
        except DriverError:
            return self._nobody

    def _selector(self) -> dict[str, str]:
        return {"fieldSelector": f"spec.driver={self._driver},spec.nodeName={self._node}"}

    def _without_finalizers(self, wire: Wire, present: StoredSlice) -> StoredSlice:
        """Remove the finalizers before a deletion.

        With a finalizer the server answers the deletion with success but keeps the object, and the scheduler still uses it.
        """
        try:
            return self._update(wire, present, present.spec)
        except Invalid:
            return present  # the admission policy allows to delete this name, but not to change it

    def _read_slice(self, call: ApiCall, wire: Wire, obj: Mapping[str, Any]) -> StoredSlice:
        author = self._author_if_known()
        return loaded(call, lambda content: read_slice(wire, content, author), obj)

    def _list_slices(self, wire: Wire) -> SliceList:
        call = ApiCall("list", "resourceslices", f"of node {self._node}", self._server)
        path = f"{wire.path}/resourceslices"
        listing = Listing(self._transport, call, path, self._unreadable, self._selector())
        found = list(listing.objects())
        author = self._author_if_known() if found else self._nobody

        def load(item: Found) -> StoredSlice:
            return load_whole(call, item, lambda content: read_slice(wire, content, author))

        slices = [self._readable(call, item, load) for item in found]
        return SliceList(listing.resource_version, tuple(each for each in slices if each))

    def _slice_event(self, wire: Wire, call: ApiCall, line: bytes) -> SliceEvent | None:
        """The event; None for an event type that is newer than this driver.

        An object that cannot be read becomes a BOOKMARK with its version, so that the next watch begins after it.
        """
        try:
            kind, obj = read_event(call, line)
            version = str(_metadata(obj).get("resourceVersion") or "")
            match kind:
                case "ADDED" | "MODIFIED":
                    return SliceEvent(kind, version, self._read_slice(call, wire, obj))
                case "DELETED":
                    self._forget_node()
                    return SliceEvent(kind, version, loaded(call, partial(load_slice, wire), obj))
                case "BOOKMARK":
                    return SliceEvent(kind, version, None)
                case _:
                    return None
        except Malformed as error:
            who = identity(line, b"object")
            self._unreadable(call.resource, who, str(error))
            seen = who.resource_version
            return SliceEvent("BOOKMARK", seen, None) if seen else None

    # Claims

    def _allocated(self, wire: Wire, pool: PoolName) -> Iterator[Claim]:
        call = ApiCall("list", "resourceclaims", "of all namespaces", self._server)
        path = f"{wire.path}/resourceclaims"
        for found in Listing(self._transport, call, path, self._unreadable).objects():
            claim = self._readable(
                call, found, lambda it: claim_for_driver(call, it, wire, self._driver)
            )
            if claim is not None and any(
                (result.driver, result.pool) == (self._driver, pool)
                for result in claim.results or ()
            ):
                yield claim

    # Classes

    def _classes(self, wire: Wire) -> Iterator[DeviceClass]:
        call = ApiCall("list", "deviceclasses", "of the cluster", self._server)
        path = f"{wire.path}/deviceclasses"

        def load(found: Found) -> DeviceClass:
            # A class without a part of its configuration would give out devices that are set up in another way.
            for defect in found.defects:
                raise malformed(call, str(defect))
            return loaded(call, partial(wire.load, DeviceClass), found.content)

        for found in Listing(self._transport, call, path, self._unreadable).objects():
            if (one := self._readable(call, found, load)) is not None:
                yield one

    # What is kept between calls

    def _again_if_expired(self, read: Callable[[Wire], _Answer]) -> _Answer:
        """Read a list. If its version expires between two pages, start again, at most LIST_RETRIES times."""
        for _ in range(LIST_RETRIES):
            try:
                return self._served.call(read)
            except Expired:
                continue
        return self._served.call(read)

    def _readable(
        self, call: ApiCall, found: Found, load: Callable[[Found], _Answer]
    ) -> _Answer | None:
        """Convert an object; None if it cannot be read. Its first defect is reported to the observer."""
        for defect in found.defects[:1]:
            self._unreadable(call.resource, found.identity, str(defect))
        try:
            return load(found)
        except Malformed as error:
            self._unreadable(call.resource, found.identity, str(error))
            return None

    def _forget_node(self) -> None:
        self._node_facts.forget_uid()


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return part(obj, "metadata")
