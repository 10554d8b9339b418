# SPDX-License-Identifier: Apache-2.0
"""Reading a whole cluster: what is read, and what is said where something cannot be."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import Unreachable
from dra_driver.kube.cluster import Scope, read_cluster
from dra_driver.kube.connection import Connection
from dra_driver.kube.transport import Transport
from dra_driver.model.api.core import Namespace
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.testing.fake_api import Answer, FakeApi, refusal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def read(api: FakeApi) -> ClusterState:
    return read_cluster(Connection(api.url, source="this test"), now=lambda: NOW)


def fill(api: FakeApi) -> None:
    api.put("namespaces", {"metadata": {"name": "team", "labels": {"a": "b"}, "annotations": {"secret": "s"}}})  # fmt: skip
    api.put("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}})
    api.put("pods", {"metadata": {"namespace": "team", "name": "p"}, "spec": {"nodeName": "n1"}})
    api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    api.put("resourceclaimtemplates", {"metadata": {"namespace": "team", "name": "t"}, "spec": {}})
    api.put("resourceclaims", {"metadata": {"namespace": "team", "name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}})  # fmt: skip
    api.put("devicetaintrules", {"metadata": {"name": "rule"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}})  # fmt: skip
    for index in range(2):
        spec = {"driver": "d", "pool": {"name": "n1"}, "devices": [{"name": f"gpu-{index}"}]}
        api.put("resourceslices", {"metadata": {"name": f"s{index}"}, "spec": spec})


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_everything_that_decides_about_devices_is_read(version: str) -> None:
    gates = {"DRAConsumableCapacity": True, "DRADerivedAttributes": False}
    with FakeApi(versions=(version,)) as api:
        api.tell_gates(gates)
        fill(api)
        state = read(api)
    assert state.recorded_at == "2026-01-02T03:04:05+00:00"
    assert state.kubernetes_version == "v1.37.0+fake"
    assert state.feature_gates == gates
    assert state.served == (version,)
    assert state.namespaces == (Namespace(metadata=ObjectMeta(name="team", labels={"a": "b"})),)
    named = {
        "nodes": [found.metadata.name for found in state.nodes],
        "pods": [found.metadata.name for found in state.pods],
        "classes": [found.metadata.name for found in state.device_classes],
        "templates": [found.metadata.name for found in state.resource_claim_templates],
        "slices": [found.metadata.name for found in state.resource_slices],
    }
    assert named == {
        "nodes": ["n1"],
        "pods": ["p"],
        "classes": ["gpu"],
        "templates": ["t"],
        "slices": ["s0", "s1"],
    }
    (claim,) = state.resource_claims
    (request,) = claim.spec.devices.requests or ()
    assert request.exactly is not None
    assert request.exactly.device_class_name == "gpu"
    assert state.not_read == ()


def test_for_waiting_pods_only_what_they_name_and_what_has_devices_is_kept() -> None:
    def named(name: str, namespace: str = "team") -> dict[str, Any]:
        return {"metadata": {"namespace": namespace, "name": name}, "spec": {"devices": {}}}

    statuses = {
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "none"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
    }
    entries = [
        {"name": "a", "resourceClaimName": "shared"},
        {"name": "b", "resourceClaimTemplateName": "t"},
    ]
    with FakeApi() as api:
        api.tell_gates({})
        waits = {**named("waits"), "spec": {"resourceClaims": entries}, "status": statuses}
        api.put("pods", waits)
        of_running = [{"name": "a", "resourceClaimName": "unused"}]
        running = {"nodeName": "n1", "resourceClaims": of_running}
        api.put("pods", {**named("runs"), "spec": running})
        for name in ("shared", "made", "extended", "unused"):
            api.put("resourceclaims", named(name))
            api.put("resourceclaims", named(name, "other"))
        status = {"allocation": {"devices": {"results": []}}}
        api.put("resourceclaims", {**named("holds", "other"), "status": status})
        for namespace in ("team", "other"):
            api.put("resourceclaimtemplates", {**named("t", namespace), "spec": {"spec": {}}})
        connection = Connection(api.url, source="this test")
        state = read_cluster(connection, scope=Scope(waiting_pods=True))
        everything = read_cluster(connection)
    claims = {(one.metadata.namespace, one.metadata.name) for one in state.resource_claims}
    assert claims == {
        *(("team", name) for name in ("shared", "made", "extended")),
        ("other", "holds"),
    }
    assert [one.metadata.namespace for one in state.resource_claim_templates] == ["team"]
    assert state.not_read == ()
    assert len(everything.resource_claims) == 9
    assert len(everything.resource_claim_templates) == 2


def test_workloads_are_read_where_they_are_asked_about_with_what_makes_their_pods() -> None:
    with FakeApi() as api:
        api.tell_gates({})
        for plural in ("deployments", "replicasets", "jobs", "replicationcontrollers"):
            api.put(
                plural, {"metadata": {"name": plural, "namespace": "ns"}, "spec": {"replicas": 2}}
            )
            api.put(plural, {"metadata": {"name": "other", "namespace": "other"}})
        api.faults.status(403, verb="list", resource="jobs")
        scope = Scope("ns", ("Deployment", "ReplicationController", "Job"))
        connection = Connection(api.url, source="this test")
        state = read_cluster(connection, scope=scope, now=lambda: NOW)
        assert read(api).workloads == ()
    assert [(one.kind, one.metadata.name, one.wanted) for one in state.workloads] == [
        ("Deployment", "deployments", 2),
        ("ReplicationController", "replicationcontrollers", 2),
        ("ReplicaSet", "replicasets", 2),
    ]
    assert [(gap.resource, gap.reason) for gap in state.not_read] == [("jobs", "forbidden")]


def test_without_rights_for_the_cluster_the_namespace_is_read() -> None:
    with FakeApi() as api:
        api.tell_gates({})
        fill(api)
        api.put("pods", {"metadata": {"namespace": "other", "name": "q"}})
        for resource in ("pods", "resourceclaims", "nodes"):
            api.faults.status(403, verb="list", resource=resource)
        api.faults.status(403, verb="list", resource="resourceclaimtemplates", times=2)
        connection = Connection(api.url, source="this test")
        state = read_cluster(connection, scope=Scope("team"), now=lambda: NOW)
        paths = [one.path.partition("?")[0] for one in api.requests]
    assert [one.metadata.name for one in state.pods] == ["p"]
    assert [one.metadata.name for one in state.resource_claims] == ["c"]
    assert (state.nodes, state.resource_claim_templates) == ((), ())
    assert "/api/v1/namespaces/team/pods" in paths
    assert [
        (
            *(gap.resource, gap.reason, gap.only_namespace),
            "; only those of namespace team were read" in gap.message,
        )
        for gap in state.not_read
    ] == [
        ("nodes", "forbidden", "", False),
        ("pods", "forbidden", "team", True),
        ("resourceclaims", "forbidden", "team", True),
        ("resourceclaimtemplates", "forbidden", "", False),
    ]


def test_taint_rules_are_looked_for_in_every_version_that_may_have_them() -> None:
    not_there = Answer(404, {"Content-Type": "text/plain"}, b"404 page not found\n")
    with FakeApi(versions=("v1", "v1beta2")) as api:
        api.tell_gates({})
        fill(api)
        api.faults.add(not_there, verb="list", resource="devicetaintrules")
        state = read(api)
    assert [rule.spec.taint.key for rule in state.device_taint_rules] == ["k"]
    assert state.not_read == ()


def test_a_cluster_without_taint_rules_is_whole() -> None:
    not_there = Answer(404, {"Content-Type": "text/plain"}, b"404 page not found\n")
    with FakeApi() as api:
        api.tell_gates({})
        api.faults.add(not_there, verb="list", resource="devicetaintrules")
        state = read(api)
    assert (state.device_taint_rules, state.not_read) == ((), ())


def test_a_missing_right_costs_its_kind_only_and_is_named() -> None:
    with FakeApi() as api:
        fill(api)
        api.faults.add(refusal(403), verb="list", resource="pods")
        state = read(api)
    assert state.pods == ()
    assert len(state.resource_slices) == 2
    pods, metrics = sorted(state.not_read, key=lambda gap: gap.resource, reverse=True)
    assert (pods.resource, pods.reason, pods.name) == ("pods", "forbidden", "")
    assert "allow verb 'list' on resource 'pods' in the ClusterRole" in pods.message
    assert (metrics.resource, metrics.reason) == ("/metrics", "forbidden")
    assert state.unread("pods") == pods


def test_a_cluster_without_the_group_says_so_for_each_of_its_kinds() -> None:
    with FakeApi(versions=()) as api:
        api.tell_gates({})
        api.put("nodes", {"metadata": {"name": "n1"}})
        state = read(api)
    assert state.served == ()
    assert [gap.resource for gap in state.not_read] == [
        "resource.k8s.io",
        "deviceclasses",
        "resourceslices",
        "resourceclaims",
        "resourceclaimtemplates",
    ]
    assert {gap.reason for gap in state.not_read} == {"not_served"}
    assert state.not_read[-1].message == (
        "the API server serves resourceclaimtemplates in none of the versions v1, v1beta2, v1beta1 of resource.k8s.io: it serves no version; pods of "
        "such a cluster get devices by the extended resources in their containers' limits and not by claims (docs/older-clusters.md)"
    )
    assert len(state.nodes) == 1


def test_an_object_of_the_wrong_shape_costs_itself_only() -> None:
    bad = {"metadata": {"namespace": "team", "name": "bad"}, "spec": {"nodeName": 5}}
    worse = {"items": [bad, "text", {"metadata": {"name": "good"}}], "metadata": {}}
    with FakeApi() as api:
        api.tell_gates({})
        api.faults.add(Answer(200, {}, json.dumps(worse).encode()), verb="list", resource="pods")
        state = read(api)
    assert [pod.metadata.name for pod in state.pods] == ["good"]
    assert state.not_read == (
        NotRead(
            resource="pods",
            reason="malformed",
            name="team/bad",
            message="Expected `str`, got `int` - at `$.spec.nodeName`",
        ),
        NotRead(resource="pods", reason="malformed", message="it is no object but text"),
    )


def test_long_lists_come_in_pages() -> None:
    with FakeApi() as api:
        api.tell_gates({})
        for index in range(501):
            api.put("nodes", {"metadata": {"name": f"n{index}"}})
        state = read(api)
        asked = [request for request in api.requests if request.resource == "nodes"]
    assert len(state.nodes) == 501
    assert len(asked) == 3  # 100, 200 and the rest


def test_a_list_that_expires_between_its_pages_is_read_again_once() -> None:
    with FakeApi() as api:
        api.tell_gates({})
        fill(api)
        api.faults.add(refusal(410), verb="list", resource="nodes")
        again = read(api)
        api.faults.add(refusal(410), verb="list", resource="nodes", times=2)
        never = read(api)
    assert (len(again.nodes), again.not_read) == (1, ())
    assert never.nodes == ()
    assert never.not_read == (
        NotRead(
            resource="nodes",
            reason="failed",
            message="list nodes: the list changed between its pages 2 times",
        ),
    )


def test_an_answer_that_is_no_list_is_an_empty_one() -> None:
    with FakeApi() as api:
        api.tell_gates({})
        api.faults.add(Answer(200, {}, b'{"items": 5}'), verb="list", resource="nodes")
        assert read(api).nodes == ()


def test_a_server_that_is_not_there_is_an_error() -> None:
    with FakeApi() as api:
        url = api.url
    with pytest.raises(Temporary) as found:
        read_cluster(Connection(url, source="this test"))
    assert "get /version at" in str(found.value)
    assert isinstance(found.value, DriverError)


def test_budgets_are_read_and_are_no_gap_without_the_right() -> None:
    budget = {"metadata": {"namespace": "team", "name": "b"}, "status": {"disruptionsAllowed": 2}}
    with FakeApi() as api:
        api.tell_gates({})
        fill(api)
        api.put("poddisruptionbudgets", budget)
        state = read(api)
        api.faults.add(refusal(403), verb="list", resource="poddisruptionbudgets")
        without = read(api)
    assert [one.status.disruptions_allowed for one in state.pod_disruption_budgets] == [2]
    assert (without.pod_disruption_budgets, without.not_read) == ((), ())


class Leaves:
    """Credentials; while the headers of the chosen request are made, the server goes away."""

    def __init__(self, api: FakeApi, request: int) -> None:
        self.api = api
        self.left = request

    def headers(self) -> dict[str, str]:
        self.left -= 1
        if self.left == 0:
            self.api.close()
        return {}

    def forget(self) -> None:
        pass


@pytest.mark.parametrize("request_number", [2, 3, 4, 9])
def test_a_server_that_goes_away_meanwhile_is_an_error_at_once(
    request_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of ten requests would wait for it, and the answer would look like that of a cluster without devices."""
    monkeypatch.setitem(Transport.__init__.__kwdefaults__, "deadline_seconds", 0.5)
    with FakeApi() as api:
        connection = Connection(api.url, credentials=Leaves(api, request_number))
        with pytest.raises(Unreachable, match="Connection refused"):
            read_cluster(connection)
