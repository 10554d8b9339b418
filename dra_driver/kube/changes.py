# SPDX-License-Identifier: Apache-2.0
"""Has something changed in the cluster that decides about devices? Watches tell; what changed is of no interest here.

Each resource has a watch of its own, from the version that its list has now. Only metadata are sent. If a watch breaks or cannot begin,
this counts as a change, and so does its next beginning: something may have happened in between. Without the right to watch a resource in
the whole cluster, the objects of one namespace are watched, if there is one. If this right is missing too, it is told, and a change is
assumed every UNWATCHED_SECONDS.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Self
from urllib.parse import quote

import urllib3

from dra_driver.errors import DriverError
from dra_driver.kube.base import Forbidden, Invalid, Malformed, NotFound, NotServed
from dra_driver.kube.cluster import NAMESPACED, in_namespace
from dra_driver.kube.connection import Connection
from dra_driver.kube.discovery import DISCOVERY_PATH, WIRES
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import METADATA_ONLY, Exchange, Transport
from dra_driver.kube.watch import SILENT_WATCH_SECONDS, read_event, read_lines
from dra_driver.model.api.resource_claim import TAINT_RULE_VERSIONS
from dra_driver.model.api.workload import PLURALS, with_parts

WATCH_SECONDS = 300
UNWATCHED_SECONDS = 30.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
ONE_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RULES = "devicetaintrules"
_CORE = ("nodes", "pods", "namespaces")
_OF_DEVICES = ("deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates")
Resources = Sequence[tuple[str, str]]
"""The name and the path of each resource."""


def deciding(served: Sequence[str], kinds: Sequence[str] = (), namespace: str = "") -> Resources:
    """Return the resources that decide about devices, and the workloads of these kinds in the namespace.

    `served` are the versions of resource.k8s.io. Any of them may have the DeviceTaintRules.
    """
    paths = [(resource, f"/api/v1/{resource}") for resource in _CORE]
    version = next((wire.version for wire in WIRES if wire.version in served), "")
    if version:
        paths += ((name, f"{DISCOVERY_PATH}/{version}/{name}") for name in _OF_DEVICES)
    rules = (one for one in TAINT_RULE_VERSIONS if one in served)
    paths += ((_RULES, f"{DISCOVERY_PATH}/{version}/{_RULES}") for version in rules)
    for kind in with_parts(kinds):
        group, plural = PLURALS[kind]
        root = f"/apis/{group}/v1" if group else "/api/v1"
        paths.append((plural, f"{root}/namespaces/{quote(namespace, safe='')}/{plural}"))
    return paths


def next_pause(pause: float, lasted: float) -> float:
    """Return the seconds before the next watch: twice as many as before the last one, unless that one lasted for longer than they did.

    So neither a server that is away nor one that ends each watch at once is asked all the time.
    """
    return FIRST_PAUSE_SECONDS if lasted > pause else min(2 * pause, LONGEST_PAUSE_SECONDS)


class Changes:
    """Watches these resources, as long as its block lasts. `tell` gets a sentence about each that cannot be watched.

    `namespace` is the one whose objects are enough for somebody without rights for the whole cluster; "" if there is none.
    """

    def __init__(
        self,
        connection: Connection,
        resources: Resources,
        *,
        tell: Callable[[str], object],
        namespace: str = "",
        unwatched_seconds: float = UNWATCHED_SECONDS,
    ) -> None:
        self._transport = Transport(connection)
        self._resources = resources
        self._namespace = namespace
        self._tell = tell
        self._unwatched_seconds = unwatched_seconds
        self._changed = Event()
        self._stop = Event()
        self._unwatched: list[str] = []
        self._lock = Lock()

    def __enter__(self) -> Self:
        begun = [Event() for _ in self._resources]
        for (resource, path), event in zip(self._resources, begun, strict=True):
            Thread(
                target=self._watch,
                args=(resource, path, event),
                name=f"changes-of-{resource}",
                daemon=True,
            ).start()
        for event in begun:
            event.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._transport.close()

    def wait(self, *, rest: float) -> None:
        """Wait so many seconds, and then until something has changed since the last call."""
        self._stop.wait(rest)
        self._changed.wait(self._unwatched_seconds if self._unwatched else None)
        self._changed.clear()

    def assume_change(self) -> None:
        """Let the next wait end after its rest."""
        self._changed.set()

    def _watch(self, resource: str, path: str, begun: Event) -> None:
        """Watch one resource until the end. `begun` is set once a change from now on is noticed, or it is known that none is."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            since = time.monotonic()
            try:
                self._follow_from_now(resource, path, begun)
            except Invalid as error:
                self._is_unwatched(resource, error)
                break
            except (NotFound, NotServed):
                if not begun.is_set():
                    break  # not served: nothing of it can change
                # Another release of the server may serve another version: the next reading finds that out.
                self._changed.set()
            except (DriverError, urllib3.exceptions.HTTPError):
                begun.set()
                self._changed.set()
            pause = next_pause(pause, time.monotonic() - since)
            self._stop.wait(pause)
        begun.set()

    def _follow_from_now(self, resource: str, path: str, begun: Event) -> None:
        try:
            version = self._version(resource, path)
        except Forbidden:
            # Then the reading has got those of the namespace only, too. If only the watch is forbidden, it has got all.
            path = self._inner(resource, path)
            if not path:
                raise
            version = self._version(resource, path)
        if begun.is_set():
            # Not earlier: a change before this version would be noticed by nobody.
            self._changed.set()
        begun.set()
        self._follow(resource, path, version)

    def _inner(self, resource: str, path: str) -> str:
        """Return the path of the objects of the namespace; "" if there is none, or if the path is that."""
        if not self._namespace or resource not in NAMESPACED:
            return ""
        inner = in_namespace(path, self._namespace)
        return "" if inner == path else inner

    def _is_unwatched(self, resource: str, error: DriverError) -> None:
        with self._lock:
            self._unwatched.append(resource)
            self._tell(f"{error}; so it is looked at every {self._unwatched_seconds:g} s")
        self._changed.set()

    def _version(self, resource: str, path: str) -> str:
        """Return the present version of the list."""
        exchange = Exchange(
            ApiCall("list", resource), "GET", path, {"limit": "1"}, accept=METADATA_ONLY
        )
        metadata = self._transport.request(exchange).get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else ""
        return str(version or "")

    def _follow(self, resource: str, path: str, version: str) -> None:
        call = ApiCall("watch", resource)
        query = {
            "watch": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        exchange = Exchange(call, "GET", path, query, accept=ONE_METADATA)
        response = self._transport.open_watch(
            exchange, read_timeout_seconds=WATCH_SECONDS + SILENT_WATCH_SECONDS
        )
        for line in read_lines(response, self._stop):
            with suppress(Malformed):  # an object that cannot be read has changed too
                read_event(call, line)
            self._changed.set()
