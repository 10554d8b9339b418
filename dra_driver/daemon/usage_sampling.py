# SPDX-License-Identifier: Apache-2.0
"""Which parts sample usage, and where do their samples go? Nothing is sampled if nobody can scrape it."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from dra_driver.backends.base import usage_of
from dra_driver.daemon.dependencies import STATE_FILE, Dependencies
from dra_driver.daemon.leader_loops import Loop
from dra_driver.daemon.sampled_metrics import SampledMetrics
from dra_driver.kubelet.pod_resources import container_uses
from dra_driver.model.events import Observer
from dra_driver.model.ids import NodeName
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.metrics.families import Place
from dra_driver.services.sample_usage import Sources, UsageSampler


def usage_loops(
    deps: Dependencies, registry: CollectorRegistry, observers: list[Observer]
) -> Mapping[str, Loop]:
    """Return the loops of the leader that sample, and register the metrics; no loops without an HTTP port."""
    settings = deps.settings
    if settings.http_address is None:
        return {}
    usages = {name: usage_of(backend) for name, backend in deps.backends.items()}
    sampler = UsageSampler(
        Sources(
            usages={
                name: usage
                for name, usage in usages.items()
                if usage is not None and settings.metrics_names
            },
            inventory=deps.inventory.current,
            rows=partial(_rows, deps),
            state_bytes=partial(_state_bytes, deps),
            containers=partial(container_uses, settings.kubelet.pod_resources_socket),
        ),
        clock=monotonic,
        log=deps.log,
    )
    place = Place(deps.place.driver, deps.place.pool, NodeName(settings.node.name))
    registry.register(
        SampledMetrics(sampler.current, clock=monotonic, place=place, names=settings.metrics_names)
    )
    observers.append(sampler)
    return sampler.loops()


def _rows(deps: Dependencies) -> tuple[PreparedClaim, ...]:
    with deps.store.reading() as state:
        return state.all_claims()


def _state_bytes(deps: Dependencies) -> int:
    """The size of the state file with its log. Raises OSError."""
    path = deps.settings.state_dir / STATE_FILE
    size = path.stat().st_size
    with suppress(FileNotFoundError):  # SQLite removes its log when nobody has the file open
        size += path.with_name(f"{STATE_FILE}-wal").stat().st_size
    return size
