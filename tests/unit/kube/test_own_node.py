# SPDX-License-Identifier: Apache-2.0
"""What is read from a Node, whatever it contains, and what is sent. Its meaning for the API server is tested in tests/contract."""

from collections.abc import Iterator

import pytest

from dra_driver.kube import own_node
from dra_driver.kube.base import Conflict, Forbidden
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kube.own_node import HttpOwnNode
from dra_driver.kube.transport import Transport
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.own_node import NodeCondition, OwnNode
from dra_driver.testing.fake_api import FakeApi, refusal

DRIVER, NODE = DriverName("gpu.example.com"), NodeName("node-1")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def node(api: FakeApi) -> Iterator[HttpOwnNode]:
    kube = HttpKubeApi(Connection(api.url), driver=DRIVER, node=NODE)
    yield kube.own_node()
    kube.close()


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"metadata": {"labels": None, "managedFields": None}, "spec": None, "status": None},
        {
            "metadata": {"labels": [], "managedFields": [1, {}]},
            "spec": {"taints": {}},
            "status": {"conditions": ["x", {}]},
        },
    ],
)
def test_a_node_of_an_odd_form_is_read_as_far_as_it_goes(
    api: FakeApi, node: HttpOwnNode, odd: dict[str, object]
) -> None:
    metadata = {"name": NODE, **odd.get("metadata", {})}  # type: ignore[dict-item]
    api.put("nodes", {**odd, "metadata": metadata})
    uid = api.object("nodes", NODE)["metadata"]["uid"]
    assert node.read() == OwnNode(uid)


def test_only_what_this_driver_applied_is_its_own(api: FakeApi, node: HttpOwnNode) -> None:
    def entry(manager: str, operation: str, *labels: str) -> dict[str, object]:
        fields = {"f:metadata": {"f:labels": {".": {}, **{f"f:{name}": {} for name in labels}}}}
        return {"manager": manager, "operation": operation, "fieldsV1": fields}

    api.put(
        "nodes",
        {
            "metadata": {
                "name": NODE,
                "labels": {"a": "1", "b": "2", "c": "3"},
                "managedFields": [
                    entry(DRIVER, "Apply", "a"),
                    entry(DRIVER, "Update", "b"),
                    entry("other", "Apply", "c"),
                ],
            },
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        },
    )
    found = node.read()
    assert (found.owned, found.taints) == ({"a"}, {"k"})


def test_a_condition_without_times_is_read(api: FakeApi, node: HttpOwnNode) -> None:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "DevicesReady", "status": "Unknown", "reason": "NodeStatusUnknown"},
    ]
    api.put("nodes", {"metadata": {"name": NODE}, "status": {"conditions": conditions}})
    assert node.read().condition == NodeCondition(False, "NodeStatusUnknown", "")


def test_a_missing_right_is_named(api: FakeApi, node: HttpOwnNode) -> None:
    api.put("nodes", {"metadata": {"name": NODE}})
    api.faults.add(refusal(403), verb="patch", resource="nodes")
    with pytest.raises(Forbidden, match="allow verb 'patch' on resource 'nodes'"):
        node.apply_labels({"a": "1"}, node.read().uid)
    api.faults.add(refusal(403), verb="patch", resource="nodes/status")
    with pytest.raises(Forbidden, match="allow verb 'patch' on resource 'nodes/status'"):
        node.apply_condition(None, node.read().uid)


def test_a_taint_that_is_added_meanwhile_is_not_lost(
    api: FakeApi, node: HttpOwnNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patch has the whole list of taints, so it must not be carried out on another one."""
    api.put("nodes", {"metadata": {"name": NODE}, "spec": {"taints": [{"key": "startup"}]}})
    read = own_node.read_node

    def read_and_change(transport: Transport, name: NodeName) -> object:
        found = read(transport, name)
        taints = [{"key": "startup"}, {"key": "new"}]
        api.put("nodes", {"metadata": {"name": NODE}, "spec": {"taints": taints}})
        return found

    monkeypatch.setattr(own_node, "read_node", read_and_change)
    with pytest.raises(Conflict):
        node.remove_taint("startup")
    assert [one["key"] for one in api.object("nodes", NODE)["spec"]["taints"]] == ["startup", "new"]
