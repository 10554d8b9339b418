# SPDX-License-Identifier: Apache-2.0
"""The answer about several subjects: pods and claims by name, the pods of workloads, or all pods that wait for devices.

Each subject is explained by itself, in the cluster as it is: as the scheduler does when it tries one of its pods. That several of
them may want the same device is not looked at here (`all_pods` does it for the pods of a file). Pods that ask for the same have the
same answer, and are explained once. One that is slow to explain takes no more from the others than `turns` gives it.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct

from dra_driver.errors import DriverError
from dra_driver.explain.explanation import Limits
from dra_driver.explain.facts.claim_state import not_owned, unusable, used_by_nobody_else
from dra_driver.explain.facts.fleet import Fleet
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
    ResolvedPod,
    TemplateSubject,
    WorkloadSubject,
)
from dra_driver.explain.subject.wanted import of_pod
from dra_driver.explain.turns import ENDLESS, Time, Told, by_turns
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.explain.waiting_pods import pods_of
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.workload import PLURALS, with_parts
from dra_driver.model.cluster import POD_SCHEDULED, ClusterState

NO_TIME = "the time was over before this pod was looked at"


class _Unit(Struct, frozen=True):
    """What has a report of its own: what one subject means, or pods that ask for the same, of which the first is explained.

    `known` is the report if nothing has to be searched.
    """

    title: str
    namespace: str = ""
    means: Sequence[Resolved] = ()
    pods: Sequence[ResolvedPod] = ()
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


def explain_several(
    state: ClusterState,
    subjects: Sequence[NamedSubject | ManyPods],
    *,
    node: str = "",
    time: Time = ENDLESS,
    recorded: bool = False,
    added: NewNode | None = None,
) -> ReportList:
    """Return one report for each pod, claim and template, found in `time`. The other parameters are those of `report.explain`.

    A subject that does not exist has a report that says so. Raises Permanent if the node does not exist, or if the only subject are
    pods that cannot be found.
    """
    state = readable(state)
    if node:
        node_named(state, node, recorded=recorded)
    where = Cluster(state, recorded)
    if len(subjects) == 1:
        part = _part(where, subjects[0])
        parts, said = [part], [part.says]
    else:
        parts = [_part_or_error(where, one) for one in subjects]
        said = [
            f"{_title(one)}: {part.says}"
            for one, part in zip(subjects, parts, strict=True)
            if part.says
        ]
    explainer = _Explainer([one for part in parts for one in part.units], state, node, added)
    reports = [msgspec.structs.replace(one, not_read=()) for one in explainer.reports(time)]
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
        return bool(found.bound_to)
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


def _part_or_error(where: Cluster, subject: NamedSubject | ManyPods) -> _Part:
    try:
        return _part(where, subject)
    except DriverError as error:
        return _Part((_known(_title(subject), str(error)),))


def _part(where: Cluster, subject: NamedSubject | ManyPods) -> _Part:
    if not isinstance(subject, WorkloadSubject | PendingSubject):
        found = list(resolve(where.state, subject, recorded=where.recorded))
        return _Part((_Unit(_title(subject), subject.namespace, found),))
    found_pods = pods_of(where, subject)
    units = _grouped(where.state, found_pods.waiting)
    if found_pods.lacking:
        units.append(_known(subject.title, found_pods.lacking))
    return _Part(tuple(units), found_pods.says)


def explain_pods(
    state: ClusterState,
    pods: Sequence[Pod],
    *,
    time: Time,
    begins: Callable[[Sequence[Pod]], None],
) -> Iterator[Explained]:
    """Yield a report about each kind of pods, those that ask for the same, as soon as it is known. What would help is not looked for.

    `state` is what `readable` returns, and `pods` are of it. `begins` is called with the pods before they have a turn. The order of the pods counts if the time is short.
    """
    units = _grouped(state, pods)
    explainer = _Explainer(units, state, changes=False)

    def explain(place: int, stop: Callable[[], bool]) -> Report:
        begins([one.pod for one in units[place].pods])
        return explainer.explain(place, stop)

    for told in by_turns([one.namespace for one in units], explain, time):
        unit = units[told.place]
        report = told.report or _no_time(unit)
        yield Explained(report, tuple(one.pod for one in unit.pods), told)


class _Explainer:
    """Explains units of one cluster. They share a Fleet. `changes`: whether to look for what would help."""

    def __init__(
        self,
        units: Sequence[_Unit],
        state: ClusterState,
        node: str = "",
        added: NewNode | None = None,
        *,
        changes: bool = True,
    ) -> None:
        self._units = units
        self._fleet = Fleet(state)
        self._node, self._added, self._changes = node, added, changes

    def reports(self, time: Time) -> list[Report]:
        """Return the report of each unit, in their order."""
        places = [place for place, one in enumerate(self._units) if one.known is None]
        namespaces = [self._units[place].namespace for place in places]
        told = by_turns(namespaces, lambda number, stop: self.explain(places[number], stop), time)
        found = {places[one.place]: one.report for one in told}
        return [
            _with_alike(one, one.known or found[place] or _no_time(one))
            for place, one in enumerate(self._units)
        ]

    def explain(self, place: int, stop: Callable[[], bool]) -> Report:
        """Return the report of the unit at this place."""
        limits = Limits(self._node, stop, self._added, self._changes)
        report = answer(self._units[place].means, limits, self._fleet)
        if stop():
            # What was not found out in time is no answer for the next ones, which have time of their own.
            self._fleet = Fleet(self._fleet.state)
        return report


def _grouped(state: ClusterState, pods: Sequence[Pod]) -> list[_Unit]:
    """Return the pods that ask for the same together, in the order of the first of each."""
    alike: dict[object, list[ResolvedPod]] = {}
    for pod in pods:
        one = of_pod(state, pod, live=True)
        alike.setdefault(_deciding(one), []).append(one)
    return [
        _Unit(equal[0].title, equal[0].pod.metadata.namespace, equal[:1], equal)
        for equal in alike.values()
    ]


def _with_alike(unit: _Unit, report: Report) -> Report:
    names = tuple(full_name(one.pod.metadata) for one in unit.pods[1:])
    return msgspec.structs.replace(report, alike=names)


def _deciding(one: ResolvedPod) -> object:
    """Return a value that is equal for pods with the same answer, except for their names and those of their claims."""
    pod = one.pod
    said = [each for each in pod.status.conditions or () if each.type == POD_SCHEDULED]
    claims = [
        (
            "" if each.for_this_pod else each.name,
            each.origin,
            each.exists,
            each.not_made_yet is None,
            [type(problem) for problem in each.problems],
            each.claim and _of_claim(each.claim, pod),
        )
        for each in one.wanted
    ]
    scheduled = [(each.status, each.reason, each.message) for each in said]
    return repr((pod.metadata.namespace, pod.spec, scheduled, claims))


def _of_claim(claim: ResourceClaim, pod: Pod) -> object:
    against = [
        type(reason) for reason in (*unusable(claim, pod), *not_owned(claim, pod, groups=True))
    ]
    idle = used_by_nobody_else(claim, pod)
    return claim.spec, claim.status, claim.metadata.deletion_timestamp is None, against, idle


def _known(title: str, why: str) -> _Unit:
    return _Unit(title, known=_unknown(title, why))


def _no_time(unit: _Unit) -> Report:
    why = CouldNotTell("timeout", NO_TIME)
    return msgspec.structs.replace(_unknown(unit.title, NO_TIME), verdicts=(why,))


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
