# SPDX-License-Identifier: Apache-2.0
"""What a pod counts for on its node while its spec, the kubelet's admission and its containers differ. Upstream's rules, by hand."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.facts.resized_pods import StatusCounts, counted_requests, used_on_node
from dra_driver.model.api.core import Pod

NANO = 10**9
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {**INFEASIBLE, "reason": "Deferred"}


def pod(spec: dict[str, Any], **status: Any) -> Pod:
    made = {"metadata": {"name": "p"}, "spec": spec, "status": status}
    return msgspec.convert(made, Pod)


def container(cpu: int, name: str = "main", **more: object) -> dict[str, object]:
    return {"name": name, "resources": {"requests": {"cpu": str(cpu)}}, **more}


def has(admitted: int | None, now: int | None, name: str = "main") -> dict[str, object]:
    """The status of a container."""
    status: dict[str, object] = {"name": name}
    if admitted is not None:
        status["allocatedResources"] = {"cpu": str(admitted)}
    if now is not None:
        status["resources"] = {"requests": {"cpu": str(now)}}
    return status


def cpu_of(made: Pod, counts: StatusCounts | None = None) -> float:
    return counted_requests(made, counts or StatusCounts()).get("cpu", 0) / NANO


@pytest.mark.parametrize(
    ("wanted", "admitted", "now", "condition", "counted"),
    [
        (2, 2, 2, None, 2),
        (2, 8, 8, None, 8),
        (2, 2, 8, None, 8),
        (2, 8, 2, None, 8),
        (8, 2, 2, DEFERRED, 8),
        (8, 2, 2, INFEASIBLE, 2),
        (8, 2, 3, INFEASIBLE, 3),
        (8, 2, None, INFEASIBLE, 2),
        (8, None, 2, INFEASIBLE, 2),
        (8, None, None, INFEASIBLE, 0),
        (2, None, None, None, 2),
        (2, 8, None, None, 8),
    ],
)
def test_the_largest_of_spec_admission_and_containers_counts(
    wanted: int, admitted: int | None, now: int | None, condition: object, counted: int
) -> None:
    conditions = [{"type": "Ready", "status": "True"}, *([condition] if condition else [])]
    status = {"containerStatuses": [has(admitted, now)], "conditions": conditions}
    made = pod({"containers": [container(wanted)], "overhead": {"cpu": "1"}}, **status)
    assert cpu_of(made) == counted + 1
    assert cpu_of(made, StatusCounts(of_containers=False)) == wanted + 1


def test_the_sums_are_compared_not_the_containers() -> None:
    spec = {"containers": [container(1), container(8, "other")]}
    made = pod(spec, containerStatuses=[has(4, 4), has(2, 2, "other")])
    assert cpu_of(made) == 9


BEFORE_1_37 = StatusCounts(of_sums=False)


@pytest.mark.parametrize(
    ("conditions", "counted"), [([], 4 + 8), ([DEFERRED], 4 + 8), ([INFEASIBLE], 4 + 2)]
)
def test_earlier_releases_compare_for_each_container(
    conditions: list[object], counted: int
) -> None:
    spec = {"containers": [container(1), container(8, "other")]}
    statuses = [has(4, 3), has(1, 2, "other")]
    made = pod(spec, containerStatuses=statuses, conditions=conditions)
    assert cpu_of(made, BEFORE_1_37) == counted


def test_earlier_releases_look_at_a_status_only_with_what_the_container_has() -> None:
    spec = {"containers": [container(1)]}
    assert cpu_of(pod(spec, containerStatuses=[has(4, None)]), BEFORE_1_37) == 1


def test_earlier_releases_look_at_sidecars_but_not_at_other_init_containers() -> None:
    first = [container(1, "side", restartPolicy="Always"), container(2, "init")]
    spec = {"containers": [container(1)], "initContainers": first}
    assert cpu_of(pod(spec, initContainerStatuses=[has(6, 6, "side")]), BEFORE_1_37) == 8
    assert cpu_of(pod(spec, initContainerStatuses=[has(6, 6, "init")]), BEFORE_1_37) == 3


def test_earlier_releases_count_for_the_whole_only_what_the_spec_names() -> None:
    status = {"resources": {"requests": {"memory": "9"}}, "allocatedResources": {"cpu": "6"}}
    counted = counted_requests(pod(WHOLE, **status), BEFORE_1_37)
    assert counted == {"cpu": 6 * NANO}


def test_a_container_without_a_status_counts_as_in_the_spec() -> None:
    spec = {"containers": [container(1), container(8, "other")]}
    assert cpu_of(pod(spec, containerStatuses=[has(4, 4)])) == 12


def test_init_containers_and_sidecars_have_statuses_too() -> None:
    first = [container(1, "side", restartPolicy="Always"), container(2, "init")]
    spec = {"containers": [container(1)], "initContainers": first}
    assert cpu_of(pod(spec, initContainerStatuses=[has(6, 6, "side")])) == 8
    assert cpu_of(pod(spec, initContainerStatuses=[has(6, 6, "init")])) == 7


WHOLE = {"containers": [container(1)], "resources": {"requests": {"cpu": "4"}}}


@pytest.mark.parametrize(
    ("status", "counted", "without_the_gate"),
    [
        ({"allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "7"}}}, 7, 4),
        ({"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}}, 4, 4),
        ({"resources": {"requests": {"cpu": "9", "example.com/x": "1"}}}, 9, 4),
        ({"resources": {}, "allocatedResources": {"cpu": "9"}}, 9, 4),
        ({"containerStatuses": [has(9, 9)]}, 4, 4),
        (
            {
                "allocatedResources": {"cpu": "2"},
                "resources": {"requests": {"cpu": "3"}},
                "conditions": [INFEASIBLE],
            },
            3,
            4,
        ),
    ],
)
def test_a_pod_that_requests_as_a_whole_has_a_status_as_a_whole(
    status: dict[str, Any], counted: int, without_the_gate: int
) -> None:
    made = pod(WHOLE, **status)
    assert cpu_of(made) == counted
    assert cpu_of(made, StatusCounts(of_the_whole=False)) == without_the_gate
    assert "example.com/x" not in counted_requests(made, StatusCounts())


def test_the_status_of_the_whole_counts_without_a_request_for_the_whole() -> None:
    status = {"allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "5"}}}
    made = pod({"containers": [container(1)]}, **status)
    assert cpu_of(made) == 6
    assert cpu_of(made, StatusCounts(of_the_whole=False)) == 1


def test_the_pods_of_a_node_count_together() -> None:
    both = [
        pod({"containers": [container(1)]}),
        pod({"containers": [container(2)]}, containerStatuses=[has(3, 3)]),
    ]
    assert used_on_node(both) == {"pods": 2 * NANO, "cpu": 4 * NANO}
