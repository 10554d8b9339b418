# SPDX-License-Identifier: Apache-2.0
"""The Prometheus metrics of `dra-driver pending-events`."""

from collections.abc import Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from dra_driver.explain.outcome import Outcome


class PendingMetrics:
    """All metrics of the process, in their own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which no page names
        self.registry = CollectorRegistry()
        self._waiting = Gauge(
            "dra_driver_pending_pods",
            "Pods that ask for devices and wait for a node for too long, by what `explain` says of them",
            ["outcome"],
            registry=self.registry,
        )
        self._looks = self._counter("looks", "Looks at the pods without a node, by result")
        self._events = self._counter("events", "Warning Events on waiting pods, by result")
        self._not_read = Gauge(
            "dra_driver_pending_kinds_not_read",
            "Kinds of objects that the last look at the whole cluster could not read; without them it cannot tell of some pods",
            registry=self.registry,
        )
        self.waiting({})

    def waiting(self, outcomes: Mapping[str, int]) -> None:
        """The pods by outcome, as the last look found them."""
        for outcome in get_args(Outcome):
            self._waiting.labels(outcome).set(outcomes.get(outcome, 0))

    def looked(self) -> None:
        """A look has ended."""
        self._looks.labels("done").inc()

    def failed(self) -> None:
        """A look has failed."""
        self._looks.labels("failed").inc()

    def written(self) -> None:
        """An Event was written."""
        self._events.labels("written").inc()

    def not_written(self) -> None:
        """The API server refused an Event."""
        self._events.labels("refused").inc()

    def not_read(self, kinds: int) -> None:
        """So many kinds could not be read."""
        self._not_read.set(kinds)

    def _counter(self, name: str, help_text: str) -> Counter:
        full = f"dra_driver_pending_{name}_total"
        return Counter(full, help_text, ["result"], registry=self.registry)
