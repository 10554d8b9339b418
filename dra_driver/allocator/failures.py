# SPDX-License-Identifier: Apache-2.0
"""Which errors end an allocation: for the whole pod, or only for one node?"""

from dra_driver.errors import Permanent


class AllocationError(Permanent):
    """The claims, or objects that they refer to, are wrong. The scheduler stops the pod on all nodes."""


class ResultMaxSizeExceeded(AllocationError):
    """A claim needs more devices (at least `needed`) than one claim may have."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class PoolUnusable(AllocationError):
    """A request has allocationMode All, and a pool of the node is incomplete or invalid."""


class ConstraintViolated(AllocationError):
    """A request has allocationMode All, and one of its devices violates a constraint of the claim."""


class NodeAllocationError(Permanent):
    """The pools of this node are invalid. The scheduler skips the node and tries the other nodes."""


class AllocationCancelled(AllocationError):
    """The caller cancelled the search. There is no result for the claims."""

    def __init__(self) -> None:
        super().__init__("filter operation aborted: context canceled")
