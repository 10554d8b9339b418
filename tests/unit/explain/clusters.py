# SPDX-License-Identifier: Apache-2.0
"""Clusters for tests of explanations, in the words of the end-to-end fleet."""

from collections.abc import Iterable
from typing import Any

import msgspec

from dra_driver.explain.claim_request import ClaimRequest, requests_in
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.reasons import RequestExplained
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words

FIELDS = {
    "Node": "nodes",
    "ResourceSlice": "resourceSlices",
    "DeviceClass": "deviceClasses",
    "ResourceClaim": "resourceClaims",
}


def state(*objects: dict[str, Any], gates: Iterable[str] = (), **fields: Any) -> ClusterState:
    """A cluster of 1.37 with a node, a class, these objects, and gates switched on."""
    whole: dict[str, Any] = {"kubernetesVersion": "v1.37.1", **fields}
    whole["featureGates"] = {**whole.get("featureGates", {}), **dict.fromkeys(gates, True)}
    for thing in (words.node(words.HOME), words.device_class(), *objects):
        whole.setdefault(FIELDS[thing["kind"]], []).append(_stored(thing))
    return msgspec.convert(whole, ClusterState)


def claim(*requests: dict[str, Any], **devices: Any) -> ResourceClaim:
    """A claim of these requests, complete."""
    made = _stored(words.claim(*requests, **devices))
    made["metadata"]["namespace"] = "ns"
    return msgspec.convert(made, ResourceClaim)


def _stored(thing: dict[str, Any]) -> dict[str, Any]:
    """The object as an API server keeps it, or a kubelet fills it in."""
    if thing["kind"] == "Node":
        return {"status": {"allocatable": {"cpu": "8", "pods": "9"}}, **thing}
    if thing["kind"] == "ResourceClaim":
        for request in thing["spec"]["devices"]["requests"]:
            for body in (request.get("exactly"), *request.get("firstAvailable", ())):
                if body:
                    body.setdefault("allocationMode", "ExactCount")
                    body.setdefault("count", 1)
    return thing


def holder(device: str, name: str = "holder", **result: Any) -> dict[str, Any]:
    """A claim that has a device."""
    made = words.claim(name=name)
    made["metadata"]["namespace"] = "ns"
    chosen = {"request": "gpu", "driver": words.GPU, "pool": words.HOME, "device": device, **result}
    made["status"] = {"allocation": {"devices": {"results": [chosen]}}}
    return made


def explained(cluster: ClusterState, wanted: ResourceClaim) -> tuple[RequestExplained, Fleet]:
    """The first request of a claim before a cluster."""
    fleet = Fleet(cluster)
    asked: ClaimRequest = next(requests_in(wanted))
    return RequestExplained(fleet, asked, DeviceNodes(cluster.nodes)), fleet
