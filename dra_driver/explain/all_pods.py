# SPDX-License-Identifier: Apache-2.0
"""Do all pods of a file fit together, with all pods of each workload?

The pods get their devices one after the other, as from the scheduler. If a pod or workload does not get all its devices, it comes
first in the next round. In most cases one of the rounds succeeds. If none does, the report is about the round in which most pods fit.
"""

from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dra_driver.explain.change_places import Place, not_taking
from dra_driver.explain.ended_for_all import MOST_ENDED, AllFit, end_for_all
from dra_driver.explain.explanation import Explanation, Limits
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.names import first_names, full_name
from dra_driver.explain.outcome import EXIT_CODES, Change, Outcome, PodCount, Report
from dra_driver.explain.replicas import (
    Placed,
    Replicas,
    daemon_nodes,
    place_devices,
    place_pods,
    place_without,
    served,
    shares_a_claim,
)
from dra_driver.explain.subject.subject import ResolvedPod
from dra_driver.explain.subject.wanted import after
from dra_driver.model.api.core import Node
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, WITH_RESERVATION

MOST_ROUNDS = 4
MOST_SERVED_AGAIN = 3
"""If all pods have to be served again for each trial, no more claims than this are ended: that takes long in a large cluster."""
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    "tenth",
)


class _PerNode(Struct, frozen=True):
    """The nodes of a DaemonSet: where its pods get devices, where not, and where they would if they tolerated the nodes' taints."""

    served: tuple[str, ...]
    lacking: tuple[str, ...]
    repelling: tuple[Place, ...]


class _Left(Struct, frozen=True):
    """The first subject that did not get devices for all its pods.

    `place` is the number of the first pod without devices, from 1. `report` says why that pod got none.
    """

    subject: ResolvedPod
    report: Report
    place: int
    per_node: _PerNode | None = None
    explanation: Explanation | None = None


class _Round(Struct, frozen=True):
    """The result of one order of the subjects: `fit` of the `wanted` pods fit."""

    fit: int
    wanted: int
    left: _Left | None = None


class _Served(Struct, frozen=True):
    """The result for one subject, and the cluster with its pods; `report` is about the first pod without devices, if there is one."""

    state: ClusterState
    fit: int
    wanted: int
    report: Report | None = None
    per_node: _PerNode | None = None
    explanation: Explanation | None = None


def explain_together(
    subjects: Sequence[ResolvedPod], first: Report | None, limits: Limits
) -> Report:
    """Return the report of the first pod if all pods fit, else the report of a pod that does not fit.

    `first` is the report of the first pod, if the caller has it already.
    """
    order = list(subjects)
    rounds: list[tuple[_Round, _Left]] = []
    for _ in subjects[:MOST_ROUNDS]:
        found = _serve(order, limits)
        if found.left is None:
            report = first or Explanation(after(subjects[0], subjects[0].state, 1), limits).report
            return _all(report, found, len(subjects))
        rounds.append((found, found.left))
        # A pod that can use many devices may take the only devices that another pod can use. So that other pod comes first in the
        # next round.
        order.remove(found.left.subject)
        order.insert(0, found.left.subject)
    best, left = max(rounds, key=lambda one: one[0].fit)
    return _some(best, left, subjects, tuple(_changes(best, left, order, limits)))


def one_of(report: Report, place: int, count: int) -> Report:
    """Return the report of one of several subjects, with its number and their count in the summary."""
    return _with_words(report, f"this is number {place} of {count} in the file")


def no_pods(subjects: Sequence[ResolvedPod]) -> Report:
    """Return the report of workloads that make no pods, because their count is 0."""
    return Report(
        subject=", ".join(one.title for one in subjects),
        outcome="devices fit",
        exit_code=DONE,
        summary="no pods are asked for: the count is 0",
        cluster=subjects[0].state.kubernetes_version,
        not_read=subjects[0].state.not_read,
        pods=PodCount(wanted=0, fit=0),
    )


def _all(report: Report, found: _Round, subjects: int) -> Report:
    if subjects > 1:
        words = f"all {found.wanted} pods of the file fit together, this is one"
        return _counted(_with_words(report, words), found)
    if found.wanted == 1:
        return _counted(report, found)
    return _counted(_with_words(report, f"all {found.wanted:,} pods fit"), found)


def _some(
    found: _Round, left_out: _Left, subjects: Sequence[ResolvedPod], changes: tuple[Change, ...]
) -> Report:
    left, report = left_out.subject, left_out.report
    nodes = left_out.per_node
    place = _those_on(nodes.lacking) if nodes else _ordinal(left_out.place)
    if len(subjects) == 1:
        words = f"{found.fit:,} of {found.wanted:,} pods fit; {place}"
    else:
        which = f"{place} of {left.title}" if left.workload else left.title
        words = f"{found.fit:,} of {found.wanted:,} pods of the file fit, in every order that was tried; {which}"
    return _counted(_with_words(msgspec.structs.replace(report, changes=changes), words), found)


def _changes(
    found: _Round, left: _Left, order: Sequence[ResolvedPod], limits: Limits
) -> Iterator[Change]:
    """Yield what helps all pods; and what helps the one pod for which it was tried, with how many pods fit then at least."""
    if found.wanted == 1:
        yield from left.report.changes
    else:
        yield from _of_several(found, left, order, limits)
    if len(order) == 1 and left.subject.workload and (found.fit or left.per_node):
        fewer = _fewer(found, left.per_node)
        if fewer:
            yield Change(what=f"{left.subject.title}: {fewer}")


def _of_several(
    found: _Round, left: _Left, order: Sequence[ResolvedPod], limits: Limits
) -> Iterator[Change]:
    ended = _ended(found, left, order, limits)
    if ended is not None:
        all_fit = f"{ended.what}: all {found.wanted:,} pods fit then"
        yield msgspec.structs.replace(ended, what=all_fit)
    # What a template says is the same for all pods of a workload. So such a change was tried for all that matters if none of them has
    # devices yet. One more node takes nothing from the other pods.
    of_first = len(order) == 1 and left.place == 1
    more = f"at least {_pods(found.fit + 1)} then"
    for one in left.report.changes:
        if one.kind == "add node" or (of_first and not one.ends):
            yield msgspec.structs.replace(one, what=f"{one.what}: {more}", on="")


def _fewer(found: _Round, per_node: _PerNode | None) -> str:
    """Return how the workload gets as many pods as fit; "" if none fits. A DaemonSet has to choose the nodes."""
    count = "1 pod" if found.fit == 1 else f"{found.fit:,} pods"
    if per_node is None:
        return f"{count} instead of {found.wanted:,}"
    where = [first_names(per_node.served)] if per_node.served else []
    for place in per_node.repelling:
        names = first_names([one.metadata.name for one in place.nodes])
        where.append(f"{names} if it tolerates {' and '.join(place.taints)} (spec.tolerations)")
    if not where:
        return ""
    only = f"let it choose only nodes where the devices fit, by nodeSelector or affinity ({', and '.join(where)})"
    return f"{only}: {count} instead of {found.wanted:,}" if per_node.served else only


def _ended(
    found: _Round, left: _Left, order: Sequence[ResolvedPod], limits: Limits
) -> Change | None:
    """Return which claims have to end so that all pods fit, if that helps."""
    state, explanation = order[0].state, left.explanation
    wanted = {claim.name for one in order for claim in one.wanted}
    known = {full_name(one.metadata) for one in state.resource_claims} - wanted
    if len(order) == 1 and explanation is not None and not shares_a_claim(explanation.facts):
        if not explanation.only_lacks_devices:
            return None
        rest = Replicas(left.subject.pod, left.place, found.wanted - found.fit)
        all_fit, most = _place_rest(explanation, rest, per_node=bool(left.per_node)), MOST_ENDED
    else:
        all_fit, most = _serve_again(order, limits), MOST_SERVED_AGAIN
    return end_for_all(left.report, Holders(state), known, all_fit, most)


def _place_rest(explanation: Explanation, rest: Replicas, *, per_node: bool) -> AllFit:
    """Return the trial that places the pods without devices beside the others, on the nodes of the claims that end."""
    facts, nodes = explanation.facts, explanation.nodes
    users: dict[str, list[Node]] = {}
    for tried in nodes.tried:
        for node in tried.group.nodes:
            there = (facts.fleet.claims_on(one.id) for one in nodes.devices_on(tried, node))
            for name in {name for names in there for name in names}:
                users.setdefault(name, []).append(node)

    def all_fit(ended: Collection[str]) -> bool:
        where = {node.metadata.name: node for name in ended for node in users.get(name, ())}
        most = 1 if per_node else rest.count
        placed = place_without(facts, list(where.values()), rest, ended, most)
        return placed == rest.count and not nodes.fatal

    return all_fit


def _serve_again(order: Sequence[ResolvedPod], limits: Limits) -> AllFit:
    """Return the trial that gives devices to all pods anew, in a cluster without the claims that end."""
    state = order[0].state
    trial = replace(limits, changes=False)

    def all_fit(ended: Collection[str]) -> bool:
        kept = [one for one in state.resource_claims if full_name(one.metadata) not in ended]
        without = msgspec.structs.replace(state, resource_claims=kept)
        return _serve([replace(one, state=without) for one in order], trial).left is None

    return all_fit


def _pods(count: int) -> str:
    return "1 pod fits" if count == 1 else f"{count:,} pods fit"


def _those_on(nodes: Sequence[str]) -> str:
    return (
        f"that on node {nodes[0]}" if len(nodes) == 1 else f"those on {first_names(nodes, 'nodes')}"
    )


def _ordinal(place: int) -> str:
    return f"the {_ORDINALS[place - 1]}" if place <= len(_ORDINALS) else f"pod number {place:,}"


def _with_words(report: Report, words: str) -> Report:
    return msgspec.structs.replace(report, summary=f"{words}: {report.summary}")


def _counted(report: Report, found: _Round) -> Report:
    return msgspec.structs.replace(report, pods=PodCount(wanted=found.wanted, fit=found.fit))


def _serve(order: Sequence[ResolvedPod], limits: Limits) -> _Round:
    """Give devices to all subjects in this order. If a subject gets none, the next ones are still tried."""
    state = order[0].state
    fit = wanted = 0
    left: _Left | None = None
    for one in order:
        per_node = one.workload is not None and one.workload.per_node
        found = (_serve_daemons if per_node else _serve_count)(one, state, limits)
        state, fit, wanted = found.state, fit + found.fit, wanted + found.wanted
        if found.report is not None and left is None:
            left = _Left(one, found.report, found.fit + 1, found.per_node, found.explanation)
    return _Round(fit, wanted, left)


def _serve_count(one: ResolvedPod, state: ClusterState, limits: Limits) -> _Served:
    """Place as many pods as the workload makes, on any nodes."""
    wanted = one.workload.count if one.workload else 1
    placed = 0
    while placed < wanted:
        number = placed + 1 if one.workload else 0
        explanation = Explanation(after(one, state, number), limits)
        report = explanation.report
        batch: Sequence[Placed] = ()
        if not report.exit_code:
            replicas = Replicas(one.pod, number, wanted - placed)
            batch = place_pods(explanation.facts, explanation.nodes, replicas)
        if not batch:
            rest = Replicas(one.pod, number, wanted - placed)
            report = _of_the_rest(_unless_served(report), explanation, rest)
            return _Served(state, placed, wanted, report, None, explanation)
        state = served(state, batch)
        placed += len(batch)
    return _Served(state, placed, wanted)


def _serve_daemons(one: ResolvedPod, state: ClusterState, limits: Limits) -> _Served:
    """Place one pod on each node where the DaemonSet wants a pod."""
    explanation = Explanation(after(one, state, 1), limits)
    due = daemon_nodes(one.pod, explanation.nodes)
    if not due:
        return _Served(state, 0, 1, _with_words(explanation.report, "no node takes a pod of it"))
    left, placed = list(due), 0
    while left:
        batch: Sequence[Placed] = ()
        if not explanation.report.exit_code:
            replicas = Replicas(one.pod, placed + 1, len(left))
            batch = place_pods(explanation.facts, explanation.nodes, replicas, left)
        if not batch:
            there = replace(limits, node="", among=tuple(left))
            lacking = Explanation(after(one, state, placed + 1), there)
            per_node = _PerNode(
                tuple(name for name in due if name not in left),
                tuple(left),
                tuple(_repelling(explanation)),
            )
            report = _unless_served(lacking.report)
            rest = Replicas(one.pod, placed + 1, len(left))
            report = _of_the_rest(report, lacking, rest, per_node=True)
            return _Served(state, placed, len(due), report, per_node, lacking)
        state = served(state, batch)
        placed += len(batch)
        taken = {each.pod.spec.node_name for each in batch}
        left = [name for name in left if name not in taken]
        explanation = Explanation(after(one, state, placed + 1), limits)
    return _Served(state, placed, len(due))


def _repelling(explanation: Explanation) -> Iterator[Place]:
    """Yield the nodes with devices for the pod that only their taints keep it off."""
    places = not_taking(explanation.facts, explanation.nodes)
    return (one for one in places if one.only_repels and one.tried.fits)


def _of_the_rest(
    report: Report, explanation: Explanation, rest: Replicas, *, per_node: bool = False
) -> Report:
    """Return the report of the first pod without devices, with the outcome of all that have none (`rest`).

    If something else is in the way of the first, or may be, the devices may still be too few for all.
    """
    held_up = report.exit_code == WITH_RESERVATION or explanation.only_room_is_unknown
    if not held_up or rest.count == 1:
        return report
    facts, count = explanation.facts, rest.count
    placed = place_devices(facts, explanation.nodes, rest, 1 if per_node else count)
    if placed == count:
        return report
    doubts = explanation.doubts_about_more_devices()
    if facts.stop() or doubts:
        return msgspec.structs.replace(
            report,
            outcome="could not tell",
            exit_code=COULD_NOT_TELL,
            verdicts=(*report.verdicts, *(one for one in doubts if one not in report.verdicts)),
        )
    words = (
        f"{report.summary}; there are devices for {placed:,} of the {count:,} pods that are left"
    )
    outcome: Outcome = "devices do not fit"
    return msgspec.structs.replace(
        report, outcome=outcome, exit_code=EXIT_CODES[outcome], summary=words
    )


def _unless_served(report: Report) -> Report:
    """Return the report of a pod that got no devices.

    If the report says that the devices fit, the time was over before the pod was placed: the outcome becomes "could not tell".
    """
    if report.exit_code:
        return report
    return msgspec.structs.replace(report, outcome="could not tell", exit_code=COULD_NOT_TELL)
