# SPDX-License-Identifier: Apache-2.0
"""The answer about several subjects: pods and claims by name, the pods of workloads, or all pods that wait for devices.

Each subject is explained by itself, in the cluster as it is: as the scheduler does when it tries one of its pods. That several of
them may want the same device is not looked at here (`all_pods` does it for the pods of a file). Pods that ask for the same have the
same answer, and are explained once.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct

from dra_driver.errors import DriverError
from dra_driver.explain.explanation import Limits
from dra_driver.explain.facts.claim_state import not_owned, unusable
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
    ResolvedPod,
    TemplateSubject,
    WorkloadSubject,
)
from dra_driver.explain.subject.wanted import of_pod
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.explain.waiting_pods import pods_of
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.workload import PLURALS, with_parts
from dra_driver.model.cluster import POD_SCHEDULED, ClusterState

NO_TIME = "the time was over before this pod was looked at"


class _Part(Struct, frozen=True):
    """The answer about one subject: its reports, and a sentence about the subject as a whole."""

    reports: tuple[Report, ...]
    says: str = ""


def explain_several(
    state: ClusterState,
    subjects: Sequence[NamedSubject | ManyPods],
    *,
    node: str = "",
    cancelled: Callable[[], bool] = lambda: False,
    recorded: bool = False,
    added: NewNode | None = None,
) -> ReportList:
    """Return one report for each pod, claim and template. The parameters are those of `report.explain`.

    A subject that does not exist has a report that says so. Raises Permanent if the node does not exist, or if the only subject are
    pods that cannot be found.
    """
    state = readable(state)
    if node:
        node_named(state, node, recorded=recorded)
    where, limits = Cluster(state, recorded), Limits(node, cancelled, added)
    fleet = Fleet(state)
    if len(subjects) == 1:
        part = _part(where, subjects[0], limits, fleet)
        parts, said = [part], [part.says]
    else:
        parts = [_part_or_error(where, one, limits, fleet) for one in subjects]
        said = [
            f"{_title(one)}: {part.says}"
            for one, part in zip(subjects, parts, strict=True)
            if part.says
        ]
    reports = [msgspec.structs.replace(one, not_read=()) for part in parts for one in part.reports]
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


def _part_or_error(
    where: Cluster, subject: NamedSubject | ManyPods, limits: Limits, fleet: Fleet
) -> _Part:
    try:
        return _part(where, subject, limits, fleet)
    except DriverError as error:
        return _Part((_unknown(_title(subject), str(error)),))


def _part(where: Cluster, subject: NamedSubject | ManyPods, limits: Limits, fleet: Fleet) -> _Part:
    if not isinstance(subject, WorkloadSubject | PendingSubject):
        found = list(resolve(where.state, subject, recorded=where.recorded))
        return _Part((answer(found, limits, fleet),))
    found_pods = pods_of(where, subject)
    reports = list(_of_pods(found_pods.waiting, limits, fleet))
    if found_pods.lacking:
        reports.append(_unknown(subject.title, found_pods.lacking))
    return _Part(tuple(reports), found_pods.says)


def explain_pods(
    state: ClusterState, pods: Sequence[Pod], *, cancelled: Callable[[], bool]
) -> Iterator[tuple[Report, tuple[Pod, ...]]]:
    """Yield a report, and the pods that it is about: those that ask for the same. The order is that of the first of them.

    `state` is what `readable` returns, and `pods` are of it. While `cancelled` returns True, the reports say that there was no time.
    """
    for report, alike in _grouped(pods, Limits("", cancelled), Fleet(state)):
        yield report, tuple(one.pod for one in alike)


def _of_pods(pods: Sequence[Pod], limits: Limits, fleet: Fleet) -> Iterator[Report]:
    for report, alike in _grouped(pods, limits, fleet):
        names = tuple(full_name(one.pod.metadata) for one in alike[1:])
        yield msgspec.structs.replace(report, alike=names)


def _grouped(
    pods: Sequence[Pod], limits: Limits, fleet: Fleet
) -> Iterator[tuple[Report, list[ResolvedPod]]]:
    alike: dict[object, list[ResolvedPod]] = {}
    for pod in pods:
        one = of_pod(fleet.state, pod, live=True)
        alike.setdefault(_deciding(one), []).append(one)
    for equal in alike.values():
        if limits.stop():
            # For many pods, even the preparation of their searches would take too long.
            yield _unknown(equal[0].title, NO_TIME, "timeout"), equal
            continue
        report = answer(equal[:1], limits, fleet)
        if limits.stop():
            # What was not found out in time is no answer for the next ones, which may have time of their own.
            fleet = Fleet(fleet.state)
        yield report, equal


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
    against = [type(reason) for reason in (*unusable(claim, pod), *not_owned(claim, pod))]
    return claim.spec, claim.status, claim.metadata.deletion_timestamp is None, against


def _unknown(title: str, why: str, cause: str = "") -> Report:
    return Report(
        subject=title,
        outcome="could not tell",
        exit_code=EXIT_CODES["could not tell"],
        summary=why,
        verdicts=(CouldNotTell(cause, why),) if cause else (),
    )


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
