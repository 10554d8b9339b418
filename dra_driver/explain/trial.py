# SPDX-License-Identifier: Apache-2.0
"""What would the scheduler answer for these claims on one node? The allocator runs, and its errors become a TrialResult."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import (
    AllocationCancelled,
    AllocationError,
    NodeAllocationError,
    ResultMaxSizeExceeded,
)
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, ResourceClaim


class TrialResult(Struct, frozen=True):
    """If the claims fit: `results`, one for each claim; else `error`. `cancelled`: the search was stopped before it had an answer.

    `failure` is the type of an error that stops the pod on all nodes. `too_many` is the number of devices that a claim asks for,
    if this is more than one claim can have; else 0.
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
    """Return the scheduler's answer for these claims on one node."""
    try:
        return TrialResult(allocator.allocate(node, claims, cancelled=cancelled))
    except AllocationCancelled:
        return TrialResult(error="the search took too long", cancelled=True)
    except NodeAllocationError as error:
        return TrialResult(error=str(error))
    except AllocationError as error:
        needed = error.needed if isinstance(error, ResultMaxSizeExceeded) else 0
        return TrialResult(error=str(error), failure=type(error), too_many=needed)
