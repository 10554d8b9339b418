# SPDX-License-Identifier: Apache-2.0
"""Why is this pod or claim pending, or which devices would it get? The whole answer, from a cluster's state alone.

This module is the entry point of the package. First it finds the pod or claim in question. Then `explanation` answers for one pod,
and `all_pods` for all pods of a file together.
"""

from collections.abc import Callable, Sequence

import msgspec

from dra_driver.explain.all_pods import explain_together, no_pods, one_of
from dra_driver.explain.explanation import Explanation, Limits
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.outcome import EXIT_CODES, Report
from dra_driver.explain.readable import readable
from dra_driver.explain.subject.lookup import node_named
from dra_driver.explain.subject.resolve import resolve
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    ManifestSubject,
    NewNode,
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
    "NewNode",
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
    added: NewNode | None = None,
) -> Report:
    """Return the report; with `node` for that node alone. For several pods: the report of one that does not fit, if there is one.

    `cancelled` is called before and during each search; once it returns True, every search stops. `recorded` means that the
    cluster's state comes from a file: then messages do not advise kubectl commands. `added` is a node whose help is tried. Raises
    Permanent if the subject or the node does not exist.
    """
    state = readable(state)
    if node:
        node_named(state, node, recorded=recorded)
    return answer(list(resolve(state, subject, recorded=recorded)), Limits(node, cancelled, added))


def answer(subjects: Sequence[Resolved], limits: Limits, fleet: Fleet | None = None) -> Report:
    """Return the report about what one subject means, in a cluster whose quantities can all be parsed.

    `fleet` is shared by all that is explained in the same cluster.
    """
    pods = [one for one in subjects if isinstance(one, ResolvedPod)]
    report = _of_pods(pods, limits, fleet) if pods else _of_claims(subjects, limits, fleet)
    return _with_passed_over(report, subjects[0].passed_over)


def _of_claims(subjects: Sequence[Resolved], limits: Limits, fleet: Fleet | None) -> Report:
    """Explain claims or templates without a pod, each by itself: no pod is known that uses them together."""
    reports: list[Report] = []
    for place, one in enumerate(subjects, 1):
        report = Explanation(one, limits, fleet).report
        if report.exit_code and len(subjects) > 1:
            return one_of(report, place, len(subjects))
        reports.append(report)
    return one_of(reports[0], 1, len(subjects)) if len(subjects) > 1 else reports[0]


def _of_pods(subjects: Sequence[ResolvedPod], limits: Limits, fleet: Fleet | None) -> Report:
    """Explain each pod alone first. If each pod fits alone, explain whether all fit together."""
    subjects = [one for one in subjects if not (one.workload and one.workload.is_empty)] or subjects
    if subjects[0].workload and subjects[0].workload.is_empty:
        return no_pods(subjects)
    if len(subjects) == 1:
        if subjects[0].workload:
            return explain_together(subjects, None, limits)
        return Explanation(subjects[0], limits, fleet).report
    first: Report | None = None
    for place, one in enumerate(subjects, 1):
        report = Explanation(after(one, one.state, 1 if one.workload else 0), limits).report
        if report.exit_code:
            return one_of(report, place, len(subjects))
        first = first or report
    return explain_together(subjects, first, limits)


def _with_passed_over(report: Report, passed_over: tuple[str, ...]) -> Report:
    """Add to the report the objects of the file that `explain` ignored.

    If all other objects fit, the outcome becomes "could not tell", because the ignored objects may not fit.
    """
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
