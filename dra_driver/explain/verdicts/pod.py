# SPDX-License-Identifier: Apache-2.0
"""What else keeps a pod pending whose devices fit?"""

import re

from dra_driver.explain.verdicts.base import Case

NAMED_NODE = (
    "the pod never gets devices, because the scheduler does not see a pod with spec.nodeName"
)
"""The condition of a pod that names its node itself, with claims without devices. The message is the node, as in the next three."""
NAMED_UNFIT = f"{NAMED_NODE}, and they do not fit on that node"
NAMED_IN_VAIN = "the kubelet cannot start the pod, because the devices of its claims cannot be used on the node in spec.nodeName"
NO_SUCH_NODE = "nobody starts the pod, because there is no node of the name in spec.nodeName"
NAMED_REFUSED = "the kubelet cannot start the pod on the node in spec.nodeName"
"""The message says which claim the kubelet refuses."""
STARTS_WITHOUT = "the kubelet starts the pod without what the node in spec.nodeName does not offer"
"""The message names the extended resources."""
LISTS_NONE = "the kubelet refuses the pod, because the node in spec.nodeName lists 0 of what the pod asks for"
"""The message names the extended resources."""
_UNFIT = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/",
)
"""Taints that begin so: Kubernetes or the cloud's controller found a fault, or the node starts; an autoscaler or the cloud takes it away."""
_STARTING = "agent-not-ready"
"""A taint whose key ends so: what pods need of a network or of storage does not run yet on the node, which starts."""


class NodeSelectorMismatch(Case, frozen=True):
    """The pod's node selector, node affinity or node name excludes the node."""

    part: str

    @property
    def is_node_name(self) -> bool:
        """Whether the pod names another node itself; its selector and affinity do not matter then."""
        return self.part.startswith("nodeName ")

    def __str__(self) -> str:
        return f"the pod's {self.part} excludes the node"


class NodeTainted(Case, frozen=True):
    """The node has a taint that the pod does not tolerate."""

    taint: str

    @property
    def is_unfit(self) -> bool:
        """Whether the node is ill, starts or goes away, as the taint says. Nobody should tolerate that: the pod would fail or be ended there."""
        key = re.split("[=:]", self.taint, maxsplit=1)[0]
        return key.startswith(_UNFIT) or key.endswith(_STARTING)

    @property
    def ends_pods(self) -> bool:
        """Whether the taint also ends pods that run on the node. Then somebody wants the node without them."""
        return self.taint.endswith(":NoExecute")

    def __str__(self) -> str:
        return f"the node has taint {self.taint}"


class NodeUnschedulable(Case, frozen=True):
    """The node is cordoned."""

    def __str__(self) -> str:
        return "the node is cordoned"


class NodeResources(Case, frozen=True):
    """The node has too little of a resource left.

    For several nodes, `least` is the smallest free amount and `free` the largest.
    """

    resource: str
    needed: str
    free: str
    least: str = ""

    def __str__(self) -> str:
        free = f"{self.least} to {self.free}" if self.least else self.free
        return f"{self.resource}: {self.needed} needed, {free} free"


class SchedulingGated(Case, frozen=True):
    """The pod has scheduling gates."""

    gates: tuple[str, ...]

    def __str__(self) -> str:
        return f"the pod has scheduling gates {', '.join(self.gates)}"


class OtherCondition(Case, frozen=True):
    """The scheduler's own condition of the pod, if no other verdict explains why the pod is pending."""

    condition: str
    message: str

    def __str__(self) -> str:
        return f"{self.condition}: {self.message}" if self.message else self.condition
