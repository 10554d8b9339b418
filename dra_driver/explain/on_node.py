# SPDX-License-Identifier: Apache-2.0
"""Can a pod start on the node that it has, whether the scheduler chose it or the pod itself names it?

If the pod names the node itself, the scheduler does not see it: nobody looks whether the node exists, and can use the devices.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from dra_driver.explain.facts.binding import BROKEN
from dra_driver.explain.facts.claim_state import allocated_elsewhere, chosen_devices, is_reserved
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.facts.named_node import bound_to, named
from dra_driver.explain.outcome import EXIT_CODES, ClaimReport, NodeGroup, Outcome, Report
from dra_driver.explain.subject.subject import Resolved
from dra_driver.explain.verdict import (
    BindingConditionsPending,
    CouldNotTell,
    Fits,
    OtherCondition,
    Verdict,
)
from dra_driver.explain.verdicts.pod import NAMED_IN_VAIN, NAMED_REFUSED, NO_SUCH_NODE
from dra_driver.model.api.core import Pod

_NO_REFUSAL = (CouldNotTell, BindingConditionsPending, *BROKEN)
"""Problems of a claim with devices that do not keep the controller from reserving it for a pod."""


def unknown_node(subject: Resolved) -> str:
    """Return the node of a pod that has not started yet, if the cluster certainly has no node of that name; else ""."""
    name, state = subject.goes_to, subject.state
    known = any(one.metadata.name == name for one in state.nodes)
    return "" if known or state.unread("nodes", name) else name


def without_node(subject: Resolved, pod: Pod) -> Resolved:
    """Return the same as if its pod named no node."""
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return replace(subject, pod=msgspec.structs.replace(pod, spec=spec))


def on_node(facts: Facts, looked_at: str) -> Report | None:
    """Return the report of a pod that has its node; None if it needs the scheduler. `looked_at` is the only node that the user asks about."""
    subject = facts.subject
    bound = bound_to(subject)
    where = bound or subject.goes_to
    if not where or named(subject):
        return None
    outcome: Outcome = "devices fit"
    claims = [(one, one.claim) for one in facts.wanted if one.claim]
    devices = tuple(device for _, claim in claims for device in chosen_devices(claim))
    there: tuple[NodeGroup, ...] = (NodeGroup(count=1, nodes=(where,), placement=devices),)
    verdict: Verdict = Fits(devices)
    says = f"scheduled on node {where}"
    refusals = _refusals(facts)
    if unknown_node(subject):
        outcome, there = "devices fit, something else is in the way", ()
        verdict = OtherCondition(NO_SUCH_NODE, where)
        says = str(verdict)
    elif elsewhere := _elsewhere(facts):
        outcome = "devices do not fit"
        there = (NodeGroup(count=1, nodes=(where,), devices=elsewhere),)
        verdict = OtherCondition(NAMED_IN_VAIN, where)
        says = str(verdict)
    elif refusals:
        outcome, there = "devices do not fit", ()
        verdict = OtherCondition(NAMED_REFUSED, str(next(iter(refusals.values()))[0]))
        says = str(verdict)
    elif not bound:
        return None
    if looked_at and looked_at != where:
        says = f"{says}; node {looked_at} was not looked at, for the pod stays there"
    return Report(
        subject=subject.title,
        outcome=outcome,
        exit_code=EXIT_CODES[outcome],
        summary=says,
        cluster=subject.state.kubernetes_version,
        verdicts=(verdict,),
        claims=tuple(
            ClaimReport(
                name=one.name,
                origin=one.origin,
                verdicts=refusals.get(one.name, ()),
                allocated=chosen_devices(claim),
            )
            for one, claim in claims
            if one.exists
        ),
        nodes=there,
        not_read=subject.state.not_read,
    )


def _refusals(facts: Facts) -> Mapping[str, tuple[Verdict, ...]]:
    """Return for each claim, by its name, why the kubelet refuses it to a pod that has not started yet; only claims that it refuses.

    It refuses a claim that is not reserved for the pod. If the pod names its node itself, the resource claim controller reserves its
    claims, but none that is full, is deleted or is of another pod.
    """
    pod = facts.subject.pod
    if pod is None or not facts.subject.goes_to:
        return {}
    others = (
        one
        for one in facts.claims_explained
        if one.wanted.claim and not is_reserved(one.wanted.claim, pod)
    )
    found = {
        one.wanted.name: tuple(why for why in one.problems if not isinstance(why, _NO_REFUSAL))
        for one in others
    }
    return {name: reasons for name, reasons in found.items() if reasons}


def _elsewhere(facts: Facts) -> tuple[Verdict, ...]:
    """Return the claims whose devices cannot be used from the node of a pod that has not started yet."""
    subject = facts.subject
    nodes = [one for one in subject.state.nodes if one.metadata.name == subject.goes_to]
    claims = [one.claim for one in facts.wanted if one.claim]
    found = (one for node in nodes for claim in claims for one in allocated_elsewhere(claim, node))
    return tuple(dict.fromkeys(found))
