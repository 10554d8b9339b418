# SPDX-License-Identifier: Apache-2.0
"""Why is one device not taken for a request?"""

from dra_driver.explain.verdicts.base import Case


class SelectorFalse(Case, frozen=True):
    """`part` of selector number `index` of `source` ("class gpu" or "request") is false; `found` says with which values."""

    source: str
    index: int
    part: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        return self.found + (f" ({self.hint})" if self.hint else "")


class SelectorError(Case, frozen=True):
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


class Tainted(Case, frozen=True):
    """The device has a taint that the request does not tolerate; `rule` names the DeviceTaintRule it comes from, if any."""

    taint: str
    rule: str = ""

    def __str__(self) -> str:
        return f"tainted {self.taint}" + (f" by DeviceTaintRule {self.rule}" if self.rule else "")


class HeldByClaim(Case, frozen=True):
    """The device is allocated to another claim ("namespace/name"), which `pods` use."""

    claim: str
    pods: tuple[str, ...] = ()

    def __str__(self) -> str:
        used = f", used by {', '.join(self.pods)}" if self.pods else ", used by no pod"
        return f"held by {self.claim}{used}"


class CapacityTooSmall(Case, frozen=True):
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


class CapacityConsumed(Case, frozen=True):
    """The device can be shared and is big enough, but others already use too much of it."""

    capacity: str
    needed: str
    left: str
    claims: tuple[str, ...] = ()

    def __str__(self) -> str:
        held = f", consumed by {', '.join(self.claims)}" if self.claims else ""
        return f"{self.capacity}: {self.left} left < {self.needed}{held}"


class CountersUsedUp(Case, frozen=True):
    """A partition whose counters other partitions use up. `counter` is empty where it is the compatibility group that differs."""

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


class NodeNotSelected(Case, frozen=True):
    """The device cannot be reached from the node in question, or from no node that exists."""

    where: str

    def __str__(self) -> str:
        return f"only for {self.where}"


class PoolIncomplete(Case, frozen=True):
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


class PoolInvalid(Case, frozen=True):
    """The slices of the pool contradict each other."""

    pool: str
    detail: str

    def __str__(self) -> str:
        return f"pool {self.pool} is invalid: {self.detail}"


class FeatureOff(Case, frozen=True):
    """The cluster, or a node, lacks a feature that the claim or the device needs."""

    gate: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} needs feature gate {self.gate}, which is off here"
