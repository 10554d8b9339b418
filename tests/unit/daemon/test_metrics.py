# SPDX-License-Identifier: Apache-2.0
"""What each event adds to the metrics."""

import pytest
from prometheus_client import generate_latest

from dra_driver.daemon.metrics import Metrics
from dra_driver.model.events import (
    ApiAnswered,
    ClaimPrepared,
    ClaimUnprepared,
    DeviceErrors,
    DeviceHealthChanged,
    DeviceNotClean,
    DevicesFreed,
    DevicesHeld,
    DeviceVanished,
    FieldsDropped,
    HeldCounted,
    Leading,
    NameEvaded,
    NodeConditionWritten,
    NodeLabelsWritten,
    NodeWriteForbidden,
    PublicationProblem,
    Published,
    PublishFailed,
    Recovered,
    SecondOwnerRefused,
    SliceLost,
    SliceWritten,
    StartupTaintRemoved,
    StillHeld,
    ThreadFailed,
    WorkEnded,
)
from dra_driver.model.slices import Problem
from dra_driver.testing.builders import a_ref


def samples(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in found}


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (WorkEnded(a_ref()), {'late_work_total{result="success"}': 1}),
        (WorkEnded(a_ref(), "no"), {'late_work_total{result="error"}': 1}),
        (DevicesHeld(a_ref(), "gpu-0", "x"), {"devices_held_total": 1}),
        (StillHeld(a_ref(), "gpu-0", "then", "x"), {}),
        (DevicesFreed(a_ref(), "gpu-0"), {"devices_freed_total": 1}),
        (HeldCounted(3), {"held_claims": 3}),
        (
            SecondOwnerRefused(a_ref(), a_ref("first"), "gpu-0", "x"),
            {"second_owners_refused_total": 1},
        ),
        (NodeLabelsWritten(20, (), ()), {"node_labels": 20}),
        (NodeConditionWritten(True, "Published", ""), {"devices_ready": 1}),
        (StartupTaintRemoved("a/b"), {"startup_taints_removed_total": 1}),
        (NodeWriteForbidden("labels", "x"), {}),
        (SliceWritten("s", "update"), {'slice_writes_total{action="update"}': 1}),
        (SliceLost("s", 1.0), {"slices_lost_total": 1}),
        (PublishFailed("x", 1.0), {"publish_failures_total": 1}),
        (Published(8, 2), {"published_devices": 8, "published_slices": 2}),
        (PublicationProblem(Problem("d", "", "", "")), {"attributes_dropped_total": 1}),
        (FieldsDropped("s", ("a", "b")), {"fields_dropped_total": 2}),
        (NameEvaded("a", "somebody's", "b"), {"slice_names_taken_total": 1}),
        (DeviceVanished("d", kept=True), {"devices_vanished_total": 1}),
        (DeviceNotClean("d", "process 1 uses it"), {"devices_not_clean_total": 1}),
        (
            DeviceHealthChanged("gpu-0", "unhealthy", "XID 79"),
            {'device_healthy{device="gpu-0"}': 0, 'device_vanished{device="gpu-0"}': 0},
        ),
        (
            DeviceHealthChanged("gpu-0", "healthy"),
            {'device_healthy{device="gpu-0"}': 1, 'device_vanished{device="gpu-0"}': 0},
        ),
        (DeviceHealthChanged("gpu-0", "unknown"), {'device_vanished{device="gpu-0"}': 0}),
        (DeviceHealthChanged("gpu-0", "gone"), {'device_vanished{device="gpu-0"}': 1}),
        (
            DeviceErrors("gpu-0", "xid-31", 2),
            {'device_errors_total{device="gpu-0",error="xid-31"}': 2},
        ),
        (
            Recovered(1, 2, 3),
            {
                'recoveries_total{what="rewritten"}': 1,
                'recoveries_total{what="released"}': 2,
                'recoveries_total{what="removed_file"}': 3,
            },
        ),
        (Leading(leads=True), {"leader": 1}),
        (Leading(leads=False, leader="process 7"), {}),
        (
            ApiAnswered("get", "resourceclaims", "404"),
            {'api_requests_total{code="404",resource="resourceclaims",verb="get"}': 1},
        ),
        (ThreadFailed("t", "x", 1.0), {'thread_failures_total{thread="t"}': 1}),
    ],
)
def test_each_event_counts(event, changed: dict[str, float]) -> None:
    metrics = Metrics()
    before = samples(metrics)
    metrics(event)
    after = samples(metrics)
    assert {name: value for name, value in after.items() if before.get(name) != value} == {
        f"dra_driver_{name}": value for name, value in changed.items()
    }


@pytest.mark.parametrize(
    ("kind", "verb"), [(ClaimPrepared, "prepare"), (ClaimUnprepared, "unprepare")]
)
def test_claims_count_by_result_and_duration(kind, verb: str) -> None:
    metrics = Metrics()
    zero = {
        f'dra_driver_{verb}_claims_total{{result="{result}"}}': 0.0
        for result in ("success", "error")
    }
    assert zero.items() <= samples(metrics).items()
    metrics(kind(a_ref(), 0.003))
    metrics(kind(a_ref(), 20.0, "no"))
    found = samples(metrics)
    name = f"dra_driver_{verb}_claim_duration_seconds"
    expected = {
        f'dra_driver_{verb}_claims_total{{result="success"}}': 1,
        f'dra_driver_{verb}_claims_total{{result="error"}}': 1,
        f'{name}_bucket{{le="0.0025"}}': 0,
        f'{name}_bucket{{le="0.005"}}': 1,
        f'{name}_bucket{{le="15.0"}}': 1,
        f'{name}_bucket{{le="35.0"}}': 2,
        f"{name}_count": 2,
        f"{name}_sum": 20.003,
    }
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("status", ["unknown", "gone"])
def test_a_device_whose_health_is_not_known_any_more_has_no_value(status) -> None:
    metrics = Metrics()
    name = 'dra_driver_device_healthy{device="gpu-0"}'
    metrics(DeviceHealthChanged("gpu-0", "healthy"))
    assert name in samples(metrics)
    metrics(DeviceHealthChanged("gpu-0", status, before="healthy"))
    assert name not in samples(metrics)


def test_a_device_is_vanished_until_it_is_found_again() -> None:
    metrics, name = Metrics(), 'dra_driver_device_vanished{device="gpu-0"}'
    for status, is_gone in (("unhealthy", 0), ("gone", 1), ("healthy", 0)):
        metrics(DeviceHealthChanged("gpu-0", status))
        assert samples(metrics)[name] == is_gone


def test_a_device_that_lost_its_name_to_another_one_stays_vanished() -> None:
    metrics = Metrics()
    for change, gone, healthy in (
        (DeviceHealthChanged("gpu-0", "gone", lost="GPU-x"), 1, None),
        (DeviceHealthChanged("gpu-0", "healthy", lost="GPU-x"), 1, 1),
        (DeviceHealthChanged("gpu-0", "renamed", "GPU-x is called gpu-1"), 0, None),
    ):
        metrics(change)
        found = samples(metrics)
        assert found['dra_driver_device_vanished{device="gpu-0"}'] == gone
        assert found.get('dra_driver_device_healthy{device="gpu-0"}') == healthy


def test_readiness_is_asked_at_each_scrape() -> None:
    metrics, problems = Metrics(), ["not registered"]
    assert samples(metrics)["dra_driver_ready"] == 0
    metrics.ask_readiness(lambda: tuple(problems))
    assert samples(metrics)["dra_driver_ready"] == 0
    problems.clear()
    assert samples(metrics)["dra_driver_ready"] == 1


def test_errors_of_calls_are_counted_from_zero() -> None:
    zero = {
        f'dra_driver_{what}_total{{result="{result}"}}': 0.0
        for what in ("prepare_claims", "unprepare_claims", "allocate_calls")
        for result in ("success", "error")
    }
    assert zero.items() <= samples(Metrics()).items()


def test_no_series_says_when_another_one_was_created() -> None:
    assert [name for name in samples(Metrics()) if "_created" in name] == []


def test_the_log_s_own_numbers_are_shown() -> None:
    found = samples(Metrics(lines_dropped=lambda: 7, lines_waiting=lambda: 9))
    assert found["dra_driver_log_lines_dropped_total"] == 7
    assert found["dra_driver_log_lines_waiting"] == 9
    assert samples(Metrics())["dra_driver_log_lines_dropped_total"] == 0


def test_two_processes_parts_do_not_share_a_registry() -> None:
    one, two = Metrics(), Metrics()
    one(SliceLost("s", 1.0))
    assert samples(two)["dra_driver_slices_lost_total"] == 0
