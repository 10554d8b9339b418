# SPDX-License-Identifier: Apache-2.0
"""Why can the pod not use a claim?"""

from abc import abstractmethod

from dra_driver.cel.reasons.similar import question
from dra_driver.explain.verdicts.base import Case

NOT_MADE_YET = "was not made from its template yet: look at the events of the pod"
BEING_DELETED = "is being deleted"
OF_ANOTHER_POD = "was not made for this pod: delete it"
OF_ANOTHER_GROUP = "was made for a pod group that this pod is not of"
BINDING_TIMEOUT_MINUTES = 10
"""So long the scheduler waits for binding conditions, if its configuration says nothing else."""


class OfClaim(Case, frozen=True):
    """A verdict whose text is a sentence about the claim. `predicate` is this sentence without the words "claim NAME"."""

    claim: str

    @property
    @abstractmethod
    def predicate(self) -> str:
        """The sentence about the claim, without its name."""

    def __str__(self) -> str:
        return f"claim {self.claim} {self.predicate}"


class BindingConditionsPending(OfClaim, frozen=True):
    """The claim is allocated; the scheduler waits until a controller sets the devices' binding conditions to True.

    It waits `until` that time, which is empty if it is not known; then it deallocates the claim and tries again. `unseen` are binding
    failure conditions that are True already, of devices that the scheduler does not look at before.
    """

    conditions: tuple[str, ...]
    until: str = ""
    unseen: tuple[str, ...] = ()

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        until = "until when is not known, because its allocation has no time"
        if self.until:
            until = f"until {self.until}, if the scheduler has the default bindingTimeout ({BINDING_TIMEOUT_MINUTES} minutes)"
        others = ", ".join(self.unseen)
        unseen = f"; {others} of a later device is True, which counts after that" if others else ""
        return f"waits for binding conditions {', '.join(self.conditions)} ({until}){unseen}"


class BindingFailed(OfClaim, frozen=True):
    """A controller set a binding failure condition of the device to True; the scheduler deallocates the claim and tries again."""

    condition: str
    message: str = ""

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        said = f": {self.message}" if self.message else ""
        return f"binding failed, {self.condition} is True{said}"

    def __str__(self) -> str:
        return f"claim {self.claim}: {self.predicate}"


class BindingTimedOut(OfClaim, frozen=True):
    """The devices' binding conditions were not True in time; the scheduler deallocates the claim and tries again.

    `reserved`: the claim is still reserved for the pod, so perhaps the scheduler waits longer than by default.
    """

    conditions: tuple[str, ...]
    at: str
    reserved: bool = False

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        but = (
            "; it is still reserved for the pod: perhaps the scheduler has a longer one and waits on, or does not run"
            if self.reserved
            else ""
        )
        return (
            f"has waited in vain for binding conditions {', '.join(self.conditions)}: they were not True at {self.at}, "
            f"{BINDING_TIMEOUT_MINUTES} minutes after its allocation (the scheduler's default bindingTimeout; its configuration may "
            f"have another, which is not known here){but}"
        )


class ClaimMissing(OfClaim, frozen=True):
    """The claim of the pod does not exist, is not made from its template yet, is being deleted, or was made for another pod.

    If it does not exist: `is_template` tells whether a template in its namespace has this name, `namespaces` are the others with a
    claim of this name, and `near` is a claim of its namespace with a similar name.
    """

    detail: str
    is_template: bool = False
    namespaces: tuple[str, ...] = ()
    near: str = ""

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return self.detail + _question(self.near)


class TemplateMissing(Case, frozen=True):
    """The ResourceClaimTemplate does not exist.

    `is_claim`: a claim in its namespace has this name. `namespaces` are the others with a template of this name. `near` is a template of
    its namespace with a similar name.
    """

    template: str
    is_claim: bool = False
    namespaces: tuple[str, ...] = ()
    near: str = ""

    def __str__(self) -> str:
        return f"template {self.template} does not exist{_question(self.near)}"


class ClaimReservedForOthers(OfClaim, frozen=True):
    """The claim's status.reservedFor is full: it has `limit` users."""

    consumers: int
    limit: int = 256

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return f"is reserved for {self.consumers} others, at most {self.limit} can share it"


class ClaimAllocatedElsewhere(OfClaim, frozen=True):
    """The claim is allocated already, and its devices can be used only from other nodes."""

    where: str

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return f"is allocated for {self.where}"


def _question(near: str) -> str:
    return f" ({question(near)})" if near else ""
