# SPDX-License-Identifier: Apache-2.0
"""When is an Event written on the Node, and what does it look like?

The same Event is written at most once in ten minutes, so that a lasting fault does not fill the cluster with Events. The API
server deletes Events after an hour; the driver's log has them all.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from msgspec import Struct

from dra_driver.kube.base import NodeEvent
from dra_driver.model.ids import DriverName, NodeName

QUIET_SECONDS = 600.0
MESSAGE_BYTES = 1024
NAMESPACE = "default"
"""The namespace for Events about objects that have none, such as Nodes. Kubernetes itself uses it so."""


class Repeats:
    """Remembers which Events were written in the last ten minutes."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._written: dict[NodeEvent, float] = {}

    def claim(self, event: NodeEvent) -> bool:
        """Whether to write this Event now. If True, it counts as written: a second thread gets False."""
        with self._lock:
            now = self._clock()
            self._written = {
                known: at for known, at in self._written.items() if now - at < QUIET_SECONDS
            }
            if event in self._written:
                return False
            self._written[event] = now
            return True

    def forget(self, event: NodeEvent) -> None:
        """Call it if the Event could not be written, so that the next attempt is made at once."""
        with self._lock:
            self._written.pop(event, None)


class Reporter(Struct, frozen=True):
    """The driver that writes an Event, and the Node that it is about."""

    driver: DriverName
    node: NodeName
    node_uid: str


def dump_event(
    event: NodeEvent, reporter: Reporter, *, now: datetime | None = None
) -> dict[str, Any]:
    """The Event as a core/v1 object for a request."""
    stamp = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{reporter.node}.", "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": reporter.node,
            "uid": reporter.node_uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message.encode()[:MESSAGE_BYTES].decode(errors="ignore"),
        "source": {"component": reporter.driver, "host": reporter.node},
        "reportingComponent": reporter.driver,
        "reportingInstance": reporter.node,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
