# SPDX-License-Identifier: Apache-2.0
"""Why is a device, a request, a claim or a pod not served? Every reason that there is.

A closed union: `Verdict`. Each member holds the facts of its case and says them in a few words as `str`. What a person
sees, what it means and what to do stands in `dra_driver.explain.remedy`, a row for each member; a test on the real scheduler
stands behind each of them. As JSON a verdict is an object whose `reason` is the member's name.
"""

from typing import get_args

import msgspec


class _Case(msgspec.Struct, frozen=True, tag=True, tag_field="reason", rename="camel"):
    """A member of the union; equal cases can be counted together."""


class ChosenDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device that the allocation takes for a request ("main" or "main/sub") of a claim."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Fits(_Case, frozen=True):
    """Nothing is in the way."""

    devices: tuple[ChosenDevice, ...] = ()

    def __str__(self) -> str:
        return "fits"


class SelectorFalse(_Case, frozen=True):
    """`part` of selector number `index` of `source` ("class gpu" or "request") is false; `found` says with which values."""

    source: str
    index: int
    part: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        return self.found + (f" ({self.hint})" if self.hint else "")


class SelectorNeverMatches(_Case, frozen=True):
    """`part` is false for every device of the whole cluster, or of the drivers that the selectors mean, whatever its state.

    With `others`, some devices meet `part`, but none meets all of these conditions. `drivers` are those that are meant, where
    there are devices of more.
    """

    source: str
    index: int
    part: str
    found: str
    hint: str = ""
    others: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f"no device of {', '.join(self.drivers)}" if self.drivers else "no device"
        what = f"{who} can ever match {self.part}"
        if self.others:
            what = f"{who} meets all of {', '.join((self.part, *self.others))}"
        return f"{what}: {self.found}" + (f" ({self.hint})" if self.hint else "")


class SelectorError(_Case, frozen=True):
    """A selector failed while it was evaluated; that stops the pod on all nodes."""

    source: str
    index: int
    part: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.source} selector #{self.index}: CEL runtime error: {self.message}" + (
            f" ({self.hint})" if self.hint else ""
        )


class CompileError(_Case, frozen=True):
    """A selector cannot be compiled."""

    source: str
    index: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        first = self.message.partition("\n")[0]
        return f"{self.source} selector #{self.index} does not compile: {first}" + (
            f" ({self.hint})" if self.hint else ""
        )


class Tainted(_Case, frozen=True):
    """The device has a taint that the request does not tolerate; `rule` names the DeviceTaintRule it comes from, if any."""

    taint: str
    rule: str = ""

    def __str__(self) -> str:
        return f"tainted {self.taint}" + (f" by DeviceTaintRule {self.rule}" if self.rule else "")


class HeldByClaim(_Case, frozen=True):
    """The device is allocated to another claim ("namespace/name"), which `pods` use."""

    claim: str
    pods: tuple[str, ...] = ()

    def __str__(self) -> str:
        used = f", used by {', '.join(self.pods)}" if self.pods else ", used by no pod"
        return f"held by {self.claim}{used}"


class CapacityTooSmall(_Case, frozen=True):
    """The device does not have as much of a capacity as the request asks for, or does not have that capacity.

    `allowed` is what its request policy permits, where the amount is not among that.
    """

    capacity: str
    needed: str
    has: str = ""
    allowed: str = ""

    def __str__(self) -> str:
        if self.allowed:
            return f"{self.capacity} {self.needed} is not allowed, valid: {self.allowed}"
        if not self.has:
            return f"has no capacity {self.capacity}"
        return f"{self.capacity} {self.has} < {self.needed}"


class CapacityConsumed(_Case, frozen=True):
    """The device can be shared and is big enough, but others already use too much of it."""

    capacity: str
    needed: str
    left: str
    claims: tuple[str, ...] = ()

    def __str__(self) -> str:
        held = f", consumed by {', '.join(self.claims)}" if self.claims else ""
        return f"{self.capacity}: {self.left} left < {self.needed}{held}"


class CountersUsedUp(_Case, frozen=True):
    """A partition whose counters (or whose compatibility group, then `counter` is empty) others have taken."""

    counter_set: str
    counter: str
    needed: str
    left: str
    claims: tuple[str, ...] = ()

    def __str__(self) -> str:
        held = f", used by {', '.join(self.claims)}" if self.claims else ""
        if not self.counter:
            return f"counter set {self.counter_set} is in use by another compatibility group{held}"
        return f"counter {self.counter_set}/{self.counter}: {self.left} left < {self.needed}{held}"


class ConstraintConflict(_Case, frozen=True):
    """Devices fit one by one, but not together; `parts` is the smallest set that cannot be had at once."""

    parts: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"cannot be had together: {'; '.join(self.parts)}" + (
            f" ({self.detail})" if self.detail else ""
        )


class NodeNotSelected(_Case, frozen=True):
    """The device cannot be reached from the node in question, or from no node that exists."""

    where: str

    def __str__(self) -> str:
        return f"only for {self.where}"


class PoolIncomplete(_Case, frozen=True):
    """Not all slices of the pool's newest generation are there."""

    pool: str
    found: int
    expected: int
    generation: int

    def __str__(self) -> str:
        return (
            f"pool {self.pool} is incomplete: {self.found} of {self.expected} slices "
            f"of generation {self.generation}"
        )


class PoolInvalid(_Case, frozen=True):
    """The pool contradicts itself."""

    pool: str
    detail: str

    def __str__(self) -> str:
        return f"pool {self.pool} is invalid: {self.detail}"


class ClassMissing(_Case, frozen=True):
    """The DeviceClass does not exist; with `resource`, none stands for that extended resource, and no device plugin offers it."""

    device_class: str
    hint: str = ""
    resource: str = ""

    def __str__(self) -> str:
        if self.resource:
            return (
                f"no device class has extendedResourceName {self.resource}, and no device plugin offers it on any node"
                + (f" ({self.hint})" if self.hint else "")
            )
        if not self.device_class:
            return "the request names no device class"
        return f"device class {self.device_class} does not exist" + (
            f" ({self.hint})" if self.hint else ""
        )


class FeatureOff(_Case, frozen=True):
    """The cluster, or a node, does not do what is asked for."""

    gate: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} needs feature gate {self.gate}, which is off here"


class AdminAccessNotAllowed(_Case, frozen=True):
    """Admin access is only for namespaces with a label."""

    namespace: str

    def __str__(self) -> str:
        return (
            f"namespace {self.namespace} has no label resource.kubernetes.io/admin-access=true, "
            "so admin access is refused"
        )


class TooManyDevices(_Case, frozen=True):
    """A claim can hold `limit` devices."""

    needed: int
    limit: int = 32

    def __str__(self) -> str:
        return f"{self.needed} devices are asked for, a claim holds at most {self.limit}"


class AllUnsatisfied(_Case, frozen=True):
    """A request for all matching devices gets none while one of them cannot be had."""

    detail: str

    def __str__(self) -> str:
        return self.detail


class NotEnoughDevices(_Case, frozen=True):
    """On no single node there are as many devices as asked for."""

    needed: int
    available: int

    def __str__(self) -> str:
        needed = "1 device is" if self.needed == 1 else f"{self.needed} devices are"
        return f"{needed} needed on one node, {self.available or 'none'} can be had"


class DriverPublishesNothing(_Case, frozen=True):
    """The selector asks for a driver that has no ResourceSlice."""

    driver: str
    hint: str = ""

    def __str__(self) -> str:
        return f"driver {self.driver} publishes no ResourceSlice" + (
            f" ({self.hint})" if self.hint else ""
        )


class NoDevices(_Case, frozen=True):
    """There is no device in the whole cluster."""

    def __str__(self) -> str:
        return "no driver publishes any device in this cluster"


class BindingConditionsPending(_Case, frozen=True):
    """The devices are chosen; the scheduler waits until a controller says that they are ready."""

    claim: str
    conditions: tuple[str, ...]

    def __str__(self) -> str:
        return f"claim {self.claim} waits for binding conditions {', '.join(self.conditions)}"


class BindingFailed(_Case, frozen=True):
    """Preparing the chosen device failed; the scheduler takes it back and tries again."""

    claim: str
    condition: str
    message: str = ""

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"claim {self.claim}: binding failed, {self.condition} is True{said}"


class ClaimMissing(_Case, frozen=True):
    """The pod names a claim that is not there, not (yet) made from its template, being deleted, or not its own."""

    claim: str
    detail: str

    def __str__(self) -> str:
        return f"claim {self.claim} {self.detail}"


class TemplateMissing(_Case, frozen=True):
    """The ResourceClaimTemplate does not exist."""

    template: str

    def __str__(self) -> str:
        return f"template {self.template} does not exist"


class ClaimReservedForOthers(_Case, frozen=True):
    """As many pods use the claim as can."""

    claim: str
    consumers: int
    limit: int = 256

    def __str__(self) -> str:
        return f"claim {self.claim} is reserved for {self.consumers} others, at most {self.limit} can share it"


class ClaimAllocatedElsewhere(_Case, frozen=True):
    """The claim already has devices, which can be used only from other nodes."""

    claim: str
    where: str

    def __str__(self) -> str:
        return f"claim {self.claim} is allocated for {self.where}"


class NodeSelectorMismatch(_Case, frozen=True):
    """The pod's node selector, node affinity or node name excludes the node."""

    part: str

    def __str__(self) -> str:
        return f"the pod's {self.part} excludes the node"


class NodeTainted(_Case, frozen=True):
    """The node has a taint that the pod does not tolerate."""

    taint: str

    def __str__(self) -> str:
        return f"the node has taint {self.taint}"


class NodeUnschedulable(_Case, frozen=True):
    """The node is cordoned."""

    def __str__(self) -> str:
        return "the node is cordoned"


class NodeResources(_Case, frozen=True):
    """The node has not enough left of an ordinary resource; of several nodes, the least and the most that is free."""

    resource: str
    needed: str
    free: str
    least: str = ""

    def __str__(self) -> str:
        free = f"{self.least} to {self.free}" if self.least else self.free
        return f"{self.resource}: {self.needed} needed, {free} free"


class SchedulingGated(_Case, frozen=True):
    """The pod has scheduling gates."""

    gates: tuple[str, ...]

    def __str__(self) -> str:
        return f"the pod has scheduling gates {', '.join(self.gates)}"


class OtherCondition(_Case, frozen=True):
    """What the scheduler itself says, where none of the above explains it."""

    condition: str
    message: str

    def __str__(self) -> str:
        return f"{self.condition}: {self.message}" if self.message else self.condition


class CouldNotTell(_Case, frozen=True):
    """Something that decides could not be read or understood. `cause`: forbidden, malformed, timeout, not_served, failed."""

    cause: str
    what: str

    def __str__(self) -> str:
        return f"could not tell ({self.cause}): {self.what}"


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


def members() -> tuple[type[_Case], ...]:
    """Every member of the union, in the order of the docs."""
    return tuple(dict.fromkeys(get_args(Verdict)))
