# SPDX-License-Identifier: Apache-2.0
"""What a pod asks of its node, all containers together."""

import msgspec
import pytest

from dra_driver.explain.facts.pod_requests import pod_requests
from dra_driver.model.api.core import Pod
from dra_driver.model.resource_names import is_extended, may_be_devices

NANO = 10**9


def pod(**spec: object) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)


def container(cpu: int, **more: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}, **more}


def test_containers_add_up_and_overhead_comes_on_top() -> None:
    asked = pod_requests(pod(containers=[container(1), container(2)], overhead={"cpu": "500m"}))
    assert asked == {"cpu": 3 * NANO + NANO // 2}


def test_an_init_container_counts_only_where_it_is_the_largest() -> None:
    first = [container(5), container(4)]
    assert pod_requests(pod(containers=[container(2)], initContainers=first)) == {"cpu": 5 * NANO}


def test_a_sidecar_runs_beside_the_others() -> None:
    first = [container(1, restartPolicy="Always"), container(5)]
    asked = pod_requests(pod(containers=[container(2)], initContainers=first))
    assert asked == {"cpu": 6 * NANO}


def test_what_the_pod_is_given_as_a_whole_replaces_the_sum() -> None:
    whole = {"requests": {"cpu": "7", "example.com/x": "1", "hugepages-2Mi": "2"}}
    asked = pod_requests(pod(containers=[container(2)], resources=whole))
    assert asked == {"cpu": 7 * NANO, "hugepages-2Mi": 2 * NANO}


def test_a_pod_without_requests_asks_for_nothing() -> None:
    assert pod_requests(pod(containers=[{"name": "c"}])) == {}


def test_a_limit_without_a_request_is_the_request() -> None:
    limited = {"name": "c", "resources": {"limits": {"cpu": "4", "example.com/x": "2"}}}
    first = {**limited, "restartPolicy": "Always"}
    assert pod_requests(pod(containers=[limited], initContainers=[first])) == {
        "cpu": 8 * NANO,
        "example.com/x": 4 * NANO,
    }


@pytest.mark.parametrize(
    ("name", "extended", "devices"),
    [
        ("cpu", False, False),
        ("kubernetes.io/x", False, False),
        ("a.kubernetes.io/x", False, False),
        ("requests.example.com/gpu", False, False),
        ("example.com/gpu", True, True),
        ("deviceclass.resource.kubernetes.io/gpu", False, True),
    ],
)
def test_extended_resources_have_a_foreign_domain(name: str, extended: bool, devices: bool) -> None:
    assert (is_extended(name), may_be_devices(name)) == (extended, devices)
