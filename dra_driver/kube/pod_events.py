# SPDX-License-Identifier: Apache-2.0
"""The Events of `dra-driver pending-events` at the API server, and the pods that have no node.

An Event's name is made from the pod's UID and what is said. So whoever says the same of the same pod, after a restart or at the same
time, finds that it was said: the API server refuses a second object of this name.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dra_driver import PROJECT
from dra_driver.kube.base import Expired, NameTaken
from dra_driver.kube.connection import Connection
from dra_driver.kube.decode import Identity
from dra_driver.kube.events import MESSAGE_BYTES
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.lists import Listing
from dra_driver.kube.transport import MERGE, Exchange, Transport
from dra_driver.kube.wire.objects import Unreadable, load
from dra_driver.model.api.core import Pod
from dra_driver.model.api.meta import ApiValue, ObjectMeta, learn
from dra_driver.model.names import WAITING_FOR_DEVICES

LIST_RETRIES = 2
MOST_OF_A_POD = 32
"""Events that are kept of one pod. It gets at most one in five minutes, and the API server keeps each for an hour by default."""
_OF_THIS_KIND = f"reason={WAITING_FOR_DEVICES}"
LONGEST_POD_NAME = 253 - 1 - 16
"""So that the Event's name, which has 16 digits and a dot more, is a valid one."""
_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_T = TypeVar("_T", bound=ApiValue)
_Read = TypeVar("_Read")


class _Involved(ApiValue, frozen=True):
    kind: str = ""
    uid: str = ""


class _Event(ApiValue, frozen=True):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    involved_object: _Involved = msgspec.field(default_factory=_Involved)
    reporting_component: str = ""
    last_timestamp: str | None = None
    count: int = 1


learn(_Event)


class Written(Struct, frozen=True):
    """An Event that the API server has: its namespace and name, the pod's UID, when it was said last (UTC), and how often so far.

    What it says is not kept: anybody may write Events, with long messages. The name tells whether the same was said.
    """

    namespace: str
    name: str
    pod_uid: str
    at: datetime
    count: int = 1


def event_name(pod: ObjectMeta, message: str) -> str:
    """Return the name of the Event that says this of the pod."""
    digest = hashlib.sha256(f"{pod.uid}\n{message}".encode()).hexdigest()[:16]
    return f"{pod.name[:LONGEST_POD_NAME].rstrip('-.')}.{digest}"


class PodEvents:
    """The door to Events on pods, of one controller, whose own pod is `instance`. Methods raise DriverError."""

    def __init__(self, connection: Connection, *, instance: str) -> None:
        self._transport = Transport(connection)
        self._instance = instance

    def pods_without_node(self) -> tuple[Pod, ...]:
        """Return all pods that no node was chosen for. One that cannot be read is left out."""
        return self._read(lambda: tuple(self._once("pods", "spec.nodeName=", Pod)))

    def written(self, pods: Iterable[ObjectMeta]) -> tuple[Written, ...]:
        """Return the Events of this kind about these pods that the API server still has, of each pod the latest MOST_OF_A_POD.

        All others are forgotten as they are read. Only what is in the pod's own namespace counts: whoever may write Events in another one
        is not to silence it.
        """
        where = {pod.uid: pod.namespace for pod in pods}
        return self._read(lambda: _latest(self._once("events", _OF_THIS_KIND, _Event), where))

    def create(self, pod: ObjectMeta, message: str, now: datetime) -> None:
        """Write a Warning Event on the pod. If it exists, another controller has just written it: then nothing is done."""
        call = ApiCall("create", "events", f"on pod {pod.namespace}/{pod.name}")
        body = self._event(pod, message, now)
        try:
            self._transport.request(Exchange(call, "POST", _path(pod.namespace), body=body))
        except NameTaken:
            return

    def repeat(self, pod: ObjectMeta, event: Written, now: datetime) -> None:
        """Say again what the pod's Event says, for something else was said since."""
        call = ApiCall("patch", "events", f"{pod.namespace}/{event.name}")
        path = f"{_path(pod.namespace)}/{quote(event.name, safe='')}"
        body = {"lastTimestamp": _stamp(now), "count": event.count + 1}
        self._transport.request(Exchange(call, "PATCH", path, body=body, content_type=MERGE))

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def _read(self, whole: Callable[[], _Read]) -> _Read:
        """Read a whole list. If its version expires between two pages, start again."""
        for _ in range(LIST_RETRIES):
            try:
                return whole()
            except Expired:
                continue
        return whole()

    def _once(self, resource: str, fields: str, kind: type[_T]) -> Iterator[_T]:
        call, path = ApiCall("list", resource), f"/api/v1/{resource}"
        listing = Listing(self._transport, call, path, _unheard, {"fieldSelector": fields})
        for found in listing.objects():
            try:
                yield load(kind, found.content)
            except Unreadable:
                continue

    def _event(self, pod: ObjectMeta, message: str, now: datetime) -> Mapping[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event_name(pod, message), "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning",
            "reason": WAITING_FOR_DEVICES,
            "message": message,
            "source": {"component": PROJECT},
            "reportingComponent": PROJECT,
            "reportingInstance": self._instance,
            "firstTimestamp": _stamp(now),
            "lastTimestamp": _stamp(now),
            "count": 1,
        }


def moment(text: str | None) -> datetime | None:
    """Return the time that a timestamp of the API means, in UTC; None if it is none."""
    try:
        return datetime.fromisoformat(text or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def short(message: str) -> str:
    """Return the message as long as an Event may have it."""
    if len(message.encode()) <= MESSAGE_BYTES:
        return message
    return f"{message.encode()[: MESSAGE_BYTES - 4].decode(errors='ignore').rstrip()} …"


def _latest(events: Iterable[_Event], namespaces: Mapping[str, str]) -> tuple[Written, ...]:
    """Return the latest Events of each pod; `namespaces` has those of the pods, by their UIDs."""
    found: dict[str, list[Written]] = {}
    for one in _written(events):
        if namespaces.get(one.pod_uid) != one.namespace:
            continue
        own = found.setdefault(one.pod_uid, [])
        own.append(one)
        if len(own) > MOST_OF_A_POD:
            own.remove(min(own, key=lambda each: each.at))
    return tuple(one for own in found.values() for one in own)


def _written(events: Iterable[_Event]) -> Iterator[Written]:
    for one in events:
        at = moment(one.last_timestamp)
        about = one.involved_object
        if one.reporting_component == PROJECT and about.kind == "Pod" and at is not None:
            meta = one.metadata
            yield Written(meta.namespace, meta.name, about.uid, at, one.count)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/events"


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime(_STAMP)


def _unheard(_resource: str, _who: Identity, _why: str) -> None:
    """Of an object that cannot be read, nothing is said here: `explain` names those that decide."""
