# SPDX-License-Identifier: Apache-2.0
"""A fake control plane for pods with claims, over HTTP, for the demo and tests.

It has three parts of a control plane, which act only when they are called. The resource claim controller creates claims from
templates. The scheduler allocates and reserves claims, and binds the pod or reports why it cannot. The garbage collector deallocates
the claims of deleted pods. `dra_driver.allocator` selects the devices, as the real scheduler does.

Unlike a real control plane, this one sets no finalizer, checks only devices and no other resource, and has no preemption.
"""

import uuid
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.allocated_devices import AllocatedDevices
from dra_driver.allocator.failures import AllocationError, NodeAllocationError
from dra_driver.kube.wire.objects import load
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.testing.plain_client import Object, PlainClient

CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


class Placed(Struct, frozen=True):
    """The pod is bound."""

    pod: str
    node: str


class Unschedulable(Struct, frozen=True):
    """The pod stays pending; `reason` is the scheduler's message."""

    pod: str
    reason: str


class FakeScheduler:
    """A scheduler that tries all pending pods once when `schedule` is called."""

    def __init__(self, client: PlainClient) -> None:
        self._client = client

    def schedule(self) -> tuple[Placed | Unschedulable, ...]:
        """Try every pod without a node once, in the order of their names."""
        return tuple(self._place(pod) for pod in self._client.list("pods") if _is_pending(pod))

    def collect(self) -> None:
        """Deallocate the claims of deleted pods; delete a claim that was created from a template for such a pod."""
        living = {pod["metadata"]["uid"] for pod in self._client.list("pods")}
        for claim in self._client.list("resourceclaims"):
            owners = [owner["uid"] for owner in claim["metadata"].get("ownerReferences", ())]
            if owners and not living.intersection(owners):
                self._client.delete(claim)
                continue
            status = claim.get("status", {})
            reserved = [user for user in status.get("reservedFor", ()) if user["uid"] in living]
            if reserved != status.get("reservedFor", []):
                kept = {**status, "reservedFor": reserved} if reserved else {}
                self._client.replace_status({**claim, "status": kept})

    def _place(self, pod: Object) -> Placed | Unschedulable:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        pod, claims = self._claims_of(pod)
        missing = sorted(claim for claim, found in claims.items() if found is None)
        if missing:
            return self._leave(pod, name, f"ResourceClaims not found: {', '.join(missing)}")
        present = [claim for claim in claims.values() if claim is not None]
        try:
            return self._place_with(pod, name, present)
        except AllocationError as error:
            return self._leave(pod, name, str(error))

    def _place_with(self, pod: Object, name: str, claims: list[Object]) -> Placed | Unschedulable:
        """Bind the pod to the first node on which its claims can be allocated. Raises AllocationError."""
        allocator = self._allocator()
        nodes = self._client.list("nodes")
        refusals: list[str] = []
        for node in nodes:
            allocated = _allocated(allocator, claims, node)
            if not isinstance(allocated, str):
                self._bind(pod, allocated, node["metadata"]["name"])
                return Placed(name, node["metadata"]["name"])
            refusals.append(allocated)
        counts = ", ".join(
            f"{refusals.count(refusal)} {refusal}" for refusal in dict.fromkeys(refusals)
        )
        said = f": {counts}" if counts else ""
        return self._leave(pod, name, f"0/{len(nodes)} nodes are available{said}.")

    def _allocator(self) -> Allocator:
        """Return an allocator for the present state of the cluster."""
        classes = [load(DeviceClass, found) for found in self._client.list("deviceclasses")]
        claims = [load(ResourceClaim, found) for found in self._client.list("resourceclaims")]
        return Allocator(
            [load(ResourceSlice, found) for found in self._client.list("resourceslices")],
            classes,
            AllocatedDevices.of(claims, consumable_capacity=True).state(),
            new_share_id=lambda: str(uuid.uuid4()),
        )

    def _claims_of(self, pod: Object) -> tuple[Object, dict[str, Object | None]]:
        """Return the pod with the claims from templates in its status, and its claims by name.

        A claim that does not exist is None.
        """
        namespace = pod["metadata"]["namespace"]
        statuses = list(pod.get("status", {}).get("resourceClaimStatuses", ()))
        made = {status["name"]: status["resourceClaimName"] for status in statuses}
        claims: dict[str, Object | None] = {}
        for entry in pod["spec"].get("resourceClaims", ()):
            name = entry.get("resourceClaimName") or made.get(entry["name"], "")
            if not name:
                template_name = entry["resourceClaimTemplateName"]
                template = self._client.get(
                    "resourceclaimtemplates", template_name, namespace=namespace
                )
                if template is None:
                    claims[f"template {template_name}"] = None
                    continue
                claim = self._client.create(_from_template(template, pod, entry["name"]))
                name = claim["metadata"]["name"]
                statuses.append({"name": entry["name"], "resourceClaimName": name})
            claims[name] = self._client.get("resourceclaims", name, namespace=namespace)
        if len(statuses) > len(made):
            status = {**pod.get("status", {}), "resourceClaimStatuses": statuses}
            pod = self._client.replace_status({**pod, "status": status})
        return pod, claims

    def _bind(self, pod: Object, claims: list[Object], node: str) -> None:
        user = {
            "resource": "pods",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        for claim in claims:
            status = claim["status"]
            reserved = [*status.get("reservedFor", ()), user]
            self._client.replace_status({**claim, "status": {**status, "reservedFor": reserved}})
        self._client.bind(pod, node)

    def _leave(self, pod: Object, name: str, reason: str) -> Unschedulable:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": reason,
        }
        status = {**pod.get("status", {}), "phase": "Pending", "conditions": [condition]}
        self._client.replace_status({**pod, "status": status})
        return Unschedulable(name, reason)


def _is_pending(pod: Object) -> bool:
    return not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")


def _from_template(template: Object, pod: Object, claim_name: str) -> Object:
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    wanted = template["spec"].get("metadata", {})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            **wanted,
            "generateName": f"{pod['metadata']['name']}-{claim_name}-",
            "namespace": pod["metadata"]["namespace"],
            "annotations": {**wanted.get("annotations", {}), CLAIM_NAME_ANNOTATION: claim_name},
            "ownerReferences": [owner],
        },
        "spec": template["spec"]["spec"],
    }


def _allocated(allocator: Allocator, claims: list[Object], node: Object) -> list[Object] | str:
    """Return the claims with an allocation on this node, or the reason why they cannot be allocated. Writes nothing. Raises AllocationError."""
    name = node["metadata"]["name"]
    given = [claim for claim in claims if _allocation(claim)]
    if not all(_reaches(_allocation(claim), name) for claim in given):
        return "resourceclaim not available on the node"
    wanted = [claim for claim in claims if not _allocation(claim)]
    try:
        results = allocator.allocate(load(Node, node), [load(ResourceClaim, one) for one in wanted])
    except NodeAllocationError as error:
        return str(error)
    if results is None:
        return "cannot allocate all claims"
    filled = [
        {**claim, "status": {**claim.get("status", {}), "allocation": msgspec.to_builtins(result)}}
        for claim, result in zip(wanted, results, strict=True)
    ]
    return given + filled


def _allocation(claim: Object) -> Object:
    found: Object = claim.get("status", {}).get("allocation") or {}
    return found


def results(claim: Object) -> list[Object]:
    """Return `status.allocation.devices.results`; empty if the claim is not allocated."""
    found: list[Object] = _allocation(claim).get("devices", {}).get("results", [])
    return found


def _reaches(allocation: Object, node: str) -> bool:
    """Return whether the node can use the allocation; without a node selector each node can."""
    return not allocation.get("nodeSelector") or any(
        node in values for values in _node_names(allocation)
    )


def _node_names(allocation: Object) -> Iterator[list[str]]:
    for term in allocation.get("nodeSelector", {}).get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            yield field["values"]
