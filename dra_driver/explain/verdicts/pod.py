# SPDX-License-Identifier: Apache-2.0
"""What else keeps a pod pending whose devices fit?"""

from dra_driver.explain.verdicts.base import Case

_UNFIT = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/",
)
"""Taints that begin so: Kubernetes or the cloud's controller found a fault, or the node starts; an autoscaler or the cloud takes it away."""


class NodeSelectorMismatch(Case, frozen=True):
    """The pod's node selector, node affinity or node name excludes the node."""

    part: str

    def __str__(self) -> str:
        return f"the pod's {self.part} excludes the node"


class NodeTainted(Case, frozen=True):
    """The node has a taint that the pod does not tolerate."""

    taint: str

    @property
    def is_unfit(self) -> bool:
        """Whether the node is ill, or goes away, as the taint says. Nobody should tolerate that: the pod would fail or be ended there."""
        return self.taint.startswith(_UNFIT) or self.taint.endswith(":NoExecute")

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
