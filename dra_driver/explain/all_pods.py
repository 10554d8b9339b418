# SPDX-License-Identifier: Apache-2.0
"""Do all pods of a file fit together, each workload with as many as it makes?

They are served one after the other, as the scheduler would. Where one is left out, it is served first in the next round.
That finds a way for most; where it finds none, the round in which most were served is told.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from dra_driver.explain.outcome import Change, PodCount, Report
from dra_driver.explain.replicas import Placed, served
from dra_driver.explain.subject.subject import Resolved, after
from dra_driver.model.cluster import ClusterState

MOST_ROUNDS = 4
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    "tenth",
)


class Explained(Protocol):
    """A pod before a cluster."""

    def report(self) -> Report:
        """The answer."""

    def fill(
        self, count: int, number: int, among: Collection[str] | None = None
    ) -> Sequence[Placed]:
        """Where as many pods like this one find their devices, from that number on."""

    def daemon_nodes(self) -> Sequence[str]:
        """The nodes that get one pod each, if it is one of a DaemonSet."""


class Explain(Protocol):
    """Makes the explanation of a pod; with `node` for that node alone."""

    def __call__(self, resolved: Resolved, node: str = "", /) -> Explained:
        """Make it."""


@dataclass(frozen=True, slots=True)
class _Left:
    """The first that was not served whole, which of its pods is left out, and the report that says why."""

    subject: Resolved
    report: Report
    place: int


@dataclass(frozen=True, slots=True)
class _Round:
    """What came of serving all in one order."""

    fit: int
    wanted: int
    left: _Left | None = None


@dataclass(frozen=True, slots=True)
class _Served:
    """What came of one subject: the report of the pod that is left out, if one is."""

    state: ClusterState
    fit: int
    wanted: int
    report: Report | None = None


def together(subjects: Sequence[Resolved], first: Report | None, explain: Explain) -> Report:
    """The report of the first subject, `first` if it is there already, where all fit; else of what is left out."""
    order = list(subjects)
    rounds: list[tuple[_Round, _Left]] = []
    for _ in subjects[:MOST_ROUNDS]:
        found = _serve(order, explain)
        if found.left is None:
            report = first or explain(after(subjects[0], subjects[0].state, 1)).report()
            return _all(report, found, len(subjects))
        rounds.append((found, found.left))
        order.remove(found.left.subject)
        order.insert(0, found.left.subject)
    return _some(*max(rounds, key=lambda one: one[0].fit), len(subjects))


def one_of(report: Report, place: int, count: int) -> Report:
    """The report of one of several subjects, with how many there are."""
    return _told(report, f"this is number {place} of {count} in the file")


def no_pods(subjects: Sequence[Resolved]) -> Report:
    """The report of workloads that are scaled down to nothing."""
    return Report(
        subject=", ".join(one.title for one in subjects),
        outcome="devices fit",
        exit_code=0,
        summary="no pods are asked for: the count is 0",
        cluster=subjects[0].state.kubernetes_version,
        not_read=subjects[0].state.not_read,
        pods=PodCount(wanted=0, fit=0),
    )


def _all(report: Report, found: _Round, subjects: int) -> Report:
    if subjects > 1:
        words = f"all {found.wanted} pods of the file fit together, this is one"
        return _counted(_told(report, words), found)
    if found.wanted == 1:
        return _counted(report, found)
    return _counted(_told(report, f"all {found.wanted:,} pods fit"), found)


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
    # What would help this pod was tried out alone, not for the others.
    changes: tuple[Change, ...] = ()
    if subjects == 1 and left.workload and not left.workload.per_node and found.fit:
        changes = (Change(what=f"{left.title}: {found.fit:,} pods instead of {found.wanted:,}"),)
    return _counted(_told(msgspec.structs.replace(report, changes=changes), words), found)


def _ordinal(place: int) -> str:
    return f"the {_ORDINALS[place - 1]}" if place <= len(_ORDINALS) else f"pod number {place:,}"


def _told(report: Report, words: str) -> Report:
    return msgspec.structs.replace(report, summary=f"{words}: {report.summary}")


def _counted(report: Report, found: _Round) -> Report:
    return msgspec.structs.replace(report, pods=PodCount(wanted=found.wanted, fit=found.fit))


def _serve(order: Sequence[Resolved], explain: Explain) -> _Round:
    """All of them in this order; who is left out does not keep the others from being served."""
    state = order[0].state
    fit = wanted = 0
    left: _Left | None = None
    for one in order:
        per_node = one.workload is not None and one.workload.per_node
        found = (_serve_daemons if per_node else _serve_count)(one, state, explain)
        state, fit, wanted = found.state, fit + found.fit, wanted + found.wanted
        if found.report is not None and left is None:
            left = _Left(one, found.report, found.fit + 1)
    return _Round(fit, wanted, left)


def _serve_count(one: Resolved, state: ClusterState, explain: Explain) -> _Served:
    """So many pods, wherever they go."""
    wanted = one.workload.count if one.workload else 1
    placed = 0
    while placed < wanted:
        number = placed + 1 if one.workload else 0
        explained = explain(after(one, state, number))
        report = explained.report()
        batch = () if report.exit_code else explained.fill(wanted - placed, number)
        if not batch:
            return _Served(state, placed, wanted, _unless_served(report))
        state = served(state, batch)
        placed += len(batch)
    return _Served(state, placed, wanted)


def _serve_daemons(one: Resolved, state: ClusterState, explain: Explain) -> _Served:
    """One pod on each node that takes it."""
    explained = explain(after(one, state, 1))
    report = explained.report()
    due = list(explained.daemon_nodes())
    if not due:
        return _Served(state, 0, 1, _told(report, "no node takes a pod of it"))
    left, placed = list(due), 0
    while left:
        batch = () if report.exit_code else explained.fill(len(left), placed + 1, left)
        if not batch:
            lacking = explain(after(one, state, placed + 1), left[0]).report()
            return _Served(state, placed, len(due), _unless_served(lacking))
        state = served(state, batch)
        placed += len(batch)
        there = {each.pod.spec.node_name for each in batch}
        left = [name for name in left if name not in there]
        explained = explain(after(one, state, placed + 1))
        report = explained.report()
    return _Served(state, placed, len(due))


def _unless_served(report: Report) -> Report:
    """The report of a pod that was not served; whoever found that it fits ran out of time before it was placed."""
    if report.exit_code:
        return report
    return msgspec.structs.replace(report, outcome="could not tell", exit_code=2)
