# SPDX-License-Identifier: Apache-2.0
"""How do samples become metrics? A collector that reads what the sampler keeps, so that a scrape waits for no hardware."""

from collections.abc import Callable, Collection, Iterator

from prometheus_client import Metric
from prometheus_client.registry import Collector

from dra_driver.model.usage import NodeUsage
from dra_driver.planning.metrics.families import Place
from dra_driver.planning.metrics.node import node_families


class SampledMetrics(Collector):
    """`current` returns the last samples at once; `clock` is the monotonic clock that they were taken with."""

    def __init__(
        self,
        current: Callable[[], NodeUsage],
        *,
        clock: Callable[[], float],
        place: Place,
        names: Collection[str],
    ) -> None:
        self._current = current
        self._clock = clock
        self._place = place
        self._names = tuple(names)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric; without a sample it has no series."""
        # The sample first: a clock that is read before it could make an age of less than nothing.
        usage = self._current()
        for family in node_families(usage, self._clock(), self._place, self._names):
            metric = Metric(family.name, family.help, family.kind)
            for labels, value in family.series:
                metric.add_sample(
                    family.exposed, {key: _writable(text) for key, text in labels.items()}, value
                )
            yield metric


def _writable(text: str) -> str:
    """A text that UTF-8 can have: half a surrogate pair in the name of one product would cost the whole scrape."""
    return text if text.isascii() else text.encode(errors="replace").decode()
