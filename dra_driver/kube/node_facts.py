# SPDX-License-Identifier: Apache-2.0
"""What the Node object of this node says: its UID, the kubelet's version, its labels, its capacity.

The UID is kept until somebody asks to forget it. Version and labels come from one request and count for a minute: a kubelet can be
updated in place, and an admin changes labels.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from threading import Lock
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from dra_driver.errors import DriverError
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.model.ids import NodeName

NODE_SECONDS = 60.0


class NodeFacts:
    """The Node of this name; safe to use from several threads."""

    def __init__(self, transport: Transport, node: NodeName, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._node = node
        self._clock = clock
        self._lock = Lock()
        self._uid = ""
        self._version = ""
        # One value, so that no thread sees labels of one answer with the time of another.
        self._labels: tuple[Mapping[str, str], float] = MappingProxyType({}), -inf

    def uid(self) -> str:
        """Its UID, read once. Raises DriverError."""
        with self._lock:
            if not self._uid:
                self._uid = str(part(self._read(), "metadata").get("uid") or "")
            return self._uid

    def forget_uid(self) -> None:
        """Somebody may have created the Node again: read its UID when it is needed next."""
        with self._lock:
            self._uid = ""

    def kubelet_version(self) -> str:
        """The version; the last known one if it cannot be read now, else empty."""
        with suppress(DriverError):  # the next call tries again
            self.labels()
        return self._version

    def labels(self) -> Mapping[str, str]:
        """Its labels, at most a minute old. Raises DriverError if they cannot be read."""
        labels, until = self._labels
        now = self._clock()
        if now < until:
            return labels
        found = self._read()
        self._version = str(part(part(found, "status"), "nodeInfo").get("kubeletVersion") or "")
        said = part(part(found, "metadata"), "labels")
        labels = {key: one for key, one in said.items() if isinstance(one, str)}
        # A Node without a version is new: its kubelet writes the rest in a moment.
        until = now + NODE_SECONDS if self._version else -inf
        self._labels = MappingProxyType(labels), until
        return self._labels[0]

    def amounts(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Its capacity and what of it is allocatable, as they are now. Raises DriverError."""
        status = part(self._read(), "status")
        return part(status, "capacity"), part(status, "allocatable")

    def _read(self) -> Mapping[str, Any]:
        return read_node(self._transport, self._node)


def node_path(node: NodeName) -> str:
    """The path of the Node object."""
    return f"/api/v1/nodes/{quote(node, safe='')}"


def read_node(transport: Transport, node: NodeName) -> Mapping[str, Any]:
    """The Node object. Raises DriverError."""
    call = ApiCall("get", "nodes", node)
    return transport.request(Exchange(call, "GET", node_path(node)))


def part(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping at this key; empty if there is something else."""
    found = obj.get(key)
    return found if isinstance(found, Mapping) else {}
