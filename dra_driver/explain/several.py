# SPDX-License-Identifier: Apache-2.0
"""The answer about several subjects: pods and claims by name, the pods of workloads, or all pods that wait for devices.

Each subject is explained by itself, in the cluster as it is: as the scheduler does when it tries one of its pods. That several of
them may want the same device is not looked at here (`all_pods` does it for the pods of a file). Pods that ask for the same have the
same answer, and are explained once (`alike`). One that is slow to explain takes no more from the others than `turns` gives it, and an
unexpected error of one is its answer only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from dra_driver.errors import DriverError
from dra_driver.explain.alike import grouped
from dra_driver.explain.explanation import Limits
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.named_node import bound_to
from dra_driver.explain.names import full_name
from dra_driver.explain.outcome import EXIT_CODES, WORST_FIRST, Report, ReportList
from dra_driver.explain.readable import readable
from dra_driver.explain.report import answer
from dra_driver.explain.subject.lookup import Cluster, node_named
from dra_driver.explain.subject.resolve import resolve
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    ManyPods,
    NamedSubject,
    NewNode,
    PendingSubject,
    PodSubject,
    Resolved,
    TemplateSubject,
    WorkloadSubject,
)
from dra_driver.explain.subject.wanted import Known, of_pod
from dra_driver.explain.turns import ENDLESS, Time, Told, by_turns
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.explain.verdicts.general import BUG
from dra_driver.explain.waiting_pods import pods_of
from dra_driver.model.api.core import Pod
from dra_driver.model.api.workload import PLURALS, with_parts
from dra_driver.model.cluster import ClusterState

NO_TIME = "the time was over before this pod was looked at"
TellBug = Callable[[str, Exception], None]
"""Is told the title of what could not be explained because of a bug, and the exception."""


def _raised(_title: str, error: Exception) -> None:
    raise error


class _Unit(Struct, frozen=True):
    """What has a report of its own: what one subject means, or pods that ask for the same, of which the first is explained.

    Which claims a pod means is found out in its turn. `known` is the report if nothing has to be searched.
    """

    title: str
    namespace: str = ""
    means: Sequence[Resolved] = ()
    pods: Sequence[Pod] = ()
    known: Report | None = None


class _Part(Struct, frozen=True):
    """One subject: what has reports, and a sentence about the subject as a whole."""

    units: tuple[_Unit, ...]
    says: str = ""


class Explained(Struct, frozen=True):
    """A report about pods that ask for the same; `told` says how their turn went."""

    report: Report
    pods: tuple[Pod, ...]
    told: Told


def explain_several(  # noqa: PLR0913  all but two by name
    state: ClusterState,
    subjects: Sequence[NamedSubject | ManyPods],
    *,
    node: str = "",
    time: Time = ENDLESS,
    recorded: bool = False,
    added: NewNode | None = None,
    bug: TellBug = _raised,
) -> ReportList:
    """Return one report for each pod, claim and template, found in `time`. The other parameters are those of `report.explain`.

    What `bug` is told of has a report that says so; without it, the exception is raised.

    A subject that does not exist has a report that says so. Raises Permanent if the node does not exist, or if the only subject are
    pods that cannot be found.
    """
    whole, state = state, readable(state)
    if node:
        node_named(state, node, recorded=recorded)
    where, known = Cluster(state, recorded, _left_out(whole, state)), Known(state)
    if len(subjects) == 1:
        part = _part(where, known, subjects[0])
        parts, said = [part], [part.says]
    else:
        parts = [_part_or_error(where, known, one) for one in subjects]
        said = [
            f"{_title(one)}: {part.says}"
            for one, part in zip(subjects, parts, strict=True)
            if part.says
        ]
    units = [one for part in parts for one in part.units]
    explainer = _Explainer(known, bug, node=node, added=added)
    reports = [msgspec.structs.replace(one, not_read=()) for one in explainer.reports(units, time)]
    outcomes = {one.outcome for one in reports}
    outcome = next((one for one in WORST_FIRST if one in outcomes), WORST_FIRST[-1])
    return ReportList(
        subject=", ".join(map(_title, subjects)),
        outcome=outcome,
        exit_code=EXIT_CODES[outcome],
        summary="; ".join((*said, *_counts(reports))),
        cluster=state.kubernetes_version,
        items=tuple(reports),
        not_read=state.not_read,
    )


def _left_out(whole: ClusterState, state: ClusterState) -> tuple[Pod, ...]:
    """Return the pods of the whole cluster that `readable` has left out."""
    kept = {id(one) for one in state.pods}
    return tuple(one for one in whole.pods if id(one) not in kept)


def settled(state: ClusterState, subjects: Sequence[NamedSubject | ManyPods]) -> bool:
    """Return whether nothing is left to wait for: every pod has a node, and every claim its devices.

    A subject that does not exist any more is settled too. All pending pods, and templates, never are: new pods may come.
    """
    return all(_is_settled(Cluster(state, recorded=False), one) for one in subjects)


def _is_settled(where: Cluster, subject: NamedSubject | ManyPods) -> bool:
    if isinstance(subject, PendingSubject):
        return False
    try:
        if isinstance(subject, WorkloadSubject):
            return pods_of(where, subject).settled
        (found,) = resolve(where.state, subject)
    except DriverError:
        # If its kind could not be read, it may still exist.
        return not any(map(where.state.gaps, _resources(subject)))
    if isinstance(subject, PodSubject):
        return bool(bound_to(found))
    claims = [one.claim for one in found.wanted if one.exists and one.claim is not None]
    return bool(claims) and all(one.status.allocation for one in claims)


def _resources(subject: NamedSubject | ManyPods) -> Sequence[str]:
    match subject:
        case ClaimSubject():
            return ("resourceclaims",)
        case TemplateSubject():
            return ("resourceclaimtemplates",)
        case WorkloadSubject(kind=kind):
            return ("pods", *(PLURALS[one][1] for one in with_parts([kind])))
        case _:
            return ("pods",)


def _part_or_error(where: Cluster, known: Known, subject: NamedSubject | ManyPods) -> _Part:
    try:
        return _part(where, known, subject)
    except DriverError as error:
        return _Part((_known(_title(subject), str(error)),))


def _part(where: Cluster, known: Known, subject: NamedSubject | ManyPods) -> _Part:
    if not isinstance(subject, WorkloadSubject | PendingSubject):
        found = list(resolve(where.state, subject, recorded=where.recorded))
        return _Part((_Unit(_title(subject), subject.namespace, found),))
    found_pods = pods_of(where, subject)
    units = _units(known, found_pods.waiting)
    if found_pods.lacking:
        units.append(_known(subject.title, found_pods.lacking))
    if found_pods.unread:
        units.append(_known("pods that could not be read", found_pods.unread))
    return _Part(tuple(units), found_pods.says)


def explain_pods(
    state: ClusterState,
    pods: Sequence[Pod],
    *,
    time: Time,
    begins: Callable[[Sequence[Pod]], None],
    compares: Callable[[Pod], None] = lambda _pod: None,
    bug: TellBug = _raised,
) -> Iterator[Explained]:
    """Yield a report about each kind of pods, those that ask for the same, as soon as it is known. What would help is not looked for.

    `state` is what `readable` returns, and `pods` are of it. `compares` is called with each pod before it is compared with the others, and `begins` with the pods before
    they have a turn. What has to be found out once for all of them is found out before. The order of the pods counts if the time is
    short.
    """
    known = Known(state)
    explainer = _Explainer(known, bug, changes=False)
    if pods:
        explainer.find_out_at_once()
    units = _units(known, pods, compares)

    def explain(place: int, stop: Callable[[], bool]) -> Report:
        begins(units[place].pods)
        return explainer.explain(units[place], stop)

    for told in by_turns([one.namespace for one in units], explain, time):
        unit = units[told.place]
        report = told.report or _no_time(unit)
        yield Explained(report, tuple(unit.pods), told)


class _Explainer:
    """Explains units of one cluster. They share a Fleet. `changes`: whether to look for what would help."""

    def __init__(
        self,
        known: Known,
        bug: TellBug,
        *,
        node: str = "",
        added: NewNode | None = None,
        changes: bool = True,
    ) -> None:
        self._known = known
        self._bug = bug
        self._fleet = Fleet(known.state)
        self._limits = Limits(node, self._is_over, added, changes)
        self._stop: Callable[[], bool] = lambda: False

    def find_out_at_once(self) -> None:
        """Find out what all units share, so that it takes nothing from the turn of the first one."""
        # What fails here fails again in each turn, and is told there.
        with suppress(Exception):
            self._fleet.find_out_at_once()

    def reports(self, units: Sequence[_Unit], time: Time) -> list[Report]:
        """Return the report of each unit, in their order."""
        places = [place for place, one in enumerate(units) if one.known is None]
        namespaces = [units[place].namespace for place in places]
        told = by_turns(
            namespaces, lambda number, stop: self.explain(units[places[number]], stop), time
        )
        found = {places[one.place]: one.report for one in told}
        return [
            _with_alike(one, one.known or found[place] or _no_time(one))
            for place, one in enumerate(units)
        ]

    def explain(self, unit: _Unit, stop: Callable[[], bool]) -> Report:
        """Return the report of a unit."""
        self._stop = stop
        is_usable = False
        try:
            report = answer(self._meant(unit), self._limits, self._fleet)
            is_usable = not stop()
        except Exception as error:  # noqa: BLE001  the other units have their answers all the same
            self._bug(unit.title, error)
            report = _of_bug(unit.title, error)
        if not is_usable:
            # What was not found out in time is no answer for the next ones, which have time of their own.
            self._fleet = self._fleet.without_answers()
        return report

    def _meant(self, unit: _Unit) -> Sequence[Resolved]:
        state, known = self._known.state, self._known
        return unit.means or [of_pod(state, unit.pods[0], live=True, known=known)]

    def _is_over(self) -> bool:
        # What the units share asks this for all of them: it ends with the turn that uses it, not with the one that made it.
        return self._stop()


def _units(
    known: Known, pods: Sequence[Pod], compares: Callable[[Pod], None] = lambda _pod: None
) -> list[_Unit]:
    return [
        _Unit(f"pod {full_name(equal[0].metadata)}", equal[0].metadata.namespace, pods=equal)
        for equal in grouped(known, pods, compares)
    ]


def _with_alike(unit: _Unit, report: Report) -> Report:
    names = tuple(full_name(one.metadata) for one in unit.pods[1:])
    return msgspec.structs.replace(report, alike=names)


def _known(title: str, why: str) -> _Unit:
    return _Unit(title, known=_unknown(title, why))


def _no_time(unit: _Unit) -> Report:
    why = CouldNotTell("timeout", NO_TIME)
    return msgspec.structs.replace(_unknown(unit.title, NO_TIME), verdicts=(why,))


def _of_bug(title: str, error: Exception) -> Report:
    what = f"a bug in dra-driver ({type(error).__name__}), which says nothing about the devices"
    why = CouldNotTell(BUG, what)
    return msgspec.structs.replace(_unknown(title, str(why)), verdicts=(why,))


def _unknown(title: str, why: str) -> Report:
    exit_code = EXIT_CODES["could not tell"]
    return Report(subject=title, outcome="could not tell", exit_code=exit_code, summary=why)


def _title(subject: NamedSubject | ManyPods) -> str:
    if isinstance(subject, WorkloadSubject | PendingSubject):
        return subject.title
    kind = type(subject).__name__.removesuffix("Subject").lower()
    return f"{kind} {subject.namespace}/{subject.name}"


def _counts(reports: Sequence[Report]) -> Iterator[str]:
    """Yield how many pods and claims have each outcome, the worst first; nothing for a single one, whose report follows."""
    for outcome in WORST_FIRST if len(reports) > 1 else ():
        count = sum(1 + len(one.alike) for one in reports if one.outcome == outcome)
        if count:
            yield f"{outcome}: {count:,}"
