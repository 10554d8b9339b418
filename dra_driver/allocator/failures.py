# SPDX-License-Identifier: Apache-2.0
"""Why did an allocation stop? Either nothing else makes sense for the pod, or only this node is out."""

from dra_driver.errors import Permanent


class AllocationError(Permanent):
    """The claims or what they refer to are at fault: the scheduler gives the pod up, on all nodes."""


class NodeAllocationError(Permanent):
    """This node is out; others may do."""


class AllocationCancelled(AllocationError):
    """The caller wanted the answer no longer."""
