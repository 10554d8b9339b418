# SPDX-License-Identifier: Apache-2.0
"""A small cluster with one of everything: whole devices, a shared one, partitions, taints, claims that have devices and one that waits."""

from typing import Any

from dra_driver.model.cluster import ClusterState
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import Chosen, ClusterDevice, devices_of
from tests.e2e import fleet as words
from tests.unit.explain.clusters import state

ANYWHERE = Chosen()
Object = dict[str, Any]


def held(
    name: str,
    *results: Object,
    namespace: str = "ns",
    pods: tuple[str, ...] = (),
    allocated: str = "",
    created: str = "",
    **request: Any,
) -> Object:
    """A claim with these results; keywords go into its only request."""
    made = words.claim(words.request(**request), name=name)
    made["metadata"]["namespace"] = namespace
    if created:
        made["metadata"]["creationTimestamp"] = created
    chosen = [
        {"request": "gpu", "driver": words.GPU, "pool": words.HOME, **result} for result in results
    ]
    allocation: Object = {"devices": {"results": chosen}}
    if allocated:
        allocation["allocationTimestamp"] = allocated
    made["status"] = {
        "allocation": allocation,
        "reservedFor": [{"resource": "pods", "name": one, "uid": one} for one in pods],
    }
    return made


def pod(
    name: str, *, node: str = "", namespace: str = "ns", claim: str = "", **status: Any
) -> Object:
    """A pod; with `claim` one that names it."""
    spec: Object = {"nodeName": node} if node else {}
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}


def gpu_slice(*devices: Object, **more: Any) -> Object:
    """A slice of devices, on the home node."""
    return words.resource_slice(devices, **more)


def shared(name: str = "gpu-0", memory: str = "80Gi", **capacity: Any) -> Object:
    """A device that can be shared; keywords are the policy of its memory."""
    found = words.device(name, allowMultipleAllocations=True)
    found["capacity"] = {"memory": {"value": memory, **capacity}}
    return found


def overview(*objects: Object, **fields: Any) -> Overview:
    """A cluster of these objects."""
    return Overview(cluster(*objects, **fields))


def cluster(*objects: Object, **fields: Any) -> ClusterState:
    """The state of a cluster with a node, a class and these objects."""
    return state(*objects, **fields)


def rows(*objects: Object, chosen: Chosen = ANYWHERE, **fields: Any) -> list[ClusterDevice]:
    """The devices of a cluster of these objects."""
    return list(devices_of(overview(*objects, **fields), chosen).devices)
