# SPDX-License-Identifier: Apache-2.0
"""What would the scheduler answer for these claims on one node? The search itself is run; its errors become values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import (
    AllocationCancelled,
    AllocationError,
    NodeAllocationError,
    TooManyDevices,
)
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, ResourceClaim


@dataclass(frozen=True, slots=True)
class TrialResult:
    """`results`, one for each claim, where the claims fit; else `error`. `cancelled`: the search was stopped before it knew.

    `failure` is the type of an error that stops the pod on all nodes. `too_many` is how many devices a claim asks for, if that
    is more than a claim can have.
    """

    results: Sequence[AllocationResult] | None = None
    error: str = ""
    failure: type[AllocationError] | None = None
    cancelled: bool = False
    too_many: int = 0

    @property
    def fits(self) -> bool:
        """Whether all claims get their devices."""
        return self.results is not None

    @property
    def fatal(self) -> bool:
        """Whether the error stops the pod on all nodes."""
        return self.failure is not None


def try_on(
    allocator: Allocator,
    node: Node,
    claims: Sequence[ResourceClaim],
    cancelled: Callable[[], bool],
) -> TrialResult:
    """The scheduler's answer for one node."""
    try:
        return TrialResult(allocator.allocate(node, claims, cancelled=cancelled))
    except AllocationCancelled:
        return TrialResult(error="the search took too long", cancelled=True)
    except NodeAllocationError as error:
        return TrialResult(error=str(error))
    except AllocationError as error:
        needed = error.needed if isinstance(error, TooManyDevices) else 0
        return TrialResult(error=str(error), failure=type(error), too_many=needed)
