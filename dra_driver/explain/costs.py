# SPDX-License-Identifier: Apache-2.0
"""What does a change cost the user? One scale for all kinds of changes, so that the cheapest that helps is named.

Correcting a name costs nobody anything. Ending any number of claims that nobody uses costs less than ending a workload, and a
workload can be started again. Another node costs money. But a request that asks for something else gets something else: that comes last.
"""

from collections.abc import Collection, Iterable
from typing import Literal

from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    HeldByClaim,
    Tainted,
    Verdict,
)

Kind = Literal["correct", "wait", "end", "add node", "tolerate", "ask for less", "edit"]
CORRECT = 1
WAIT = 2
END_UNUSED = 3
_WORK = 1000
"""What somebody loses or has to do counts more than any number of claims that nobody uses any more."""
END = 4 * _WORK
END_PROTECTED = 6 * _WORK
"""A PodDisruptionBudget forbids to evict one of the pods."""
ADD_NODE = 12 * _WORK
TOLERATE = 14 * _WORK
LESS = 15 * _WORK
EDIT = 17 * _WORK
EDIT_CLASS = 25 * _WORK
"""A class is an admin's, and other claims use it."""
NEVER = 1000 * _WORK
"""No change that `explain` could advise removes the reason."""
COSTS: dict[Kind, int] = {
    "correct": CORRECT,
    "wait": WAIT,
    "end": END,
    "add node": ADD_NODE,
    "tolerate": TOLERATE,
    "ask for less": LESS,
    "edit": EDIT,
}


def cost_of(reason: Verdict, own: Collection[str] = ()) -> int:
    """Return what it costs to remove a reason against a device, other than a false selector.

    `own` are the claims that the pod itself needs: it gains nothing if one of them ends.
    """
    match reason:
        case HeldByClaim():
            return NEVER if reason.claim in own else _cost_of_end(reason)
        case CountersUsedUp() if reason.claims:
            return END * len(reason.claims)
        case CapacityConsumed():
            return min(END * len(reason.claims), LESS) if reason.claims else LESS
        case Tainted():
            return NEVER if reason.is_broken else TOLERATE
        case CapacityTooSmall():
            return CORRECT if reason.near else LESS
        case _:
            return NEVER


def _cost_of_end(holder: HeldByClaim) -> int:
    if holder.ends:
        return WAIT
    if not holder.pods:
        return END_UNUSED
    return END_PROTECTED if holder.budgets else END


def costliest(kinds: Iterable[Kind]) -> Kind:
    """Return the kind of a change that consists of several."""
    return max(kinds, key=COSTS.__getitem__)
