# SPDX-License-Identifier: Apache-2.0
"""When did a container start, and when did it end? The runtime's own events say it, whatever others believe."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from hack.testbed.onenode.cluster import CTR, Cluster
from hack.testbed.onenode.namespaces import TestBedError, wait_until

LOG = "containerd-events"


class RuntimeTimes:
    """Listens to containerd from now on, until `close`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._file = cluster.root / "log" / f"{LOG}.log"
        self._begin = self._file.stat().st_size if self._file.exists() else 0
        self._program = cluster.run_inside([*CTR, "events"], log=LOG)

    def close(self) -> None:
        """Listen no more."""
        self._program.stop()

    def started(self, container: str) -> datetime:
        """When its first process was started."""
        return wait_until(partial(self._when, "/tasks/start", container), f"start of {container}")

    def ended(self, container: str) -> datetime:
        """When its first process was gone."""
        return wait_until(partial(self._when, "/tasks/exit", container), f"end of {container}")

    def runs(self, container: str) -> bool:
        """Whether its first process has not ended yet."""
        return self._when("/tasks/exit", container) is None

    def kill(self, container: str) -> None:
        """End its processes by hand."""
        self._cluster.output_of([*CTR, "task", "kill", "--all", "--signal", "SIGKILL", container])

    def kill_all(self) -> None:
        """End whatever was started since, and runs on although its pod is forgotten."""
        containers = {
            event["container_id"] for _, topic, event in self._events() if topic == "/tasks/start"
        }
        for container in containers:
            if self.runs(container):
                with suppress(TestBedError):  # it has ended meanwhile
                    self.kill(container)

    def _when(self, topic: str, container: str) -> datetime | None:
        for time, found, event in self._events():
            # A program that was executed in the container ends with another `id`.
            if (found, event["container_id"]) == (topic, container) and event.get(
                "id", container
            ) == container:
                return time
        return None

    def _events(self) -> Iterator[tuple[datetime, str, dict[str, str]]]:
        with self._file.open() as lines:
            lines.seek(self._begin)
            for line in lines:
                day, time, _, _, _, topic, text = line.split(" ", 6)
                if topic.startswith("/tasks/") and line.endswith("\n"):
                    yield _time(day, time), topic, json.loads(text)


def _time(day: str, time: str) -> datetime:
    whole, _, fraction = time.partition(".")
    return datetime.fromisoformat(f"{day}T{whole}.{fraction[:6].ljust(6, '0')}").replace(tzinfo=UTC)
