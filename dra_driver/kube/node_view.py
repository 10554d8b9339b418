# SPDX-License-Identifier: Apache-2.0
"""What `dra-driver doctor` asks the API server about one node, beside the state of the cluster that `cluster.py` reads."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dra_driver.errors import DriverError
from dra_driver.kube.cluster import read_cluster
from dra_driver.kube.connection import Connection
from dra_driver.kube.decode import Identity
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.lists import Listing
from dra_driver.kube.node_facts import part, read_node
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.kube.wire.objects import Unreadable, load
from dra_driver.model.api.core import Node
from dra_driver.model.api.pod_access import PodAccess
from dra_driver.model.cluster import ClusterState, without_secrets
from dra_driver.model.ids import NodeName
from dra_driver.model.rights import Right

_REVIEWS = "/apis/authorization.k8s.io/v1/{kind}"


class NodeView:
    """One node at one API server. `node` may be empty: then only what concerns the whole cluster can be asked."""

    def __init__(self, connection: Connection, node: NodeName) -> None:
        self._connection = connection
        self._transport = Transport(connection)
        self._node = node

    def cluster(self) -> ClusterState:
        """Return the cluster without secrets. A driver may read its own Node, but not list all: then the cluster has this Node alone."""
        state = without_secrets(read_cluster(self._connection))
        gap = state.unread("nodes")
        if gap is None or not self._node:
            return state
        try:
            own = load(Node, read_node(self._transport, self._node))
        except (DriverError, Unreadable):
            return state
        left = tuple(one for one in state.not_read if one is not gap)
        return without_secrets(msgspec.structs.replace(state, nodes=(own,), not_read=left))

    def runtime_version(self) -> str:
        """Return the node's container runtime and its version, such as "containerd://2.1.0". Raises DriverError."""
        info = part(part(read_node(self._transport, self._node), "status"), "nodeInfo")
        return str(info.get("containerRuntimeVersion") or "")

    def pods(self) -> tuple[tuple[PodAccess, ...], int]:
        """Return the pods of the node, and how many of them could not be read. Raises DriverError."""
        unreadable: list[str] = []

        def tell(_resource: str, who: Identity, _why: str) -> None:
            unreadable.append(who.full_name)

        selector = {"fieldSelector": f"spec.nodeName={self._node}"}
        listing = Listing(self._transport, ApiCall("list", "pods"), "/api/v1/pods", tell, selector)
        found = []
        for item in listing.objects():
            try:
                found.append(load(PodAccess, item.content))
            except Unreadable:
                unreadable.append(item.identity.full_name)
        return tuple(found), len(unreadable)

    def missing_rights(self, rights: Iterable[Right], account: str) -> tuple[Right, ...]:
        """Return the rights that `account` ("system:serviceaccount:…"; empty: whoever asks) does not have. Raises DriverError."""
        return tuple(right for right in rights if not self._may(right, account))

    def _may(self, right: Right, account: str) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": right.namespace,
            "name": right.name,
        }
        kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
        spec: Mapping[str, Any] = {"resourceAttributes": attributes}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {**spec, "user": account, "groups": _groups(account)} if account else spec,
        }
        plural = f"{kind.lower()}s"
        call = ApiCall("create", plural)
        path = _REVIEWS.format(kind=plural)
        answer = self._transport.request(Exchange(call, "POST", path, body=body))
        return part(answer, "status").get("allowed") is True

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()


def _groups(account: str) -> list[str]:
    """Return the groups that the API server gives to a service account."""
    namespace = account.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return [*groups, "system:authenticated"]
