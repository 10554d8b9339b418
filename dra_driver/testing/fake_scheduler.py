# SPDX-License-Identifier: Apache-2.0
"""What happens to a pod with claims between its creation and the kubelet? A stand-in over HTTP, for demo and tests.

It plays three parts of a control plane, each when called and never by itself: the claim controller (templates become
claims that belong to their pod), the scheduler (claims are allocated and reserved, the pod is bound or told why not), and
the garbage collector (claims of pods that are gone are released). Which devices a claim gets is decided by `first_fit`.

Unlike the real ones it sets no finalizer, looks at no other resource than devices, and runs no preemption.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dra_driver.testing.first_fit import FirstFit, Object, Unsatisfied, candidates, holders
from dra_driver.testing.plain_client import PlainClient

CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod is bound."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The pod stays pending; `reason` has one line for each device of each node."""

    pod: str
    reason: str


class FakeScheduler:
    """A scheduler that works through all pending pods when it is asked to."""

    def __init__(self, client: PlainClient) -> None:
        self._client = client

    def schedule(self) -> tuple[Placed | Unschedulable, ...]:
        """Try every pod without a node once, in the order of their names."""
        return tuple(self._place(pod) for pod in self._client.list("pods") if _is_pending(pod))

    def collect(self) -> None:
        """Release the claims of pods that are gone; claims made from templates are deleted with their pod."""
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
        reasons: list[str] = []
        for node in self._client.list("nodes"):
            node_name = node["metadata"]["name"]
            allocated = self._allocate(present, node_name)
            if not isinstance(allocated, Unsatisfied):
                self._bind(pod, allocated, node_name)
                return Placed(name, node_name)
            reasons.append(f"node {node_name}: {allocated}")
        return self._leave(pod, name, "\n".join(reasons) or "the cluster has no nodes")

    def _claims_of(self, pod: Object) -> tuple[Object, dict[str, Object | None]]:
        """The pod, its status naming the claims made for it, and its claims by name; None for one that is missing."""
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

    def _allocate(self, claims: list[Object], node: str) -> list[Object] | Unsatisfied:
        """The claims with an allocation on this node, nothing written yet."""
        classes = {found["metadata"]["name"]: found for found in self._client.list("deviceclasses")}
        first_fit = FirstFit(
            classes,
            candidates(self._client.list("resourceslices"), node),
            holders(self._client.list("resourceclaims")),
        )
        allocated: list[Object] = []
        for claim in claims:
            status = claim.get("status", {})
            if status.get("allocation"):
                if not _reaches(status["allocation"], node):
                    return Unsatisfied(
                        f"claim {claim['metadata']['name']} is allocated on another node"
                    )
                allocated.append(claim)
                continue
            answer = first_fit.allocate(claim)
            if isinstance(answer, Unsatisfied):
                return Unsatisfied(
                    f"claim {claim['metadata']['name']}, {answer.request}",
                    answer.devices,
                    answer.selectors,
                )
            allocation = {**answer, "nodeSelector": _only(node)}
            allocated.append({**claim, "status": {**status, "allocation": allocation}})
        return allocated

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


def _only(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _reaches(allocation: Object, node: str) -> bool:
    return any(node in values for values in _node_names(allocation))


def _node_names(allocation: Object) -> Iterator[list[str]]:
    for term in allocation.get("nodeSelector", {}).get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            yield field["values"]
