# SPDX-License-Identifier: Apache-2.0
"""What every API server does with the labels, the condition and the taints that a driver writes on its Node."""

import pytest

from dra_driver.kube.base import Conflict, Invalid, NodeApi, NotFound
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.ids import NodeName
from dra_driver.model.own_node import NodeCondition
from tests.contract.conftest import ApiServer, Object

ONE, TWO, THEIRS = "example.com/one", "example.com/two", "example.com/theirs"
READY = NodeCondition(
    True, "Published", "8 devices", "2026-01-02T03:04:05Z", "2026-01-02T03:09:05Z"
)


@pytest.fixture
def node(server: ApiServer) -> NodeApi:
    return server.kube.own_node()


def stored(server: ApiServer) -> Object:
    status, answer = server.call("GET", f"/api/v1/nodes/{server.node}")
    assert status == 200
    return answer


def replaced(server: ApiServer, **changes: object) -> None:
    """Somebody else writes labels, or the spec, of the Node."""

    def change(found: Object) -> None:
        if "labels" in changes:
            found["metadata"]["labels"] = changes["labels"]
        found["spec"] = {**found.get("spec", {}), "taints": changes.get("taints", [])}

    server.changed(f"/api/v1/nodes/{server.node}", change)


def test_labels_are_read_as_they_were_applied(server: ApiServer, node: NodeApi) -> None:
    replaced(server, labels={THEIRS: "x"})
    node.apply_labels({ONE: "1", TWO: ""}, node.read().uid)
    found = node.read()
    assert found.labels == {ONE: "1", TWO: "", THEIRS: "x"}
    assert found.owned == {ONE, TWO}


def test_a_label_that_is_not_applied_again_goes_and_those_of_others_stay(
    server: ApiServer, node: NodeApi
) -> None:
    replaced(server, labels={THEIRS: "x"})
    uid = node.read().uid
    node.apply_labels({ONE: "1", TWO: "2"}, uid)
    node.apply_labels({TWO: "3"}, uid)
    assert node.read().labels == {TWO: "3", THEIRS: "x"}
    node.apply_labels({}, uid)
    assert (node.read().labels, node.read().owned) == ({THEIRS: "x"}, frozenset())


def test_the_same_labels_again_keep_the_version(server: ApiServer, node: NodeApi) -> None:
    uid = node.read().uid
    node.apply_labels({ONE: "1"}, uid)
    first = stored(server)["metadata"]["resourceVersion"]
    node.apply_labels({ONE: "1"}, uid)
    assert stored(server)["metadata"]["resourceVersion"] == first


def test_a_label_that_somebody_else_wrote_is_not_taken(server: ApiServer, node: NodeApi) -> None:
    replaced(server, labels={THEIRS: "x"})
    uid = node.read().uid
    with pytest.raises(Conflict, match="theirs"):
        node.apply_labels({THEIRS: "y"}, uid)
    # With the same value it belongs to both, and stays when the driver drops it.
    node.apply_labels({THEIRS: "x"}, uid)
    assert node.read().owned == {THEIRS}
    node.apply_labels({}, uid)
    assert node.read().labels == {THEIRS: "x"}


def test_a_label_that_somebody_else_changes_is_theirs_from_then_on(
    server: ApiServer, node: NodeApi
) -> None:
    uid = node.read().uid
    node.apply_labels({ONE: "1"}, uid)
    replaced(server, labels={ONE: "theirs"})
    assert node.read().owned == frozenset()
    with pytest.raises(Conflict):
        node.apply_labels({ONE: "1"}, uid)
    replaced(server, labels={})
    node.apply_labels({ONE: "1"}, uid)
    assert node.read().labels == {ONE: "1"}


def test_a_condition_is_read_as_it_was_applied_and_others_stay(
    server: ApiServer, node: NodeApi
) -> None:
    theirs = {"type": "Theirs", "status": "False", "reason": "R", "message": ""}

    def change(found: Object) -> None:
        found["status"] = {**found.get("status", {}), "conditions": [theirs]}

    server.changed(f"/api/v1/nodes/{server.node}", change, "/status")
    uid = node.read().uid
    node.apply_labels({ONE: "1"}, uid)
    node.apply_condition(READY, uid)
    assert (node.read().condition, node.read().labels) == (READY, {ONE: "1"})
    types = [one["type"] for one in stored(server)["status"]["conditions"]]
    assert sorted(types) == ["DevicesReady", "Theirs"]
    not_ready = NodeCondition(False, "NoDevices", "none", READY.since, READY.seen)
    node.apply_condition(not_ready, uid)
    assert node.read().condition == not_ready
    node.apply_condition(None, uid)
    assert node.read().condition is None
    assert [one["type"] for one in stored(server)["status"]["conditions"]] == ["Theirs"]
    assert node.read().owned == {ONE}


def test_one_taint_goes_and_the_others_stay(server: ApiServer, node: NodeApi) -> None:
    startup = {"key": "example.com/startup", "value": "x", "effect": "NoSchedule"}
    other = {"key": "example.com/other", "effect": "NoSchedule"}
    replaced(server, taints=[startup, other, {**startup, "effect": "PreferNoSchedule"}])
    assert {"example.com/startup", "example.com/other"} <= node.read().taints
    assert node.remove_taint("example.com/startup")
    assert "example.com/startup" not in node.read().taints
    assert "example.com/other" in node.read().taints
    version = stored(server)["metadata"]["resourceVersion"]
    assert not node.remove_taint("example.com/startup")
    assert stored(server)["metadata"]["resourceVersion"] == version


def test_a_node_that_was_made_anew_is_not_written(node: NodeApi) -> None:
    for write in (
        lambda: node.apply_labels({ONE: "1"}, "another"),
        lambda: node.apply_condition(READY, "another"),
    ):
        with pytest.raises((Invalid, Conflict)):
            write()
    assert (node.read().labels, node.read().condition) == ({}, None)


def test_a_node_that_is_gone_is_not_made(server: ApiServer) -> None:
    gone = HttpKubeApi(
        server.connection, driver=server.driver, node=NodeName(f"{server.node}-gone")
    )
    for call in (
        gone.own_node().read,
        lambda: gone.own_node().apply_labels({ONE: "1"}, "uid"),
        lambda: gone.own_node().remove_taint("x"),
    ):
        with pytest.raises((NotFound, Conflict)):
            call()
    gone.close()
