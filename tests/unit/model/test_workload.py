# SPDX-License-Identifier: Apache-2.0
"""How many pods a workload wants now."""

from typing import Any

import msgspec
import pytest

from dra_driver.model.api.workload import StoredWorkload, with_parts


@pytest.mark.parametrize(
    ("kind", "spec", "status", "wanted"),
    [
        ("Deployment", {}, {}, 1),
        ("Deployment", {"replicas": 0}, {}, 0),
        ("StatefulSet", {"replicas": 5}, {}, 5),
        ("DaemonSet", {}, {"desiredNumberScheduled": 3}, 3),
        ("DaemonSet", {}, {}, None),
        ("CronJob", {}, {}, None),
        ("Job", {}, {}, 1),
        ("Job", {"parallelism": 4}, {}, 4),
        ("Job", {"parallelism": 4, "completions": 6}, {"succeeded": 1}, 4),
        ("Job", {"parallelism": 4, "completions": 6}, {"succeeded": 4}, 2),
        ("Job", {"parallelism": 4, "completions": 6}, {"succeeded": 7}, 0),
        ("Job", {"parallelism": 4}, {"succeeded": 1}, None),
    ],
)
def test_a_workload_wants_the_pods_that_are_still_to_run(
    kind: str, spec: dict[str, Any], status: dict[str, Any], wanted: int | None
) -> None:
    stored = msgspec.convert({"kind": kind, "spec": spec, "status": status}, StoredWorkload)
    assert stored.wanted == wanted


@pytest.mark.parametrize(
    ("conditions", "ended"),
    [
        (None, False),
        ([{"type": "Complete", "status": "True"}], True),
        ([{"type": "Failed", "status": "True"}], True),
        ([{"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "True"}], False),
    ],
)
def test_a_job_ends_with_a_condition(conditions: Any, *, ended: bool) -> None:
    stored = {"kind": "Job", "status": {"conditions": conditions}}
    assert msgspec.convert(stored, StoredWorkload).ended is ended


def test_the_parts_of_a_workload_are_read_once() -> None:
    assert with_parts(["Deployment", "ReplicaSet", "CronJob"]) == (
        *("Deployment", "ReplicaSet", "CronJob"),
        "Job",
    )
