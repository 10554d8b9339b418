# SPDX-License-Identifier: Apache-2.0
"""Why is a device, a request, a claim or a pod not served? The closed union of all reasons: `Verdict`.

Each member holds the facts of its case; its `str` says them in a few words. `dra_driver.explain.remedy` has a row for each: what a
person sees, what it means and what to do. A test on the real scheduler proves each of them. As JSON a verdict is an object whose
`reason` is the member's name.
"""

from typing import get_args

from dra_driver.explain.verdicts.base import Case
from dra_driver.explain.verdicts.claim import (
    BindingConditionsPending,
    BindingFailed,
    ClaimAllocatedElsewhere,
    ClaimMissing,
    ClaimReservedForOthers,
    TemplateMissing,
)
from dra_driver.explain.verdicts.device import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
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
"""Why one device is not taken."""

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
"""Why a request cannot be served at all."""

ClaimVerdict = (
    BindingConditionsPending
    | BindingFailed
    | ClaimMissing
    | TemplateMissing
    | ClaimReservedForOthers
    | ClaimAllocatedElsewhere
)
"""Why a claim as a whole cannot be used."""

PodVerdict = (
    NodeSelectorMismatch
    | NodeTainted
    | NodeUnschedulable
    | NodeResources
    | SchedulingGated
    | OtherCondition
)
"""What else holds a pod whose devices fit."""

Verdict = Fits | DeviceVerdict | RequestVerdict | ClaimVerdict | PodVerdict


def members() -> tuple[type[Case], ...]:
    """Every member of the union, in the order of the docs."""
    return tuple(dict.fromkeys(get_args(Verdict)))
