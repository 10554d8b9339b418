# SPDX-License-Identifier: Apache-2.0
"""Why did an allocation stop? Either nothing else makes sense for the pod, or only this node is out."""

from dra_driver.errors import Permanent


class AllocationError(Permanent):
    """The claims or what they refer to are at fault: the scheduler gives the pod up, on all nodes."""


class TooManyAsked(AllocationError):
    """A claim wants more devices (at least `needed`) than a claim can hold."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class PoolUnusable(AllocationError):
    """A request for all devices cannot be answered: a pool is incomplete or invalid."""


class ConstraintBroken(AllocationError):
    """A device that a request for all of them has to get does not meet a constraint."""


class NodeAllocationError(Permanent):
    """This node is out; others may do."""


class AllocationCancelled(AllocationError):
    """The caller wanted the answer no longer."""
