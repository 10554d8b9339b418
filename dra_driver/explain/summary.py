# SPDX-License-Identifier: Apache-2.0
"""The outcome in one sentence."""

from collections.abc import Sequence

from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.outcome import ClaimReport, Outcome
from dra_driver.explain.verdict import ClaimMissing, CouldNotTell, Verdict
from dra_driver.model.api.core import Pod

_NO_NODE = "no node would take it"


def can_still_come(reason: Verdict) -> bool:
    """A claim that the controller makes sooner or later says nothing against its devices."""
    return isinstance(reason, ClaimMissing) and "yet" in reason.detail


def _refused(nodes: NodesExplained, claims: Sequence[ClaimReport]) -> str:
    """Why claims cannot be used although there are devices for those that have none."""
    for claim in claims:
        for one in claim.verdicts:
            if not (can_still_come(one) or isinstance(one, CouldNotTell)):
                told = str(one).removeprefix(f"claim {claim.name} ")
                return f"claim {claim.name} cannot be used: {told}"
    return f"{nodes.allocated_elsewhere}, where the pod cannot run"


def summary(
    outcome: Outcome,
    nodes: NodesExplained,
    verdicts: Sequence[Verdict],
    claims: Sequence[ClaimReport],
    pod: Pod | None,
) -> str:
    """The sentence under the outcome."""
    total = nodes.count
    if outcome == "devices fit":
        return _fitting(nodes, asks=bool(claims))
    if outcome == "devices do not fit":
        return _no_fit(nodes, claims)
    if outcome == "could not tell":
        return next((str(one) for one in verdicts if isinstance(one, CouldNotTell)), outcome)
    if pod and not nodes.some_take_the_pod:
        which = f"on {nodes.fitting:,} of {total:,} nodes, and none of these takes the pod"
        return f"the devices fit {which}" if claims else f"the pod asks for no devices; {_NO_NODE}"
    return f"{_fitting(nodes, asks=bool(claims))}, something else holds the {'pod' if pod else 'claim'}"


def _no_fit(nodes: NodesExplained, claims: Sequence[ClaimReport]) -> str:
    if nodes.fatal:
        return f"the scheduler gives up on all nodes: {nodes.fatal.splitlines()[0]}"
    if not nodes.some_fit:
        return f"the devices fit on no node ({nodes.count:,} looked at)"
    return _refused(nodes, claims)


def _fitting(nodes: NodesExplained, *, asks: bool) -> str:
    """Where nothing is in the way; nodes that do not take the pod are no place for its devices."""
    total = nodes.count
    if not asks:
        return f"the pod asks for no devices; {nodes.taking:,} of {total:,} nodes would take it"
    more = nodes.fitting - nodes.taking
    besides = f" (and on {more:,} more, which would not take the pod)" if more else ""
    return f"the devices fit on {nodes.taking:,} of {total:,} nodes{besides}"
