# SPDX-License-Identifier: Apache-2.0
"""The fake API server's own tools: helpers, faults, versions. Its rules are tested in tests/contract."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from dra_driver.testing.fake_api import (
    Answer,
    CutWatch,
    FakeApi,
    Hold,
    Refused,
    Reset,
    WatchLine,
)

Object = dict[str, Any]
GROUP = "/apis/resource.k8s.io"
CLAIMS = f"{GROUP}/v1/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
POD: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-1"}, "spec": {}}
SLICE: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "slice-1"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}],
    },
}
REQUEST: Object = {
    "name": "main",
    "exactly": {"deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"},
}
CLAIM_SPEC: Object = {"devices": {"requests": [REQUEST]}}


class Client:
    """Plain requests."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self._pool = urllib3.PoolManager(retries=False)

    def __call__(
        self, method: str, path: str, body: Object | None = None, **headers: str
    ) -> tuple[int, Any]:
        answer = self._pool.request(
            method,
            self._api.url + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **headers},
        )
        text = answer.data.decode()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def close(self) -> None:
        self._pool.clear()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(("v1", "v1beta2", "v1beta1")) as server:
        yield server


@pytest.fixture
def ask(api: FakeApi) -> Iterator[Client]:
    client = Client(api)
    yield client
    client.close()


def events(text: str) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in text.splitlines()]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in found]


# Helpers for tests


def test_an_object_that_was_put_is_there_with_its_status(api: FakeApi, ask: Client) -> None:
    api.put("pods", {**POD, "status": {"phase": "Running"}})
    status, pod = ask("GET", f"{PODS}/pod-1")
    assert (status, pod["status"]) == (200, {"phase": "Running"})
    assert pod["metadata"]["namespace"] == "default"
    assert api.object("pods", "pod-1") == pod


def test_putting_again_replaces_whatever_the_version(api: FakeApi) -> None:
    first = api.put("nodes", NODE)
    second = api.put("nodes", {"metadata": {"name": "node-1", "labels": {"a": "b"}}})
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert [node["metadata"]["labels"] for node in api.objects("nodes")] == [{"a": "b"}]


def test_objects_are_listed_by_namespace(api: FakeApi) -> None:
    api.put("pods", POD)
    api.put("pods", {"metadata": {"name": "pod-2", "namespace": "team-a"}})
    assert [pod["metadata"]["name"] for pod in api.objects("pods")] == ["pod-1", "pod-2"]
    assert [pod["metadata"]["name"] for pod in api.objects("pods", namespace="team-a")] == ["pod-2"]


def test_a_removed_object_is_gone(api: FakeApi) -> None:
    api.put("pods", POD)
    api.remove("pods", "pod-1")
    with pytest.raises(Refused, match='pods "pod-1" not found'):
        api.object("pods", "pod-1")
    with pytest.raises(Refused):
        api.remove("pods", "pod-1")


def test_waiting_ends_when_the_objects_are_there(api: FakeApi) -> None:
    later = threading.Timer(0.02, lambda: api.put("nodes", NODE))
    later.start()
    assert [node["metadata"]["name"] for node in api.wait_for("nodes", 1)] == ["node-1"]
    later.join()


def test_waiting_for_what_does_not_come_fails(api: FakeApi) -> None:
    with pytest.raises(AssertionError, match=r"0 nodes after 0\.01 s, not 1"):
        api.wait_for("nodes", 1, timeout=0.01)


def test_a_kubeconfig_names_the_server(api: FakeApi, tmp_path: Path) -> None:
    path = api.kubeconfig(
        tmp_path / "config", token="secret", certificate_authority=tmp_path / "ca"
    )
    content = yaml.safe_load(path.read_text())
    cluster = {"server": api.url, "certificate-authority": str(tmp_path / "ca")}
    assert content["clusters"] == [{"name": "fake", "cluster": cluster}]
    assert content["users"] == [{"name": "fake", "user": {"token": "secret"}}]


def test_requests_are_recorded_with_their_verbs(api: FakeApi, ask: Client) -> None:
    ask("GET", GROUP)
    ask("POST", NODES, NODE)
    ask("GET", f"{NODES}?watch=1&timeoutSeconds=0")
    ask("GET", NODES)
    ask("PUT", f"{CLAIMS}/x/status", {})
    ask("DELETE", f"{CLAIMS}/x")
    ask("DELETE", CLAIMS)
    assert [(request.verb, request.resource) for request in api.requests] == [
        ("get", "discovery"),
        ("create", "nodes"),
        ("watch", "nodes"),
        ("list", "nodes"),
        ("update", "resourceclaims/status"),
        ("delete", "resourceclaims"),
        ("deletecollection", "resourceclaims"),
    ]


def test_a_restarted_server_has_the_same_objects(api: FakeApi) -> None:
    api.put("nodes", NODE)
    before, port = api.objects("nodes"), api.port
    api.faults.clear()
    with FakeApi() as first:
        first.put("nodes", NODE)
        store, port = first.store, first.port
        before = first.objects("nodes")
    with FakeApi(store=store, port=port) as second:
        assert second.url == first.url
        assert second.objects("nodes") == before


# Versions


def test_one_store_is_served_in_every_version(api: FakeApi, ask: Client) -> None:
    assert ask("POST", f"{GROUP}/v1/resourceslices", SLICE)[0] == 201
    device = SLICE["spec"]["devices"][0]
    deep = {"name": "gpu-0", "basic": {"attributes": device["attributes"]}}
    for version, expected in (("v1", device), ("v1beta2", device), ("v1beta1", deep)):
        _status, answer = ask("GET", f"{GROUP}/{version}/resourceslices/slice-1")
        assert answer["apiVersion"] == f"resource.k8s.io/{version}"
        assert answer["spec"]["devices"] == [expected]


def test_v1beta1_objects_are_stored_in_v1_form(api: FakeApi, ask: Client) -> None:
    flat: Object = {
        "name": "main",
        "deviceClassName": "gpu",
        "count": 2,
        "allocationMode": "ExactCount",
    }
    spec = {"devices": {"requests": [flat]}}
    claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": spec,
    }
    template = {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}
    path = f"{GROUP}/v1beta1/namespaces/default"
    assert ask("POST", f"{path}/resourceclaims", claim)[1]["spec"] == spec
    assert ask("POST", f"{path}/resourceclaimtemplates", template)[1]["spec"] == {"spec": spec}
    assert api.object("resourceclaims", "c")["spec"] == CLAIM_SPEC
    assert api.object("resourceclaimtemplates", "c")["spec"] == {"spec": CLAIM_SPEC}


def test_v1beta1_devices_are_stored_in_v1_form(api: FakeApi, ask: Client) -> None:
    deep = {"name": "gpu-0", "basic": {"attributes": {"index": {"int": 0}}}}
    spec = {**SLICE["spec"], "devices": [deep]}
    body = {**SLICE, "apiVersion": "resource.k8s.io/v1beta1", "spec": spec}
    assert ask("POST", f"{GROUP}/v1beta1/resourceslices", body)[1]["spec"] == spec
    assert api.object("resourceslices", "slice-1")["spec"] == SLICE["spec"]


def test_discovery_lists_what_is_served(api: FakeApi, ask: Client) -> None:
    _status, group = ask("GET", GROUP)
    assert [entry["version"] for entry in group["versions"]] == ["v1", "v1beta2", "v1beta1"]
    assert [entry["name"] for entry in ask("GET", "/apis")[1]["groups"]] == ["resource.k8s.io"]
    _status, resources = ask("GET", f"{GROUP}/v1")
    assert "resourceslices" in [entry["name"] for entry in resources["resources"]]


def test_a_group_that_is_not_served_does_not_exist(api: FakeApi, ask: Client) -> None:
    api.serve()
    assert ask("GET", GROUP) == (404, "404 page not found\n")
    assert ask("GET", f"{GROUP}/v1/resourceslices") == (404, "404 page not found\n")
    assert ask("GET", "/apis")[1]["groups"] == []
    assert ask("GET", NODES)[0] == 200


# Verbs


def test_a_merge_patch_changes_what_it_names(api: FakeApi, ask: Client) -> None:
    api.put("nodes", {**NODE, "metadata": {"name": "node-1", "labels": {"a": "1", "b": "2"}}})
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}}
    header = {"Content-Type": "application/merge-patch+json"}
    status, node = ask("PATCH", f"{NODES}/node-1", patch, **header)
    assert (status, node["metadata"]["labels"]) == (200, {"b": "2", "c": "3"})


def test_a_status_is_patched_under_its_own_path(api: FakeApi, ask: Client) -> None:
    api.put("pods", POD)
    header = {"Content-Type": "application/merge-patch+json"}
    patch = {"status": {"phase": "Running"}, "spec": {"nodeName": "node-9"}}
    assert ask("PATCH", f"{PODS}/pod-1/status", patch, **header)[0] == 200
    pod = api.object("pods", "pod-1")
    assert (pod["status"], pod["spec"]) == ({"phase": "Running"}, {})


def test_other_patches_are_not_understood(api: FakeApi, ask: Client) -> None:
    api.put("nodes", NODE)
    header = {"Content-Type": "application/json-patch+json"}
    assert ask("PATCH", f"{NODES}/node-1", {}, **header)[0] == 415


def test_a_binding_puts_a_pod_on_a_node(api: FakeApi, ask: Client) -> None:
    api.put("pods", POD)
    body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node-1"}}
    assert ask("POST", f"{PODS}/pod-1/binding", body)[0] == 201
    assert api.object("pods", "pod-1")["spec"] == {"nodeName": "node-1"}


def test_names_are_generated(api: FakeApi, ask: Client) -> None:
    body = {**NODE, "metadata": {"generateName": "node-"}}
    names = {ask("POST", NODES, body)[1]["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("node-") for name in names)


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", NODES, {**NODE, "metadata": {}}, 422),
        ("POST", f"{NODES}/node-1", NODE, 404),
        ("OPTIONS", NODES, None, 405),
        ("POST", PODS, {**POD, "metadata": {"name": "p", "namespace": "other"}}, 400),
        ("GET", f"{PODS}/pod-1/log", None, 404),
        ("GET", "/api/v1/pods/pod-1", None, 404),
        ("GET", "/nonsense", None, 404),
        ("GET", "/readyz", None, 200),
    ],
)
def test_other_requests_are_answered_as_they_deserve(
    ask: Client, method: str, path: str, body: Object | None, expected: int
) -> None:
    assert ask(method, path, body)[0] == expected


def test_pods_are_created_without_a_status_and_nodes_with_theirs(api: FakeApi, ask: Client) -> None:
    ask("POST", PODS, {**POD, "status": {"phase": "Running"}})
    ask("POST", NODES, {**NODE, "status": {"nodeInfo": {}}})
    assert "status" not in api.object("pods", "pod-1")
    assert api.object("nodes", "node-1")["status"] == {"nodeInfo": {}}


def test_labels_select(api: FakeApi, ask: Client) -> None:
    for name, labels in (("a", {"tier": "x"}), ("b", {"tier": "y"}), ("c", {})):
        api.put("nodes", {"metadata": {"name": name, "labels": labels}})
    for selector, expected in (
        ("tier%3Dx", ["a"]),
        ("tier%3D%3Dy", ["b"]),
        ("tier!%3Dx", ["b", "c"]),
    ):
        items = ask("GET", f"{NODES}?labelSelector={selector}")[1]["items"]
        assert [item["metadata"]["name"] for item in items] == expected


def test_a_list_that_goes_on_after_a_compaction_is_expired(api: FakeApi, ask: Client) -> None:
    for name in ("a", "b"):
        api.put("nodes", {"metadata": {"name": name}})
    _status, page = ask("GET", f"{NODES}?limit=1")
    api.compact()
    status, answer = ask("GET", f"{NODES}?limit=1&continue={page['metadata']['continue']}")
    assert (status, answer["reason"]) == (410, "Expired")


# Watches


def test_a_watch_from_nowhere_begins_with_what_is_there(api: FakeApi) -> None:
    api.put("nodes", NODE)
    api.put("nodes", {"metadata": {"name": "node-2"}})
    text = raw(api, f"{NODES}?watch=1&timeoutSeconds=0")
    assert events(text) == [("ADDED", "node-1"), ("ADDED", "node-2")]


def test_a_watch_with_a_selector_sees_objects_come_and_go(api: FakeApi, ask: Client) -> None:
    version = api.store.version
    api.put("pods", POD)
    api.put("pods", {**POD, "spec": {"nodeName": "node-1"}})
    api.put("pods", {**POD, "spec": {"nodeName": "node-1", "priority": 1}})
    api.put("pods", {**POD, "spec": {"nodeName": "node-2"}})
    path = f"/api/v1/pods?watch=1&timeoutSeconds=0.1&resourceVersion={version}&fieldSelector=spec.nodeName%3Dnode-1"
    text = raw(api, path)
    assert [kind for kind, _name in events(text)] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_compaction_ends_a_watch_with_410(api: FakeApi, ask: Client) -> None:
    version = api.store.version
    later = threading.Timer(0.05, api.compact)
    later.start()
    text = raw(api, f"{NODES}?watch=1&resourceVersion={version}")
    later.join()
    event = json.loads(text)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def raw(api: FakeApi, path: str) -> str:
    with urllib3.PoolManager(retries=False) as pool:
        return pool.request("GET", api.url + path).data.decode()


# Faults


def test_a_fault_hits_the_next_fitting_requests_only(api: FakeApi, ask: Client) -> None:
    api.faults.status(503, verb="list", resource="nodes", times=2)
    assert ask("GET", GROUP)[0] == 200
    assert [ask("GET", NODES)[0] for _ in range(3)] == [503, 503, 200]


def test_a_fault_may_let_some_pass_first(api: FakeApi, ask: Client) -> None:
    api.faults.add(Answer(200, body=b"garbage"), after=1)
    assert [ask("GET", NODES)[1] == "garbage" for _ in range(3)] == [False, True, False]


def test_faults_are_cleared(api: FakeApi, ask: Client) -> None:
    api.faults.status(500, times=9)
    api.faults.clear()
    assert ask("GET", NODES)[0] == 200


def test_a_held_request_goes_on_when_it_is_let_go(api: FakeApi, ask: Client) -> None:
    let_go = threading.Event()
    api.faults.add(Hold(let_go))
    answers: list[int] = []
    held = threading.Thread(target=lambda: answers.append(ask("GET", NODES)[0]), daemon=True)
    held.start()
    held.join(0.05)
    assert held.is_alive()
    let_go.set()
    held.join()
    assert answers == [200]


def test_a_reset_breaks_the_connection(api: FakeApi, ask: Client) -> None:
    api.faults.add(Reset())
    with pytest.raises(urllib3.exceptions.ProtocolError):
        ask("GET", NODES)


def test_a_watch_is_cut_in_half_a_line(api: FakeApi) -> None:
    api.faults.add(CutWatch(), verb="watch")
    assert raw(api, f"{NODES}?watch=1") == '{"type":"ADDED","object":{"kind":"Resour'


def test_a_watch_gets_an_extra_line(api: FakeApi) -> None:
    api.faults.add(WatchLine(b"hello\n", piece=2), verb="watch")
    assert raw(api, f"{NODES}?watch=1&timeoutSeconds=0") == "hello\n"


def test_fields_of_disabled_gates_are_lost(api: FakeApi, ask: Client) -> None:
    api.drop_fields("spec.devices.*.attributes", "spec.nothing.here")
    status, answer = ask("POST", f"{GROUP}/v1/resourceslices", SLICE)
    assert (status, answer["spec"]["devices"]) == (201, [{"name": "gpu-0"}])


def test_fields_of_every_key_are_lost(api: FakeApi, ask: Client) -> None:
    api.drop_fields("metadata.labels.*")
    body = {**NODE, "metadata": {"name": "node-1", "labels": {"a": "1", "b": "2"}}}
    assert ask("POST", NODES, body)[1]["metadata"]["labels"] == {}


def test_a_wrong_token_is_refused(ask: Client, api: FakeApi) -> None:
    api.accept_tokens("right")
    assert ask("GET", NODES)[0] == 401
    assert ask("GET", NODES, Authorization="Bearer right")[0] == 200


def test_a_defect_of_the_fake_is_shown_at_the_end() -> None:
    api = FakeApi()
    with pytest.raises(ValueError, match="soon"), api:  # noqa: PT012 - the end of the block raises
        client = Client(api)
        with pytest.raises(urllib3.exceptions.ProtocolError):
            client("GET", f"{NODES}?limit=soon")
        client.close()


def test_stopping_ends_open_watches() -> None:
    def read(api: FakeApi) -> None:
        with contextlib.suppress(urllib3.exceptions.HTTPError):  # ended or broken, as it happens
            raw(api, f"{NODES}?watch=1")

    with FakeApi() as api:
        watch = threading.Thread(target=read, args=(api,), daemon=True)
        watch.start()
        while not api.requests:
            watch.join(0.01)
    watch.join(60)
    assert not watch.is_alive()
