# SPDX-License-Identifier: Apache-2.0
"""Why does a device, a request, a claim or a pod not fit? The closed union of all reasons: `Verdict`.

Each member has the facts of its case as fields, and a short text as its `str`. `dra_driver.explain.remedy` has a row for each
member: what a person sees, what it means and what to do. Tests on the real scheduler prove each row. As JSON, a verdict is an
object whose field `reason` is the member's name.
"""

from typing import get_args

from dra_driver.explain.verdicts.base import Case
from dra_driver.explain.verdicts.claim import (
    BindingConditionsPending,
    BindingFailed,
    BindingTimedOut,
    ClaimAllocatedElsewhere,
    ClaimMissing,
    ClaimReservedForOthers,
    TemplateMissing,
)
from dra_driver.explain.verdicts.device import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    Ending,
    FeatureOff,
    HeldByClaim,
    NodeNotSelected,
    PoolIncomplete,
    PoolInvalid,
    SelectorError,
    SelectorFalse,
    Tainted,
)
from dra_driver.explain.verdicts.general import ChosenDevice, CouldNotTell, Fits
from dra_driver.explain.verdicts.pod import (
    NodeResources,
    NodeSelectorMismatch,
    NodeTainted,
    NodeUnschedulable,
    OtherCondition,
    SchedulingGated,
)
from dra_driver.explain.verdicts.request import (
    AdminAccessNotAllowed,
    AllUnsatisfied,
    ClassMissing,
    CompileError,
    ConstraintConflict,
    DriverPublishesNothing,
    NoDevices,
    NotEnoughDevices,
    SelectorNeverMatches,
    TooManyDevices,
)

__all__ = [
    "AdminAccessNotAllowed",
    "AllUnsatisfied",
    "BindingConditionsPending",
    "BindingFailed",
    "BindingTimedOut",
    "CapacityConsumed",
    "CapacityTooSmall",
    "ChosenDevice",
    "ClaimAllocatedElsewhere",
    "ClaimMissing",
    "ClaimReservedForOthers",
    "ClaimVerdict",
    "ClassMissing",
    "CompileError",
    "ConstraintConflict",
    "CouldNotTell",
    "CountersUsedUp",
    "DeviceVerdict",
    "DriverPublishesNothing",
    "Ending",
    "FeatureOff",
    "Fits",
    "HeldByClaim",
    "NoDevices",
    "NodeNotSelected",
    "NodeResources",
    "NodeSelectorMismatch",
    "NodeTainted",
    "NodeUnschedulable",
    "NotEnoughDevices",
    "OtherCondition",
    "PodVerdict",
    "PoolIncomplete",
    "PoolInvalid",
    "RequestVerdict",
    "SchedulingGated",
    "SelectorError",
    "SelectorFalse",
    "SelectorNeverMatches",
    "Tainted",
    "TemplateMissing",
    "TooManyDevices",
    "Verdict",
    "members",
]

DeviceVerdict = (
    SelectorFalse
    | SelectorError
    | Tainted
    | HeldByClaim
    | CapacityTooSmall
    | CapacityConsumed
    | CountersUsedUp
    | NodeNotSelected
    | PoolIncomplete
    | PoolInvalid
    | FeatureOff
)
"""The reasons why the scheduler does not take a device."""

RequestVerdict = (
    SelectorNeverMatches
    | SelectorError
    | CompileError
    | ConstraintConflict
    | ClassMissing
    | FeatureOff
    | AdminAccessNotAllowed
    | TooManyDevices
    | AllUnsatisfied
    | NotEnoughDevices
    | DriverPublishesNothing
    | NoDevices
    | CouldNotTell
)
"""The reasons why a request can get no devices at all."""

ClaimVerdict = (
    BindingConditionsPending
    | BindingFailed
    | BindingTimedOut
    | ClaimMissing
    | TemplateMissing
    | ClaimReservedForOthers
    | ClaimAllocatedElsewhere
)
"""The reasons why the pod cannot use a claim."""

PodVerdict = (
    NodeSelectorMismatch
    | NodeTainted
    | NodeUnschedulable
    | NodeResources
    | SchedulingGated
    | OtherCondition
)
"""The other reasons why a pod is pending although its devices fit."""

Verdict = Fits | DeviceVerdict | RequestVerdict | ClaimVerdict | PodVerdict


def members() -> tuple[type[Case], ...]:
    """Return every member of the union, in the order of docs/pending.md."""
    return tuple(dict.fromkeys(get_args(Verdict)))
