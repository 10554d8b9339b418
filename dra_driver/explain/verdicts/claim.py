# SPDX-License-Identifier: Apache-2.0
"""Why can a claim not be used by the pod?"""

from abc import abstractmethod

from dra_driver.explain.verdicts.base import Case


class OfClaim(Case, frozen=True):
    """A sentence whose subject is the claim; `predicate` is the rest of it, for a place that names the claim itself."""

    claim: str

    @property
    @abstractmethod
    def predicate(self) -> str:
        """What is said of the claim, without its name."""

    def __str__(self) -> str:
        return f"claim {self.claim} {self.predicate}"


class BindingConditionsPending(OfClaim, frozen=True):
    """The devices are chosen; the scheduler waits until a controller says that they are ready."""

    conditions: tuple[str, ...]

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return f"waits for binding conditions {', '.join(self.conditions)}"


class BindingFailed(Case, frozen=True):
    """Preparing the chosen device failed; the scheduler takes it back and tries again."""

    claim: str
    condition: str
    message: str = ""

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"claim {self.claim}: binding failed, {self.condition} is True{said}"


class ClaimMissing(OfClaim, frozen=True):
    """The claim of the pod does not exist, is not made from its template yet, is being deleted, or is another pod's."""

    detail: str

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return self.detail


class TemplateMissing(Case, frozen=True):
    """The ResourceClaimTemplate does not exist."""

    template: str

    def __str__(self) -> str:
        return f"template {self.template} does not exist"


class ClaimReservedForOthers(OfClaim, frozen=True):
    """The claim already has as many users as a claim can have."""

    consumers: int
    limit: int = 256

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return f"is reserved for {self.consumers} others, at most {self.limit} can share it"


class ClaimAllocatedElsewhere(OfClaim, frozen=True):
    """The claim already has devices, which can be used only from other nodes."""

    where: str

    @property
    def predicate(self) -> str:
        """See OfClaim."""
        return f"is allocated for {self.where}"
