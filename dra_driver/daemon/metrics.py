# SPDX-License-Identifier: Apache-2.0
"""Which Prometheus metrics does the driver have? They count the events that the log shows. docs/reference/metrics.md is made from here."""

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import assert_never

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from dra_driver import __version__
from dra_driver.model.events import (
    ApiAnswered,
    CgroupsNotFound,
    ClaimPrepared,
    ClaimUnprepared,
    DeviceErrors,
    DeviceEvent,
    DeviceHealthChanged,
    DeviceNotClean,
    DevicesFreed,
    DevicesHeld,
    DeviceStatusForbidden,
    DeviceVanished,
    DriverEvent,
    FieldsDropped,
    HeldCounted,
    Leading,
    NameEvaded,
    NodeConditionWritten,
    NodeLabelsWritten,
    NodeWriteForbidden,
    ObjectUnreadable,
    OwnershipEvent,
    OwnNodeEvent,
    PathChosen,
    PluginEvent,
    ProcessEvent,
    PublicationProblem,
    Published,
    PublishFailed,
    Recovered,
    ResourceProblem,
    SecondOwnerRefused,
    SliceEvent,
    SliceLost,
    SliceWritten,
    StartupTaintRemoved,
    StillHeld,
    ThreadFailed,
    UnitsAllocated,
    UnitsIdentified,
    WorkEnded,
)


class _LinesDropped(Collector):
    """A counter whose value the log's queue keeps, which is older than the metrics."""

    def __init__(self, current: Callable[[], int]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        """Yield the counter."""
        yield CounterMetricFamily(
            "dra_driver_log_lines_dropped",
            "Log lines that were dropped because the log was not read or could not be written",
            self._current(),
        )


_RESULTS = ("success", "error")
"""The series of both begin at 0 with the process: `increase()` sees no error that is the first value of its series."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 35)


class Metrics:
    """All metrics of this process, in their own registry. An instance is an observer: it is called with each event.

    `lines_dropped` and `lines_waiting` return the numbers of the log's queue; without one they are 0.
    """

    def __init__(
        self,
        *,
        lines_dropped: Callable[[], int] = lambda: 0,
        lines_waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which no page names
        self.registry = CollectorRegistry()
        self.registry.register(_LinesDropped(lines_dropped))
        Gauge(
            "dra_driver_log_lines_waiting",
            "Log lines that are not written yet; a number that only grows means that nobody reads the log",
            registry=self.registry,
        ).set_function(lines_waiting)
        self._claims = {
            ClaimPrepared: self._claim_metrics("prepare", "NodePrepareResources"),
            ClaimUnprepared: self._claim_metrics("unprepare", "NodeUnprepareResources"),
        }
        self._count_allocations()
        self._count_ownership()
        self._count_health()
        self._count_node()
        self._count_process()
        self._writes = self._counter(
            "slice_writes", "ResourceSlice writes that the API server accepted", "action"
        )
        self._lost = self._counter(
            "slices_lost", "ResourceSlices of this driver that somebody else deleted"
        )
        self._failures = self._counter(
            "publish_failures", "Failed attempts to bring the ResourceSlices up to date"
        )
        self._problems = self._counter(
            "attributes_dropped",
            "Attributes, capacities or devices that the API would refuse and that were left out of slices",
        )
        self._dropped = self._counter(
            "fields_dropped", "ResourceSlice fields that the API server did not store as written"
        )
        self._evaded = self._counter(
            "slice_names_taken",
            "ResourceSlice names that an object of somebody else has; the driver uses another name",
        )
        self._vanished = self._counter(
            "devices_vanished", "Devices that an earlier scan found and a later scan did not"
        )
        self._unclean = self._counter(
            "devices_not_clean",
            "Times that a device without claim was found in use, so that it was tainted",
        )
        self._devices = Gauge(
            "dra_driver_published_devices",
            "Devices in the ResourceSlices of this node",
            registry=self.registry,
        )
        self._slices = Gauge(
            "dra_driver_published_slices", "ResourceSlices of this node", registry=self.registry
        )

    def _count_allocations(self) -> None:
        self._allocations = self._counter(
            "allocate_calls", "Allocate calls of the device plugin API, by result", "result"
        )
        for result in _RESULTS:
            self._allocations.labels(result)
        self._allocation_seconds = Histogram(
            "dra_driver_allocate_call_duration_seconds",
            "Duration of an Allocate call of the device plugin API",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._resource_problems = self._counter(
            "refused_resources",
            "Parts of the configuration of extended resources that the driver cannot use, each counted once",
        )

    def _count_ownership(self) -> None:
        self._late = self._counter(
            "late_work", "Work on devices that ended after its call, by result", "result"
        )
        self._holds = self._counter(
            "devices_held",
            "Claims that ended while a process may still use their devices, so that the devices were held",
        )
        self._freed = self._counter(
            "devices_freed",
            "Claims whose devices became free outside an unprepare call, for example after they were held",
        )
        self._held = Gauge(
            "dra_driver_held_claims",
            "Ended claims whose devices are held now, because a process may still use them",
            registry=self.registry,
        )
        self._refusals = self._counter(
            "second_owners_refused",
            "Claims that were refused because a device of theirs belongs to another claim",
        )

    def _count_node(self) -> None:
        self._labels = Gauge(
            "dra_driver_node_labels",
            "Labels that the driver wrote on its Node, or into the feature file",
            registry=self.registry,
        )
        self._ready = Gauge(
            "dra_driver_devices_ready",
            "What the condition DevicesReady of the Node says (1 or 0), as of its last change by this process",
            registry=self.registry,
        )
        self._taints = self._counter(
            "startup_taints_removed",
            "Times that the driver took the startup taint off its Node",
        )

    def _count_process(self) -> None:
        self._recoveries = self._counter(
            "recoveries", "Corrections of state and CDI files, at start and while running", "what"
        )
        self._threads = self._counter(
            "thread_failures", "Unexpected errors of long-lived threads", "thread"
        )
        self._unreadable = self._counter(
            "unreadable_objects",
            "Objects of the API server that the driver cannot read, each counted once",
            "resource",
        )
        self._requests = self._counter(
            "api_requests",
            "Attempts at requests to the API server, by verb, resource and HTTP status; code=unreachable if there was no answer",
            *("verb", "resource", "code"),
        )
        Gauge(
            "dra_driver_build_info",
            "Always 1; the labels say which version of the driver and of Python runs",
            ["version", "python_version"],
            registry=self.registry,
        ).labels(__version__, platform.python_version()).set(1)
        self._readiness = Gauge(
            "dra_driver_ready",
            "Whether the driver is ready (1) or not (0), as /readyz says, which names the reason",
            registry=self.registry,
        )
        self._leads = Gauge(
            "dra_driver_leader",
            "Whether this process publishes and sweeps for its node (1) or stands by (0)",
            registry=self.registry,
        )

    def _count_health(self) -> None:
        self._healthy = Gauge(
            "dra_driver_device_healthy",
            "Whether a device is healthy (1) or unhealthy (0) as of the last scan that succeeded; a device whose health nothing checks has no value",
            ["device"],
            registry=self.registry,
        )
        self._is_gone = Gauge(
            "dra_driver_device_vanished",
            "Whether the last scan that succeeded did not find a device that was scanned or published before, also if its name belongs to another device now (1), or found it (0); a new process forgets those that no claim has",
            ["device"],
            registry=self.registry,
        )
        self._errors = self._counter(
            "device_errors",
            "Errors that the hardware reported, by device and name of the error; an error of a whole GPU counts for each of its partitions",
            *("device", "error"),
        )

    def _health(self, device: str, status: str, lost: str) -> None:
        self._is_gone.labels(device).set(bool(lost) or status == "gone")
        if status in ("healthy", "unhealthy"):
            self._healthy.labels(device).set(status == "healthy")
        else:
            with suppress(KeyError):
                self._healthy.remove(device)

    def ask_readiness(self, problems: Callable[[], tuple[str, ...]]) -> None:
        """From now on each scrape calls `problems`, which must answer at once: the process is ready if there are none."""
        self._readiness.set_function(lambda: float(not problems()))

    def __call__(self, event: DriverEvent) -> None:
        if isinstance(event, OwnershipEvent):
            self._on_ownership(event)
        elif isinstance(event, PluginEvent):
            self._on_plugin(event)
        elif isinstance(event, OwnNodeEvent):
            self._on_own_node(event)
        elif isinstance(event, SliceEvent):
            self._on_slices(event)
        elif isinstance(event, DeviceEvent):
            self._on_devices(event)
        else:
            self._on_process(event)

    def _on_ownership(self, event: OwnershipEvent) -> None:
        match event:
            case ClaimPrepared() | ClaimUnprepared():
                total, seconds = self._claims[type(event)]
                total.labels("error" if event.error else "success").inc()
                seconds.observe(event.seconds)
            case WorkEnded(error=error):
                self._late.labels("error" if error else "success").inc()
            case DevicesHeld():
                self._holds.inc()
            case DevicesFreed():
                self._freed.inc()
            case HeldCounted(claims):
                self._held.set(claims)
            case SecondOwnerRefused():
                self._refusals.inc()
            case StillHeld() | CgroupsNotFound() | DeviceStatusForbidden():
                pass
            case _:
                assert_never(event)

    def _on_plugin(self, event: PluginEvent) -> None:
        match event:
            case UnitsAllocated(error=error, seconds=seconds):
                self._allocations.labels("error" if error else "success").inc()
                self._allocation_seconds.observe(seconds)
            case ResourceProblem():
                self._resource_problems.inc()
            case UnitsIdentified() | PathChosen():
                pass
            case _:
                assert_never(event)

    def _on_own_node(self, event: OwnNodeEvent) -> None:
        match event:
            case NodeLabelsWritten(labels=labels):
                self._labels.set(labels)
            case NodeConditionWritten(ready=ready):
                self._ready.set(ready)
            case StartupTaintRemoved():
                self._taints.inc()
            case NodeWriteForbidden():
                pass
            case _:
                assert_never(event)

    def _on_slices(self, event: SliceEvent) -> None:
        match event:
            case SliceWritten(action=action):
                self._writes.labels(action).inc()
            case SliceLost():
                self._lost.inc()
            case PublishFailed():
                self._failures.inc()
            case Published(devices, slices):
                self._devices.set(devices)
                self._slices.set(slices)
            case PublicationProblem():
                self._problems.inc()
            case FieldsDropped(fields=fields):
                self._dropped.inc(len(fields))
            case NameEvaded():
                self._evaded.inc()
            case _:
                assert_never(event)

    def _on_devices(self, event: DeviceEvent) -> None:
        match event:
            case DeviceVanished():
                self._vanished.inc()
            case DeviceNotClean():
                self._unclean.inc()
            case DeviceHealthChanged(device, status, lost=lost):
                self._health(device, status, lost)
            case DeviceErrors(device, error, count):
                self._errors.labels(device, error).inc(count)
            case _:
                assert_never(event)

    def _on_process(self, event: ProcessEvent) -> None:
        match event:
            case Recovered(rewritten, released, removed_files):
                for what, count in (
                    ("rewritten", rewritten),
                    ("released", released),
                    ("removed_file", removed_files),
                ):
                    self._recoveries.labels(what).inc(count)
            case Leading(leads):
                self._leads.set(leads)
            case ObjectUnreadable(resource=resource):
                self._unreadable.labels(resource).inc()
            case ApiAnswered(verb, resource, code):
                self._requests.labels(verb, resource, code).inc()
            case ThreadFailed(thread=thread):
                self._threads.labels(thread).inc()
            case _:
                assert_never(event)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"dra_driver_{name}", text, labels, registry=self.registry)

    def _claim_metrics(self, verb: str, calls: str) -> tuple[Counter, Histogram]:
        total = self._counter(f"{verb}_claims", f"Claims of {calls}, by result", "result")
        for result in _RESULTS:
            total.labels(result)
        seconds = Histogram(
            f"dra_driver_{verb}_claim_duration_seconds",
            f"Duration of the call that a claim came with ({calls})",
            buckets=_SECONDS,
            registry=self.registry,
        )
        return total, seconds
