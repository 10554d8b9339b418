# SPDX-License-Identifier: Apache-2.0
"""Which claims of a pod does the scheduler deallocate by itself, so that the pod gets other devices?

If the pod can run on no node, the scheduler looks for a node where only an allocated claim is in the way: the node takes the pod, the
claims without devices fit there, but the devices of the allocated claim are for other nodes, or a controller could not prepare them
(then the claim is in the way on each node). If nobody else uses such a claim, the scheduler deallocates it and tries the pod again. It
takes one claim at a time, and any of several; here it is the first of the pod. If it gets an error before, or a claim cannot be used at
all, it deallocates nothing.
Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources (PostFilter and Filter; the same rule in all releases
from 1.32 to 1.37).
"""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.explain.facts.binding import BROKEN
from dra_driver.explain.facts.claim_problems import claim_facts
from dra_driver.explain.facts.claim_state import is_allocated, used_by_nobody_else
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import Resolved, WantedClaim
from dra_driver.explain.tried_nodes import TriedNodes, try_on_all
from dra_driver.explain.verdict import (
    BindingConditionsPending,
    BindingFailed,
    BindingTimedOut,
    ClaimAllocatedElsewhere,
    Verdict,
)
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim

InTheWay = ClaimAllocatedElsewhere | BindingFailed | BindingTimedOut
_TRIED_ALL_THE_SAME = (BindingConditionsPending, *BROKEN)
"""With these problems of an allocated claim the scheduler tries the nodes; with all others it does not."""


class GivenBack(Struct, frozen=True):
    """The subject and the cluster after the scheduler has deallocated `claims`; as before if these are ()."""

    subject: Resolved
    fleet: Fleet
    claims: tuple[InTheWay, ...] = ()


def give_back(subject: Resolved, fleet: Fleet, stop: Callable[[], bool]) -> GivenBack:
    """Return what the scheduler makes of the claims before it finds a node for the pod, or gives up."""
    claims: list[InTheWay] = []
    while (found := _next(subject, fleet, stop)) is not None:
        claims.append(found)
        subject = _deallocated(subject, found.claim)
        fleet = Fleet(subject.state)
    return GivenBack(subject, fleet, tuple(claims))


def _next(subject: Resolved, fleet: Fleet, stop: Callable[[], bool]) -> InTheWay | None:
    """Return the claim that the scheduler deallocates now; None if it deallocates none."""
    pod = subject.pod
    if pod is None or pod.spec.node_name:
        return None
    idle = [one.name for one in subject.wanted if _is_idle(one, pod)]
    problems = [one for wanted in subject.wanted for one in _problems(wanted, subject, fleet)]
    if not idle or not all(isinstance(one, _TRIED_ALL_THE_SAME) for one in problems):
        return None
    broken = {one.claim: one for one in problems if isinstance(one, BROKEN)}
    tried = try_on_all(Facts(subject, fleet, None, stop))
    if any(_ends_the_search(one, broken) for one in tried):
        return None
    looked_at = [one for one in tried if _only_allocated_claims_are_in_the_way(one)]
    found: dict[str, InTheWay] = {one.claim: one for tried in looked_at for one in _away(tried)}
    if looked_at:
        found |= broken
    return next((found[name] for name in idle if name in found), None)


def _is_idle(wanted: WantedClaim, pod: Pod) -> bool:
    claim = wanted.claim
    return claim is not None and is_allocated(claim) and used_by_nobody_else(claim, pod)


def _problems(wanted: WantedClaim, subject: Resolved, fleet: Fleet) -> Sequence[Verdict]:
    return claim_facts(wanted, subject, fleet).problems


def _ends_the_search(tried: TriedNodes, broken: Collection[str]) -> bool:
    """Whether the pod can run on the nodes, or the scheduler gives it up there, or the time was over there."""
    runs = tried.fits and tried.takes_the_pod and not broken
    return runs or tried.stops_the_pod or tried.result.cancelled


def _only_allocated_claims_are_in_the_way(tried: TriedNodes) -> bool:
    return tried.takes_the_pod and tried.result.fits and len(_away(tried)) == len(tried.ruled_out)


def _away(tried: TriedNodes) -> list[ClaimAllocatedElsewhere]:
    """Return the claims that are allocated for other nodes."""
    return [one for one in tried.ruled_out if isinstance(one, ClaimAllocatedElsewhere)]


def _deallocated(subject: Resolved, name: str) -> Resolved:
    # A pod may name a claim several times: it stays one object.
    freed = {
        id(one.claim): _without_devices(one.claim)
        for one in subject.wanted
        if one.claim and one.name == name
    }
    wanted = tuple(
        replace(one, claim=freed.get(id(one.claim), one.claim)) for one in subject.wanted
    )
    known = tuple(
        _without_devices(one) if full_name(one.metadata) == name else one
        for one in subject.state.resource_claims
    )
    return replace(subject, wanted=wanted, state=replace(subject.state, resource_claims=known))


def _without_devices(claim: ResourceClaim) -> ResourceClaim:
    return replace(
        claim, status=replace(claim.status, allocation=None, reserved_for=None, devices=None)
    )
