# SPDX-License-Identifier: Apache-2.0
"""Which labels does each series of a scrape have?"""

from collections.abc import Mapping

from prometheus_client.metrics import MetricWrapperBase

from dra_driver.daemon.metrics import Metrics
from dra_driver.model.state import Held, Phase
from dra_driver.model.usage import ClaimDevice, ClaimTotals, DeviceUsage, NodeUsage, UsageSample
from dra_driver.planning.metrics.aliases import SCHEMES
from dra_driver.planning.metrics.families import Place
from dra_driver.planning.metrics.node import node_families
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_POOL, a_device
from tests.support.usage_rows import a_prepared_device, a_row

EVERYTHING = DeviceUsage(
    utilization_ratio=0.5,
    memory_utilization_ratio=0.25,
    memory_used_bytes=1 << 30,
    memory_total_bytes=4 << 30,
    memory_reserved_bytes=512 << 20,
    temperature_celsius=61.0,
    power_watts=350.5,
    power_limit_watts=700.0,
    clocks_hertz={"sm": 1980e6, "memory": 2619e6},
    ecc_errors={"corrected": 3, "uncorrected": 1},
    throttled={"sw_power_cap": True, "hw_thermal_slowdown": False},
)


def labels_by_name() -> Mapping[str, frozenset[str]]:
    """Return the labels of every series that the driver can have, by the names of the series."""
    return {**_of_events(), **_of_samples()}


def _of_events() -> Mapping[str, frozenset[str]]:
    # A series with labels is there only after its event: only the registry itself knows all of them.
    registry = Metrics().registry
    shown = {one.name: frozenset(one.labels) for each in registry.collect() for one in each.samples}
    labelled = {
        name: frozenset(collector._labelnames)
        for collector, names in registry._collector_to_names.items()
        if isinstance(collector, MetricWrapperBase)
        for name in names
    }
    return {**labelled, **shown}


def _of_samples() -> Mapping[str, frozenset[str]]:
    device = a_device("gpu-0")
    held = Held("a process still runs", "2027-01-15T08:00:00Z")
    rows = (a_row(), a_row("old", a_prepared_device("gpu-1"), phase=Phase.STARTED, held=held))
    totals = {ClaimDevice(rows[0].ref.uid, device.name): ClaimTotals("default", "train", 0.0, 0.0)}
    usage = NodeUsage(
        (device,), {device.name: UsageSample(EVERYTHING, 0.0)}, rows, totals=totals, state_bytes=1
    )
    families = node_families(usage, 0.0, Place(A_DRIVER, A_POOL, A_NODE), tuple(SCHEMES))
    return {
        family.exposed: frozenset(label for labels, _ in family.series for label in labels)
        for family in families
        if family.series
    }
