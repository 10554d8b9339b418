# SPDX-License-Identifier: Apache-2.0
"""The controller of `pending-events` with times that a test sets, and the objects that it looks at."""

from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import generate_latest
from structlog.testing import CapturingLogger

from dra_driver.cli.cluster import Target
from dra_driver.cli.pending_events import Clocks, Watch
from dra_driver.cli.pending_metrics import PendingMetrics
from dra_driver.kube.connection import Connection
from dra_driver.kube.pod_events import PodEvents
from dra_driver.testing.fake_api import FakeApi

Object = dict[str, Any]
LARGE = (
    'the devices fit on no node; no device can ever match device.capacity["gpu.example.com"].memory == quantity("90Gi"): '
    "memory is 80Gi (1)"
)


class Controller:
    """A controller at a fake API server. Pods are made now; `now` is what it takes for the time of day."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.now = datetime.now(UTC) + timedelta(minutes=6)
        self.seconds = 0.0
        self.metrics = PendingMetrics()
        self.log = CapturingLogger()
        self.start()

    def start(self, *, names_of_others: bool = False) -> None:
        connection = Connection(self.api.url, source="this test")
        self.watch = Watch(
            Target(connection),
            PodEvents(connection, instance="controller-0"),
            timedelta(minutes=5),
            log=structlog.wrap_logger(self.log, processors=[]),
            metrics=self.metrics,
            clocks=Clocks(lambda: self.now, lambda: self.seconds),
            names_of_others=names_of_others,
        )

    def look(self, minutes: float = 0) -> None:
        self.now += timedelta(minutes=minutes)
        self.watch.look()

    def events(self) -> list[Object]:
        return sorted(self.api.objects("events"), key=lambda one: str(one["lastTimestamp"]))

    def said(self) -> list[tuple[str, str]]:
        """The pod and the message of each Event."""
        return [(one["involvedObject"]["name"], one["message"]) for one in self.events()]

    def metric(self, series: str) -> float:
        (line,) = (
            line
            for line in generate_latest(self.metrics.registry).decode().splitlines()
            if line.startswith(f"{series} ")
        )
        return float(line.rpartition(" ")[2])


def request(memory: str) -> Object:
    expression = f'device.capacity["gpu.example.com"].memory == quantity("{memory}")'
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def node(name: str) -> Object:
    return {"metadata": {"name": name}, "status": {"allocatable": {"pods": "9"}}}


def devices(*memory: str) -> Object:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    each = [
        {"name": f"gpu-{number}", "capacity": {"memory": {"value": size}}}
        for number, size in enumerate(memory)
    ]
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": each}
    return {"metadata": {"name": "s"}, "spec": spec}


def pod(name: str, template: str = "large", **spec: Any) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": claims, **spec},
    }
