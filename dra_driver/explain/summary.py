# SPDX-License-Identifier: Apache-2.0
"""What is the outcome, and which sentence explains it?"""

from collections.abc import Sequence

from dra_driver.explain.facts.claim_problems import ClaimFacts
from dra_driver.explain.facts.pod_requests import asks_for_devices
from dra_driver.explain.names import values_found
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.outcome import Outcome
from dra_driver.explain.verdict import (
    BindingConditionsPending,
    BindingFailed,
    BindingTimedOut,
    ClaimAllocatedElsewhere,
    CouldNotTell,
    SchedulingGated,
    Verdict,
)
from dra_driver.explain.verdicts.claim import OfClaim
from dra_driver.model.api.core import Pod

_NO_NODE = "no node would take it"


def outcome_of(
    claims: Sequence[ClaimFacts],
    nodes: NodesExplained,
    verdicts: Sequence[Verdict],
    *,
    allocating: bool,
) -> Outcome:
    """Return the outcome that follows from devices and nodes. `allocating`: at least one claim has no devices yet.

    A certain "no" comes first: an object that could not be read cannot change it. Then comes "could not tell": a "yes" is possible
    only if everything was read.
    """
    problems = [reason for claim in claims for reason in claim.problems]
    of_claims = any(isinstance(one, CouldNotTell) for one in problems)
    unknown = of_claims or any(isinstance(one, CouldNotTell) for one in verdicts)
    if _refusals(claims):
        return "devices do not fit"
    if unknown and (nodes.cancelled or of_claims or allocating):
        return "could not tell"
    if nodes.fatal or not nodes.some_fit:
        return "could not tell" if unknown else "devices do not fit"
    if nodes.allocated_elsewhere and not nodes.some_take_the_pod:
        return "devices do not fit"
    gated = any(isinstance(one, SchedulingGated) for one in verdicts)
    late = any(claim.wanted.not_made_yet for claim in claims)
    if gated or late or _binding(claims) or not nodes.some_take_the_pod:
        return "devices fit, something else is in the way"
    return "could not tell" if unknown else "devices fit"


def summary(
    outcome: Outcome,
    nodes: NodesExplained,
    verdicts: Sequence[Verdict],
    claims: Sequence[ClaimFacts],
    pod: Pod | None,
) -> str:
    """Return the sentence below the outcome; `verdicts` are the verdicts of the subject, then the verdicts of its claims."""
    asks = bool(claims) or (pod is not None and asks_for_devices(pod))
    if outcome == "devices fit":
        return _fitting(nodes, asks=asks)
    if outcome == "devices do not fit":
        return _no_fit(nodes, claims)
    if outcome == "could not tell":
        return next((str(one) for one in verdicts if isinstance(one, CouldNotTell)), outcome)
    if pod and not nodes.some_take_the_pod:
        which = f"on {nodes.fitting:,} of {nodes.count:,} nodes, and none of these takes the pod"
        return f"the devices fit {which}" if asks else f"the pod asks for no devices; {_NO_NODE}"
    binding = _binding(claims)
    if binding:
        return f"{_fitting(nodes, asks=True)}, but {binding[0]}"
    return f"{_fitting(nodes, asks=asks)}, something else holds the {'pod' if pod else 'claim'}"


def after(given_back: Sequence[ClaimAllocatedElsewhere | BindingFailed | BindingTimedOut]) -> str:
    """Return the end of the sentence: what the scheduler deallocates before it comes to this outcome; "" for nothing."""
    return "".join(
        f"; the scheduler deallocates claim {one.claim} by itself, because {_why(one)}"
        for one in given_back
    )


def _why(reason: ClaimAllocatedElsewhere | BindingFailed | BindingTimedOut) -> str:
    """Return why a claim is deallocated, and what happens next."""
    if isinstance(reason, ClaimAllocatedElsewhere):
        return f"it is allocated for {reason.where} and used by nobody else, and tries again"
    ended = "failed" if isinstance(reason, BindingFailed) else "timed out"
    return f"its binding {ended} and nobody else uses it, and tries again, perhaps with the same devices"


def _no_fit(nodes: NodesExplained, claims: Sequence[ClaimFacts]) -> str:
    if nodes.fatal:
        return f"the scheduler gives up on all nodes: {values_found(nodes.fatal.splitlines()[0])}"
    if not nodes.some_fit:
        return f"the devices fit on no node ({nodes.count:,} looked at)"
    return _refused(nodes, claims)


def _refused(nodes: NodesExplained, claims: Sequence[ClaimFacts]) -> str:
    """Return why claims cannot be used, although the claims without devices would get some."""
    reasons = _refusals(claims)
    if not reasons:
        return f"{nodes.allocated_elsewhere}, where the pod cannot run"
    name, reason = reasons[0]
    what = reason.predicate if isinstance(reason, OfClaim) else reason
    return f"claim {name} cannot be used: {what}"


def _refusals(claims: Sequence[ClaimFacts]) -> list[tuple[str, Verdict]]:
    """Return the certain reasons why claims cannot be used, each with its claim. A claim that waits for its binding has devices."""
    return [
        (claim.wanted.name, one)
        for claim in claims
        for one in claim.problems
        if not isinstance(one, CouldNotTell | BindingConditionsPending)
    ]


def _binding(claims: Sequence[ClaimFacts]) -> list[BindingConditionsPending]:
    """Return for which claims the scheduler waits until a controller has prepared the devices."""
    problems = (one for claim in claims for one in claim.problems)
    return [one for one in problems if isinstance(one, BindingConditionsPending)]


def _fitting(nodes: NodesExplained, *, asks: bool) -> str:
    """Return the sentence for devices that fit. Nodes that do not take the pod are counted separately."""
    there = [one.metadata.name for one in nodes.taking]
    unknown = len(nodes.uncounted.intersection(there))
    total, taking, more = nodes.count, len(there) - unknown, nodes.fitting - len(there)
    if not asks:
        return f"the pod asks for no devices; {taking:,} of {total:,} nodes would take it"
    others = [f"{more:,} more, which would not take the pod"] if more else []
    if unknown:
        others.append(f"{unknown:,} more, where nobody knows whether the pod has room")
    besides = f" (and on {', and on '.join(others)})" if others else ""
    return f"the devices fit on {taking:,} of {total:,} nodes{besides}"
