# SPDX-License-Identifier: Apache-2.0
"""Which Events are written on the Node, and what do they look like?

An Event that was written within the last ten minutes is not written again: a fault that lasts must not fill the cluster's
event store. The API server forgets Events after an hour; the log keeps them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from dra_driver.kube.base import NodeEvent
from dra_driver.model.ids import DriverName, NodeName

QUIET_SECONDS = 600.0
MESSAGE_BYTES = 1024
NAMESPACE = "default"
"""Where Events about objects without a namespace go."""


class Repeats:
    """Remembers which Events were written lately."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._written: dict[NodeEvent, float] = {}

    def claim(self, event: NodeEvent) -> bool:
        """Whether to write this Event now; if so, it counts as written."""
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
        """It could not be written after all."""
        with self._lock:
            self._written.pop(event, None)


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports, and on which Node."""

    driver: DriverName
    node: NodeName
    node_uid: str


def dump_event(
    event: NodeEvent, reporter: Reporter, *, now: datetime | None = None
) -> dict[str, Any]:
    """A core/v1 Event."""
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
