# SPDX-License-Identifier: Apache-2.0
"""Do all pods of a file fit together, with all pods of each workload?

The pods get their devices one after the other, as from the scheduler. If a pod or workload does not get all its devices, it comes
first in the next round. In most cases one of the rounds succeeds. If none does, the report is about the round in which most pods fit.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dra_driver.explain.explanation import Explanation, Limits
from dra_driver.explain.outcome import Change, PodCount, Report
from dra_driver.explain.replicas import Placed, Replicas, daemon_nodes, place_pods, served
from dra_driver.explain.subject.subject import ResolvedPod
from dra_driver.explain.subject.wanted import after
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE

MOST_ROUNDS = 4
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    "tenth",
)


class _Left(Struct, frozen=True):
    """The first subject that did not get devices for all its pods.

    `place` is the number of the first pod without devices, from 1. `report` says why that pod got none.
    """

    subject: ResolvedPod
    report: Report
    place: int


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
    return _some(*max(rounds, key=lambda one: one[0].fit), len(subjects))


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


def _some(found: _Round, left_out: _Left, subjects: int) -> Report:
    left, report = left_out.subject, left_out.report
    place = _ordinal(left_out.place)
    if subjects == 1:
        words = f"{found.fit:,} of {found.wanted:,} pods fit; {place}"
    else:
        which = f"{place} of {left.title}" if left.workload else left.title
        words = f"{found.fit:,} of {found.wanted:,} pods of the file fit, in every order that was tried; {which}"
    if report.nodes and left.workload and left.workload.per_node and len(report.nodes) == 1:
        words = (
            f"{found.fit:,} of {found.wanted:,} pods fit; that on node {report.nodes[0].nodes[0]}"
        )
    # The report's changes were tried for this pod alone, not together with the other pods. One more node takes nothing from them.
    changes = tuple(
        msgspec.structs.replace(one, what=f"{one.what}: at least {found.fit + 1:,} pods fit then")
        for one in report.changes
        if one.kind == "add node"
    )
    if subjects == 1 and left.workload and not left.workload.per_node and found.fit:
        changes += (Change(what=f"{left.title}: {found.fit:,} pods instead of {found.wanted:,}"),)
    return _counted(_with_words(msgspec.structs.replace(report, changes=changes), words), found)


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
            left = _Left(one, found.report, found.fit + 1)
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
            return _Served(state, placed, wanted, _unless_served(report))
        state = served(state, batch)
        placed += len(batch)
    return _Served(state, placed, wanted)


def _serve_daemons(one: ResolvedPod, state: ClusterState, limits: Limits) -> _Served:
    """Place one pod on each node where the DaemonSet wants a pod."""
    explanation = Explanation(after(one, state, 1), limits)
    due = daemon_nodes(explanation.nodes)
    if not due:
        return _Served(state, 0, 1, _with_words(explanation.report, "no node takes a pod of it"))
    left, placed = list(due), 0
    while left:
        batch: Sequence[Placed] = ()
        if not explanation.report.exit_code:
            replicas = Replicas(one.pod, placed + 1, len(left))
            batch = place_pods(explanation.facts, explanation.nodes, replicas, left)
        if not batch:
            there = replace(limits, node=left[0])
            lacking = Explanation(after(one, state, placed + 1), there).report
            return _Served(state, placed, len(due), _unless_served(lacking))
        state = served(state, batch)
        placed += len(batch)
        taken = {each.pod.spec.node_name for each in batch}
        left = [name for name in left if name not in taken]
        explanation = Explanation(after(one, state, placed + 1), limits)
    return _Served(state, placed, len(due))


def _unless_served(report: Report) -> Report:
    """Return the report of a pod that got no devices.

    If the report says that the devices fit, the time was over before the pod was placed: the outcome becomes "could not tell".
    """
    if report.exit_code:
        return report
    return msgspec.structs.replace(report, outcome="could not tell", exit_code=COULD_NOT_TELL)
