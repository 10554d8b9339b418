# SPDX-License-Identifier: Apache-2.0
"""Why is this pod or claim pending, or what would it get? The whole answer, from a cluster's state alone.

The door of the room. The subject is found first; `explanation` answers for one pod, `all_pods` for all pods of a file together.
"""

from collections.abc import Callable, Sequence

import msgspec

from dra_driver.explain.all_pods import explain_together, no_pods, one_of
from dra_driver.explain.explanation import Explanation, Limits
from dra_driver.explain.outcome import EXIT_CODES, Report
from dra_driver.explain.readable import readable
from dra_driver.explain.subject.lookup import node_named
from dra_driver.explain.subject.resolve import resolve
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    Resolved,
    ResolvedPod,
    Subject,
    TemplateSubject,
)
from dra_driver.explain.subject.wanted import after
from dra_driver.model.cluster import ClusterState

__all__ = [
    "ClaimSubject",
    "ManifestSubject",
    "PodSubject",
    "Subject",
    "TemplateSubject",
    "explain",
]


def explain(
    state: ClusterState,
    subject: Subject,
    *,
    node: str = "",
    cancelled: Callable[[], bool] = lambda: False,
    recorded: bool = False,
) -> Report:
    """The answer; with `node` for that node alone. Of several pods that of one that does not fit. Raises Permanent.

    `cancelled` is called before and during each search; once it answers True no search goes on. `recorded` says that the cluster's
    state comes from a file, so that messages do not send people to kubectl.
    """
    state = readable(state)
    if node:
        node_named(state, node, recorded=recorded)
    subjects = list(resolve(state, subject, recorded=recorded))
    limits = Limits(node, cancelled)
    pods = [one for one in subjects if isinstance(one, ResolvedPod)]
    report = _of_pods(pods, limits) if pods else _of_claims(subjects, limits)
    return _with_passed_over(report, subjects[0].passed_over)


def _of_claims(subjects: Sequence[Resolved], limits: Limits) -> Report:
    """Claims or templates without a pod, each by itself: nothing says that one pod uses them together."""
    reports: list[Report] = []
    for place, one in enumerate(subjects, 1):
        report = Explanation(one, limits).report
        if report.exit_code and len(subjects) > 1:
            return one_of(report, place, len(subjects))
        reports.append(report)
    return one_of(reports[0], 1, len(subjects)) if len(subjects) > 1 else reports[0]


def _of_pods(subjects: Sequence[ResolvedPod], limits: Limits) -> Report:
    """Each pod alone first. Only if each alone fits, it is a question whether they fit together."""
    subjects = [one for one in subjects if not (one.workload and one.workload.is_empty)] or subjects
    if subjects[0].workload and subjects[0].workload.is_empty:
        return no_pods(subjects)
    if len(subjects) == 1:
        if subjects[0].workload:
            return explain_together(subjects, None, limits)
        return Explanation(subjects[0], limits).report
    first: Report | None = None
    for place, one in enumerate(subjects, 1):
        report = Explanation(after(one, one.state, 1 if one.workload else 0), limits).report
        if report.exit_code:
            return one_of(report, place, len(subjects))
        first = first or report
    return explain_together(subjects, first, limits)


def _with_passed_over(report: Report, passed_over: tuple[str, ...]) -> Report:
    """With pods or devices in the file that are not looked at, nobody can say that all of it fits."""
    if not passed_over:
        return report
    report = msgspec.structs.replace(report, passed_over=passed_over)
    if report.exit_code:
        return report
    return msgspec.structs.replace(
        report,
        outcome="could not tell",
        exit_code=EXIT_CODES["could not tell"],
        summary=f"{report.summary}; but the file has more, which is not looked at",
    )
