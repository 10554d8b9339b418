# SPDX-License-Identifier: Apache-2.0
"""What speaks against a wanted claim, whatever the devices are?

Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources (PreFilter), pkg/registry/resource (admin access).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.explain.claim_request import ClaimRequest, requests_in
from dra_driver.explain.facts.claim_state import (
    admin_access_allowed,
    binding,
    is_allocated,
    not_owned,
    unusable,
)
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import Resolved, WantedClaim
from dra_driver.explain.verdict import (
    AdminAccessNotAllowed,
    CouldNotTell,
    FeatureOff,
    TooManyDevices,
    Verdict,
)
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.gates import ALLOCATION

MALFORMED = "malformed"
NO_ALLOCATION = FeatureOff(ALLOCATION, "a claim")
_LABELS_SINCE = 33
"""The release from which on admin access needs a label of the namespace."""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A wanted claim with the `problems` that keep it from being used, now and later."""

    wanted: WantedClaim
    problems: tuple[Verdict, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The problems; before them that the controller has not made the claim yet, which is no problem of its devices."""
        late = self.wanted.not_made_yet
        return (late, *self.problems) if late else self.problems


def claim_facts(wanted: WantedClaim, subject: Resolved, fleet: Fleet) -> ClaimFacts:
    """The claim with what speaks against it in this cluster."""
    problems = _problems(wanted.claim, wanted, subject, fleet) if wanted.claim else ()
    return ClaimFacts(wanted, (*wanted.problems, *problems))


def _problems(
    claim: ResourceClaim, wanted: WantedClaim, subject: Resolved, fleet: Fleet
) -> Iterator[Verdict]:
    yield from unusable(claim, subject.pod)
    if wanted.exists and wanted.for_this_pod and subject.pod is not None:
        yield from not_owned(claim, subject.pod)
    if is_allocated(claim):
        if fleet.rules.binding_conditions:
            yield from binding(claim)
        return
    if not fleet.is_on(ALLOCATION):
        yield NO_ALLOCATION
    yield from _without_kind(claim)
    requests = list(requests_in(claim))
    least = sum(min(counts) for counts in _counts(requests).values())
    if least > MAX_RESULTS:
        yield TooManyDevices(least)
    admin = fleet.rules.admin_access and any(one.admin_access for one in requests)
    if admin and not wanted.exists:  # the API server has checked those that exist
        yield from _admin_access(claim, fleet)


def _without_kind(claim: ResourceClaim) -> Iterator[Verdict]:
    """Requests that have neither `exactly` nor `firstAvailable`: the API versions differ in where a request has its fields."""
    for request in claim.spec.devices.requests or ():
        if request.exactly is None and not request.first_available:
            name = full_name(claim.metadata)
            what = f"request {request.name} of claim {name} has neither exactly nor firstAvailable"
            yield CouldNotTell(MALFORMED, what)


def _counts(requests: Sequence[ClaimRequest]) -> dict[int, list[int]]:
    """The least number of devices that each alternative of a request takes, by the request's place."""
    counts: dict[int, list[int]] = {}
    for request in requests:
        least = 0 if request.all_devices else request.body.count
        counts.setdefault(request.indices[0], []).append(least)
    return counts


def _admin_access(claim: ResourceClaim, fleet: Fleet) -> Iterator[Verdict]:
    state, name = fleet.state, claim.metadata.namespace
    if state.minor is not None and state.minor < _LABELS_SINCE:
        return
    found = next((one for one in state.namespaces if one.metadata.name == name), None)
    gap = state.unread("namespaces", name)
    if gap is not None and found is None:
        yield CouldNotTell(gap.reason, gap.message)
        return
    if not admin_access_allowed(found, state.minor):
        yield AdminAccessNotAllowed(name)
