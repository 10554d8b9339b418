# SPDX-License-Identifier: Apache-2.0
"""What else keeps a pod pending whose devices fit?"""

from dra_driver.explain.verdicts.base import Case


class NodeSelectorMismatch(Case, frozen=True):
    """The pod's node selector, node affinity or node name excludes the node."""

    part: str

    def __str__(self) -> str:
        return f"the pod's {self.part} excludes the node"


class NodeTainted(Case, frozen=True):
    """The node has a taint that the pod does not tolerate."""

    taint: str

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
