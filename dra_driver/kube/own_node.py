# SPDX-License-Identifier: Apache-2.0
"""How does the driver change its own Node? Labels and its condition by server-side apply, the startup taint by a patch.

With an apply the API server keeps in mind what this field manager wrote, and removes what it does not write any more. It is not forced:
if somebody else wrote a label, their value stays, and the answer is a Conflict. Labels and condition are different requests, and the
API server keeps them apart, because the condition is written by the path of the status.

The list of taints has no owners, so the patch names the version that was read: a taint that somebody else adds meanwhile is not lost.
Each request has the UID of the Node. So no Node is made by it, and none is written that was deleted and made again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.kube.failures import ApiCall
from dra_driver.kube.node_facts import node_path, part, read_node
from dra_driver.kube.transport import APPLY, MERGE, Exchange, Transport
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.names import DEVICES_READY_CONDITION
from dra_driver.model.own_node import NodeCondition, OwnNode

_FIELD = "f:"


class HttpOwnNode:
    """`NodeApi` over HTTP. The field manager is the name of the driver."""

    def __init__(self, transport: Transport, driver: DriverName, node: NodeName) -> None:
        self._transport = transport
        self._driver = driver
        self._node = node

    def read(self) -> OwnNode:
        found = read_node(self._transport, self._node)
        metadata = part(found, "metadata")
        return OwnNode(
            uid=str(metadata.get("uid") or ""),
            labels={key: str(value) for key, value in part(metadata, "labels").items()},
            owned=frozenset(_owned(metadata, self._driver)),
            taints=frozenset(str(taint.get("key")) for taint in _taints(found)),
            condition=_condition(part(found, "status")),
        )

    def apply_labels(self, labels: Mapping[str, str], uid: str) -> None:
        self._apply("", {"metadata": self._metadata(uid) | {"labels": dict(labels)}})

    def apply_condition(self, condition: NodeCondition | None, uid: str) -> None:
        entries = [] if condition is None else [_written(condition)]
        body = {"metadata": self._metadata(uid), "status": {"conditions": entries}}
        self._apply("/status", body)

    def remove_taint(self, key: str) -> bool:
        found = read_node(self._transport, self._node)
        present = list(_taints(found))
        kept = [taint for taint in present if taint.get("key") != key]
        if kept == present:
            return False
        metadata = part(found, "metadata")
        version = {name: metadata.get(name) for name in ("uid", "resourceVersion")}
        self._transport.request(
            Exchange(
                ApiCall("patch", "nodes", self._node),
                "PATCH",
                node_path(self._node),
                {"fieldManager": self._driver},
                body={"metadata": version, "spec": {"taints": kept}},
                content_type=MERGE,
            )
        )
        return True

    def _apply(self, subresource: str, body: Mapping[str, Any]) -> None:
        self._transport.request(
            Exchange(
                ApiCall("patch", f"nodes{subresource}", self._node),
                "PATCH",
                node_path(self._node) + subresource,
                {"fieldManager": self._driver},
                body={"apiVersion": "v1", "kind": "Node", **body},
                content_type=APPLY,
            )
        )

    def _metadata(self, uid: str) -> dict[str, Any]:
        return {"name": self._node, "uid": uid}


def _written(condition: NodeCondition) -> Mapping[str, str]:
    return {
        "type": DEVICES_READY_CONDITION,
        "status": "True" if condition.is_true else "False",
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.since,
        "lastHeartbeatTime": condition.seen,
    }


def _condition(status: Mapping[str, Any]) -> NodeCondition | None:
    for found in _mappings(status.get("conditions")):
        if found.get("type") == DEVICES_READY_CONDITION:
            reason, message, since, seen = (
                str(found.get(name) or "")
                for name in ("reason", "message", "lastTransitionTime", "lastHeartbeatTime")
            )
            return NodeCondition(found.get("status") == "True", reason, message, since, seen)
    return None


def _owned(metadata: Mapping[str, Any], manager: str) -> Iterator[str]:
    """The labels that this field manager applied."""
    for entry in _mappings(metadata.get("managedFields")):
        if (entry.get("manager"), entry.get("operation")) == (manager, "Apply"):
            labels = part(part(part(entry, "fieldsV1"), "f:metadata"), "f:labels")
            yield from (name.removeprefix(_FIELD) for name in labels if name.startswith(_FIELD))


def _taints(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return _mappings(part(node, "spec").get("taints"))


def _mappings(found: object) -> Iterator[Mapping[str, Any]]:
    listed = found if isinstance(found, list) else []
    return (entry for entry in listed if isinstance(entry, Mapping))
