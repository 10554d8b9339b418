# SPDX-License-Identifier: Apache-2.0
"""Why does the scheduler not take a device for a request?"""

import re

import msgspec

from dra_driver.explain.names import first_names, values_found
from dra_driver.explain.verdicts.base import Case
from dra_driver.model.names import FAULT_TAINTS

_BROKEN = frozenset(
    {
        *("xid", "ecc", "unhealthy", "fault", "faults", "faulty", "fail", "failed", "failing"),
        *("failure", "failures", "error", "errors", "warning", "broken", "bad", "dead", "down"),
        *("damaged", "defect", "defective", "degraded", "corrupt", "corrupted", "uncorrected"),
        *("uncorrectable", "retired", "reset", "reboot", "repair", "overheated", "overheating"),
        *("lost", "vanished", "gone", "missing", "offline", "unavailable", "unreachable"),
        *("unresponsive", "unusable", "hang", "hung", "stuck", "held", "occupied", "unclean"),
        *("quarantine", "quarantined"),
    }
)
"""Words in a taint that say that a device does not work, or that something outside of the cluster has it."""
_BROKEN_KEYS = frozenset({"health", "temperature", "thermal"})
"""Words that say it only in the name of the key: a value may name a team, such as `health`."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class SelectorFalse(Case, frozen=True):
    """The condition `part` of a selector is false; `found` gives the device's values.

    The selector is number `index`, from 0, of `source`: "class gpu" or "request".
    """

    source: str
    index: int
    part: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        return values_found(self.found) + (f" ({self.hint})" if self.hint else "")


ON = "on "
"""The hint of a SelectorError begins so if it only names the device."""


class SelectorError(Case, frozen=True):
    """A selector failed when it was evaluated for the device; this stops the pod on all nodes."""

    source: str
    index: int
    part: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        said = f"CEL runtime error: {values_found(self.message)}"
        return f"{self.source} selector #{self.index}: {said}" + (
            f" ({values_found(self.hint)})" if self.hint else ""
        )

    @property
    def in_brief(self) -> str:
        """What is wrong with the condition: the hint, which makes the message needless if it says more than the device."""
        return f"{self.message} {self.hint}" if self.hint.startswith(ON) else self.hint


class Tainted(Case, frozen=True):
    """The device has a taint that the request does not tolerate; `rule` names the DeviceTaintRule that added the taint, if one did.

    `hint`: the request tolerates the taint's key and value, but with another effect.
    """

    taint: str
    rule: str = ""
    hint: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the taint says that a workload on the device would fail, or be ended. Such a device is never advised.

        The driver's own taints are known. In those of others, the words of the key's name and of the value tell.
        """
        rest, _, effect = self.taint.rpartition(":")
        key, _, value = rest.partition("=")
        if effect == "NoExecute" or key in FAULT_TAINTS:
            return True
        name = _words(key.rpartition("/")[2])
        return bool(name & _BROKEN_KEYS or (name | _words(value)) & _BROKEN)

    def __str__(self) -> str:
        by = f" by DeviceTaintRule {self.rule}" if self.rule else ""
        return f"tainted {self.taint}{by}" + (f" ({self.hint})" if self.hint else "")


class Ending(msgspec.Struct, frozen=True, rename="camel"):
    """An object ("claim ns/x", "pod ns/p") that is being deleted, and the finalizers that keep it, as `shown_finalizers` returns them."""

    name: str
    since: str
    finalizers: tuple[str, ...] = ()

    @property
    def awaited(self) -> str:
        """The object with its finalizers, of which somebody has to take care if they stay."""
        kept = f" (kept by {', '.join(self.finalizers)})" if self.finalizers else ""
        return f"{self.name}{kept}"

    def __str__(self) -> str:
        many = "finalizer" if len(self.finalizers) == 1 else "finalizers"
        kept = f", kept by {many} {', '.join(self.finalizers)}" if self.finalizers else ""
        return f"{self.name} is being deleted since {self.since}{kept}"


class HeldByClaim(Case, frozen=True):
    """The device is allocated to another claim ("namespace/name"), which `pods` use.

    `allocated` is the time of the allocation, and `created` that of the claim; both may be unknown. `ending` are the claim and the
    pods that are being deleted. `budgets` are the PodDisruptionBudgets that forbid at present to evict one of the pods.
    """

    claim: str
    pods: tuple[str, ...] = ()
    allocated: str = ""
    created: str = ""
    ending: tuple[Ending, ...] = ()
    budgets: tuple[str, ...] = ()

    @property
    def ends(self) -> bool:
        """Whether the claim gives its devices back by itself: it, or what uses it, is being deleted, and nothing else uses it."""
        if not self.ending:
            return False
        names = {one.name for one in self.ending}
        return all(f"pod {pod}" in names for pod in self.pods)

    @property
    def since(self) -> str:
        """Since when the claim has the device, in words; "" if that is not known."""
        if self.allocated:
            return f"since {self.allocated}"
        return f"claim created {self.created}" if self.created else ""

    def __str__(self) -> str:
        used = f"used by {first_names(self.pods)}" if self.pods else "used by no pod"
        since = f", {self.since}" if self.since else ""
        return f"held by {self.claim}, {used}{since}{_endings(self.ending)}"


class CapacityTooSmall(Case, frozen=True):
    """The device has less of a capacity than the request asks for, or does not have that capacity.

    If the device's request policy does not permit the amount, `allowed` says which amounts it permits. `near` is the similar name of a
    capacity that the device has, if it does not have the one that is asked for.
    """

    capacity: str
    needed: str
    has: str = ""
    allowed: str = ""
    near: str = ""

    def __str__(self) -> str:
        if self.allowed:
            return f"{self.capacity} {self.needed} is not allowed, valid: {self.allowed}"
        if not self.has:
            return f"has no capacity {self.capacity}"
        return f"{self.capacity} {self.has} < {self.needed}"


class CapacityConsumed(Case, frozen=True):
    """The device can be shared and is large enough, but other claims already use too much of it."""

    capacity: str
    needed: str
    left: str
    claims: tuple[str, ...] = ()
    ending: tuple[Ending, ...] = ()

    def __str__(self) -> str:
        held = f", consumed by {first_names(self.claims)}" if self.claims else ""
        held += _endings(self.ending)
        return f"{self.capacity}: {self.left} left < {self.needed}{held}"


class CountersUsedUp(Case, frozen=True):
    """The device is a partition, and other partitions use up a counter that it needs.

    If `counter` is empty, the counter set is in use by partitions of another compatibility group instead.
    """

    counter_set: str
    counter: str
    needed: str
    left: str
    claims: tuple[str, ...] = ()
    ending: tuple[Ending, ...] = ()

    def __str__(self) -> str:
        held = f", used by {first_names(self.claims)}" if self.claims else ""
        held += _endings(self.ending)
        if not self.counter:
            return f"counter set {self.counter_set} is in use by another compatibility group{held}"
        return f"counter {self.counter_set}/{self.counter}: {self.left} left < {self.needed}{held}"


class NodeNotSelected(Case, frozen=True):
    """The device can be used only from the nodes that `where` describes, and the report is about none of them.

    `hint` says which other value a node has for a label of that description.
    """

    where: str
    hint: str = ""

    def __str__(self) -> str:
        return f"only for {self.where}" + (f" ({self.hint})" if self.hint else "")


class PoolIncomplete(Case, frozen=True):
    """Some slices of the pool's newest generation are missing.

    `outdated`: those for the node are all of this older generation.
    """

    pool: str
    found: int
    expected: int
    generation: int
    outdated: int | None = None

    def __str__(self) -> str:
        if self.outdated is not None:
            return (
                f"pool {self.pool} is at generation {self.generation} ({self.found} of {self.expected} slices), "
                f"and the slices for the device's node are still of generation {self.outdated}"
            )
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


def _endings(ending: tuple[Ending, ...]) -> str:
    return f" ({'; '.join(map(str, ending))})" if ending else ""


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text))
