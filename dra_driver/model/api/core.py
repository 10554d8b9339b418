# SPDX-License-Identifier: Apache-2.0
"""The parts of core/v1 that matter for scheduling with devices: nodes, node selectors, pods, namespaces."""

from collections.abc import Sequence

import msgspec

from dra_driver.model.api.meta import ApiValue, Condition, ObjectMeta, QuantityText, learn


class NodeSelectorRequirement(ApiValue, frozen=True):
    """`operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(ApiValue, frozen=True):
    """All requirements must be true; a term without requirements matches no node. The only field for `match_fields` is metadata.name."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(ApiValue, frozen=True):
    """At least one of the terms must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class Taint(ApiValue, frozen=True):
    """spec.taints[] of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiValue, frozen=True):
    """spec of a Node."""

    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeInfo(ApiValue, frozen=True):
    """status.nodeInfo."""

    kubelet_version: str = ""


class NodeStatus(ApiValue, frozen=True):
    """status of a Node."""

    capacity: dict[str, QuantityText] | None = None
    allocatable: dict[str, QuantityText] | None = None
    conditions: list[Condition] | None = None
    node_info: NodeInfo | None = None
    declared_features: list[str] | None = None


class Node(ApiValue, frozen=True):
    """A node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Toleration(ApiValue, frozen=True):
    """spec.tolerations[] of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ContainerClaim(ApiValue, frozen=True):
    """resources.claims[] of a container; `request` empty means all requests of the claim."""

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiValue, frozen=True):
    """resources of a container."""

    limits: dict[str, QuantityText] | None = None
    requests: dict[str, QuantityText] | None = None
    claims: list[ContainerClaim] | None = None


class Container(ApiValue, frozen=True):
    """A container or an init container."""

    name: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    restart_policy: str | None = None


class PodResourceClaim(ApiValue, frozen=True):
    """spec.resourceClaims[] of a pod. It names either a claim or a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(ApiValue, frozen=True):
    """status.resourceClaimStatuses[]: which claim was made from the template."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiValue, frozen=True):
    """One extended resource of one container, and the request for it in the claim that the scheduler made."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiValue, frozen=True):
    """status.extendedResourceClaimStatus: the claim that the scheduler made for extended resources."""

    request_mappings: list[ContainerExtendedResourceRequest] | None = None
    resource_claim_name: str = ""


class NodeAffinity(ApiValue, frozen=True):
    """spec.affinity.nodeAffinity without preferences, which never keep a pod pending."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(ApiValue, frozen=True):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None


class SchedulingGate(ApiValue, frozen=True):
    """spec.schedulingGates[]."""

    name: str = ""


class PodSchedulingGroup(ApiValue, frozen=True):
    """spec.schedulingGroup of a pod: the PodGroup that it is of."""

    pod_group_name: str | None = None


class PodSpec(ApiValue, frozen=True):
    """spec of a Pod."""

    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, QuantityText] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    scheduler_name: str = ""


OVER = ("Succeeded", "Failed")
"""The phases of a pod that runs no more, and never again."""


class ContainerStatus(ApiValue, frozen=True):
    """status.containerStatuses[] of a pod: what the kubelet has admitted for a container, and what it has now."""

    name: str = ""
    allocated_resources: dict[str, QuantityText] | None = None
    resources: ResourceRequirements | None = None


class PodStatus(ApiValue, frozen=True):
    """status of a Pod. `allocated_resources` and `resources` are those of the pod as a whole."""

    phase: str = ""
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: dict[str, QuantityText] | None = None
    resources: ResourceRequirements | None = None

    @property
    def of_all_containers(self) -> Sequence[ContainerStatus]:
        """The statuses of all containers, those of the init containers first."""
        return (*(self.init_container_statuses or ()), *(self.container_statuses or ()))


class Pod(ApiValue, frozen=True):
    """A pod."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Namespace(ApiValue, frozen=True):
    """A namespace; one of its labels allows admin access."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


learn(Pod, Node, Namespace)
