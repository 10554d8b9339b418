# SPDX-License-Identifier: Apache-2.0
"""Which problems keep a pod from using a claim, whatever devices the cluster has?

Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources (PreFilter), pkg/registry/resource (admin access).
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.explain.claim_request import ClaimRequest, requests_in
from dra_driver.explain.facts.binding import binding
from dra_driver.explain.facts.claim_state import is_allocated, not_owned, unusable
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_groups import accepts_claims_of_groups
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import Resolved, WantedClaim
from dra_driver.explain.verdict import (
    AdminAccessNotAllowed,
    CouldNotTell,
    FeatureOff,
    TooManyDevices,
    Verdict,
)
from dra_driver.model.admin_access import admin_access_label, allows_admin_access
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.gates import ALLOCATION

MALFORMED = "malformed"
NO_ALLOCATION = FeatureOff(ALLOCATION, "a claim")


class ClaimFacts(Struct, frozen=True):
    """A claim that the pod needs, and the `problems` that keep the pod from using it. They do not go away by themselves."""

    wanted: WantedClaim
    problems: tuple[Verdict, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """First, if the controller has not made the claim yet, the verdict that says so. Then the problems."""
        late = self.wanted.not_made_yet
        return (late, *self.problems) if late else self.problems


def claim_facts(wanted: WantedClaim, subject: Resolved, fleet: Fleet) -> ClaimFacts:
    """Return the claim with its problems in this cluster."""
    problems = _problems(wanted.claim, wanted, subject, fleet) if wanted.claim else ()
    return ClaimFacts(wanted, (*wanted.problems, *problems))


def _problems(
    claim: ResourceClaim, wanted: WantedClaim, subject: Resolved, fleet: Fleet
) -> Iterator[Verdict]:
    yield from unusable(claim, subject.pod)
    if wanted.exists and wanted.for_this_pod and subject.pod is not None:
        yield from not_owned(claim, subject.pod, groups=accepts_claims_of_groups(fleet.state))
    if is_allocated(claim):
        if fleet.rules.binding_conditions:
            yield from binding(claim, fleet.state.recorded_at, subject.pod)
        return
    if not fleet.is_on(ALLOCATION):
        yield NO_ALLOCATION
    yield from _without_kind(claim)
    requests = list(requests_in(claim))
    least = sum(min(counts) for counts in _counts(requests).values())
    if least > MAX_RESULTS:
        yield TooManyDevices(least)
    admin = fleet.rules.admin_access and any(one.admin_access for one in requests)
    if admin and not wanted.exists:  # the API server has checked each claim that exists
        yield from _admin_access(claim, fleet)


def _without_kind(claim: ResourceClaim) -> Iterator[Verdict]:
    """Yield a verdict for each request without `exactly` and `firstAvailable`.

    The request may be written for another API version: in v1beta1 the fields of `exactly` are fields of the request itself.
    """
    for request in claim.spec.devices.requests or ():
        if request.exactly is None and not request.first_available:
            name = full_name(claim.metadata)
            what = f"request {request.name} of claim {name} has neither exactly nor firstAvailable"
            yield CouldNotTell(MALFORMED, what)


def _counts(requests: Sequence[ClaimRequest]) -> dict[int, list[int]]:
    """Return for each request, by its index, the least number of devices that each of its alternatives takes."""
    counts: dict[int, list[int]] = {}
    for request in requests:
        least = 0 if request.all_devices else request.body.count
        counts.setdefault(request.indices[0], []).append(least)
    return counts


def _admin_access(claim: ResourceClaim, fleet: Fleet) -> Iterator[Verdict]:
    state, name = fleet.state, claim.metadata.namespace
    label = admin_access_label(state.minor)
    if not label:
        return
    found = next((one for one in state.namespaces if one.metadata.name == name), None)
    gap = state.unread("namespaces", name)
    if gap is not None and found is None:
        yield CouldNotTell(gap.reason, gap.message)
        return
    if not allows_admin_access(found.metadata.labels if found else None, state.minor):
        yield AdminAccessNotAllowed(name, label)
