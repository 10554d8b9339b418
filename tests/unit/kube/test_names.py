# SPDX-License-Identifier: Apache-2.0
"""Which names do the objects of a kind have, and in which of the API's places are they?"""

import json

import pytest

from dra_driver.kube.connection import Connection
from dra_driver.kube.names import driver_names, object_names
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_api.faults import Answer


@pytest.fixture
def api():
    with FakeApi() as found:
        yield found


def connection(api: FakeApi) -> Connection:
    return Connection(api.url, source="this test")


def paths(api: FakeApi) -> list[str]:
    return [one.path for one in api.requests]


def test_objects_of_the_whole_cluster_are_sorted(api: FakeApi) -> None:
    for name in ("n2", "n1"):
        api.put("nodes", {"metadata": {"name": name}})
    assert object_names(connection(api), "nodes") == ["n1", "n2"]
    assert paths(api) == ["/api/v1/nodes?limit=500"]


def test_objects_of_a_namespace(api: FakeApi) -> None:
    api.put("pods", {"metadata": {"name": "mine"}}, namespace="team")
    api.put("pods", {"metadata": {"name": "other"}}, namespace="default")
    assert object_names(connection(api), "pods", namespace="team") == ["mine"]


@pytest.mark.parametrize("versions", [("v1", "v1beta2"), ("v1beta2",)])
def test_claims_are_in_the_newest_version_that_is_served(versions: tuple[str, ...]) -> None:
    with FakeApi(versions=versions) as api:
        api.put("resourceclaims", {"metadata": {"name": "c"}})
        assert object_names(connection(api), "resourceclaims", namespace="default") == ["c"]
        assert f"/{versions[0]}/namespaces/default/" in paths(api)[-1]


def test_workloads_have_groups_of_their_own(api: FakeApi) -> None:
    for name in ("web", "api"):
        api.put("deployments", {"metadata": {"name": name}})
    assert object_names(connection(api), "deployments", namespace="default") == ["api", "web"]
    assert paths(api) == ["/apis/apps/v1/namespaces/default/deployments?limit=500"]
    object_names(connection(api), "replicationcontrollers", namespace="default")
    assert paths(api)[-1].startswith("/api/v1/namespaces/default/replicationcontrollers?")


def test_drivers_are_those_that_publish_slices(api: FakeApi) -> None:
    for name, driver in (("a", "b.example.com"), ("b", "a.example.com"), ("c", "b.example.com")):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": "n1", "pool": pool}
        api.put("resourceslices", {"metadata": {"name": name}, "spec": spec})
    assert driver_names(connection(api)) == ["a.example.com", "b.example.com"]


@pytest.mark.parametrize(
    ("items", "found"), [(None, []), ([1, {}, {"spec": 3}, {"spec": {"driver": "d"}}], ["d"])]
)
def test_an_answer_of_another_form_has_no_names(
    api: FakeApi, items: object, found: list[str]
) -> None:
    body = json.dumps({"kind": "List", "items": items}).encode()
    api.faults.add(Answer(200, {}, body), verb="list", resource="resourceslices")
    assert driver_names(connection(api)) == found
