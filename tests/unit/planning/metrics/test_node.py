# SPDX-License-Identifier: Apache-2.0
"""The series of a scrape, from what was sampled."""

import dataclasses

import pytest
from msgspec.structs import replace

from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.state import Held, Phase
from dra_driver.model.usage import ClaimDevice, ClaimTotals, DeviceUsage, NodeUsage, UsageSample
from dra_driver.planning.metrics.families import Family, Place
from dra_driver.planning.metrics.node import STALE_SECONDS, node_families
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_POOL, a_device
from tests.support.usage_rows import a_plugin_row, a_prepared_device, a_row, a_use

PLACE = Place(A_DRIVER, A_POOL, A_NODE)
NOBODY = {"namespace": "", "pod": "", "container": "", "claim": ""}


def of(name: str, product: str = "") -> dict[str, str]:
    return {"device": name, "uuid": f"uuid-{name}", "product": product, "driver": A_DRIVER}


def families(usage: NodeUsage, now: float = 100.0, *names: str) -> dict[str, Family]:
    return {one.exposed: one for one in node_families(usage, now, PLACE, names)}


def series(usage: NodeUsage, name: str, now: float = 100.0, *names: str) -> list[object]:
    return list(families(usage, now, *names)[name].series)


def sampled(*names: str, taken: float = 90.0, usage: DeviceUsage | None = None) -> NodeUsage:
    usage = usage or DeviceUsage(utilization_ratio=0.5)
    return NodeUsage(
        tuple(map(a_device, names)),
        {DeviceName(name): UsageSample(usage, taken) for name in names},
        (),
    )


def test_before_the_first_look_there_are_names_and_no_series() -> None:
    found = families(NodeUsage(), 0.0, "own", "dcgm", "duty-cycle", "opentelemetry")
    assert all(family.series == () for family in found.values())
    assert {"dra_driver_prepared_claims", "dra_driver_state_bytes"} <= found.keys()
    devices = NodeUsage((a_device("gpu-0"),))
    assert all(family.series == () for family in families(devices, 0.0).values())


def test_a_device_that_nobody_holds_has_values_with_empty_labels() -> None:
    usage = sampled("gpu-0")
    (device,) = usage.devices
    named = a_device("gpu-0", attributes={"productName": "NVIDIA H100"})
    usage = replace(usage, devices=(named,))
    name = "dra_driver_device_utilization_ratio"
    assert series(usage, name, 100.0, "own") == [({**of("gpu-0", "NVIDIA H100"), **NOBODY}, 0.5)]
    assert device.name == named.name


def test_a_held_device_has_its_claim_and_pod() -> None:
    usage = replace(sampled("gpu-0"), rows=(a_row(),), uses=(a_use(),))
    labels = {
        **of("gpu-0"),
        "namespace": "default",
        "pod": "train-0",
        "container": "main",
        "claim": "train",
    }
    name = "dra_driver_device_utilization_ratio"
    assert series(usage, name, 100.0, "own") == [(labels, 0.5)]
    assert series(usage, "dra_driver_device_allocated") == [(labels, 1.0)]


def test_the_value_of_a_shared_device_is_one_series_and_each_holder_has_its_own() -> None:
    rows = (
        a_row("a", a_prepared_device(share="s1")),
        a_row("b", a_prepared_device(share="s2")),
    )
    usage = replace(sampled("gpu-0"), rows=rows)
    common = {**of("gpu-0"), **NOBODY, "namespace": "default"}
    name = "dra_driver_device_utilization_ratio"
    assert series(usage, name, 100.0, "own") == [(common, 0.5)]
    assert series(usage, "dra_driver_device_allocated") == [
        ({**common, "claim": "a"}, 1.0),
        ({**common, "claim": "b"}, 1.0),
    ]


def test_a_device_whose_pod_is_not_known_is_allocated_all_the_same() -> None:
    usage = replace(sampled("gpu-0", "gpu-1"), rows=(a_plugin_row(),))
    assert series(usage, "dra_driver_device_allocated") == [
        ({**of("gpu-0"), **NOBODY}, 1.0),
        ({**of("gpu-1"), **NOBODY}, 0.0),
    ]


def test_a_device_that_no_scan_finds_is_allocated_as_long_as_somebody_has_it() -> None:
    unnamed = dataclasses.replace(
        a_prepared_device("gpu-2"), uuid=""
    )  # its row was made from a CDI file
    rows = (
        a_row("train", a_prepared_device("gpu-9"), a_prepared_device("gpu-1")),
        a_row("other", unnamed, a_prepared_device("gpu-8", admin=True)),
    )
    usage = replace(sampled("gpu-0"), rows=rows, uses=(a_use(device="gpu-1"),))
    has = {**NOBODY, "namespace": "default"}
    name = "dra_driver_device_allocated"
    assert series(usage, name) == [
        ({**of("gpu-0"), **NOBODY}, 0.0),
        ({**of("gpu-1"), **has, "claim": "train", "pod": "train-0", "container": "main"}, 1.0),
        ({**of("gpu-2"), "uuid": "", **has, "claim": "other"}, 1.0),
        ({**of("gpu-9"), **has, "claim": "train"}, 1.0),
    ]
    assert series(replace(usage, rows=()), name) == [({**of("gpu-0"), **NOBODY}, 0.0)]


def test_values_that_are_too_old_vanish_and_only_their_age_stays() -> None:
    usage = sampled("gpu-0", taken=10.0)
    name = "dra_driver_device_utilization_ratio"
    age = "dra_driver_device_sample_age_seconds"
    assert len(series(usage, name, 10.0 + STALE_SECONDS, "own")) == 1
    assert series(usage, name, 10.1 + STALE_SECONDS, "own") == []
    assert series(usage, age, 500.0) == [({"device": "gpu-0"}, 490.0)]
    assert series(usage, age, 9.0) == [({"device": "gpu-0"}, 0.0)]
    unmeasured = replace(usage, samples={})
    assert series(unmeasured, age) == series(unmeasured, name, 100.0, "own") == []


def test_the_age_of_a_device_that_was_never_measured_begins_when_it_was_found() -> None:
    usage = replace(sampled("gpu-0", "gpu-1"), found={DeviceName("gpu-1"): 40.0})
    age = "dra_driver_device_sample_age_seconds"
    unmeasured = replace(usage, samples={})
    assert series(unmeasured, age) == [({"device": "gpu-1"}, 60.0)]
    assert [age for _, age in series(usage, age)] == [10.0, 10.0]


def test_only_a_device_that_nobody_has_is_not_clean() -> None:
    dirty = replace(a_device("gpu-0"), not_clean="process 4711 uses it")
    usage = NodeUsage((dirty, a_device("gpu-1")), {}, ())
    name = "dra_driver_device_not_clean"
    assert series(usage, name) == [({"device": "gpu-0"}, 1.0), ({"device": "gpu-1"}, 0.0)]
    assert series(replace(usage, rows=(a_row(),)), name)[0] == ({"device": "gpu-0"}, 0.0)


def test_the_state_is_counted() -> None:
    held = a_row(
        "old",
        a_prepared_device("gpu-1"),
        a_prepared_device("gpu-2"),
        a_prepared_device("gpu-3", admin=True),
        phase=Phase.STARTED,
        held=Held("a process still runs", "2027-01-15T08:00:00Z"),
    )
    usage = NodeUsage((), {}, (a_row(), a_plugin_row(), held), state_bytes=4096)
    assert series(usage, "dra_driver_prepared_claims") == [({}, 2.0)]
    assert series(usage, "dra_driver_held_devices") == [({}, 2.0)]
    assert series(usage, "dra_driver_state_bytes") == [({}, 4096.0)]
    labels = {"namespace": "default", "claim": "old", "uid": "uid-old"}
    assert series(usage, "dra_driver_claim_held_since_timestamp_seconds") == [
        (labels, 1_800_000_000.0)
    ]


def test_a_time_in_another_form_has_no_series() -> None:
    usage = NodeUsage((), {}, (a_row(held=Held("x", "yesterday")),))
    assert series(usage, "dra_driver_claim_held_since_timestamp_seconds") == []


def test_counters_of_claims_go_on_between_looks() -> None:
    totals = {
        ClaimDevice(ClaimUid("1"), DeviceName("gpu-1")): ClaimTotals("n", "a", 40.0, 90.0, 7.0),
        ClaimDevice(ClaimUid("1"), DeviceName("gpu-0")): ClaimTotals("n", "a", 50.0, 90.0, None),
    }
    usage = NodeUsage(totals=totals)
    first = {"namespace": "n", "claim": "a", "device": "gpu-0"}
    second = first | {"device": "gpu-1"}
    assert series(usage, "dra_driver_claim_device_seconds_total") == [
        (first, 50.0),
        (second, 60.0),
    ]
    assert series(usage, "dra_driver_claim_memory_byte_seconds_total") == [(second, 7.0)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [((), 0), (("own",), 11), (("dcgm", "own"), 23), (("duty-cycle",), 5), (("opentelemetry",), 6)],
)
def test_the_chosen_names_are_added(names: tuple[str, ...], expected: int) -> None:
    always = len(families(NodeUsage()))
    assert len(families(NodeUsage(), 0.0, *names)) == always + expected
