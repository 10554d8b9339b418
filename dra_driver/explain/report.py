# SPDX-License-Identifier: Apache-2.0
"""Why is this pod or claim pending, or what would it get? The whole answer, from a cluster's state alone.

First the claims themselves: are they there, allocated, usable. Then each request before all devices, then all claims
together on each node by the scheduler's own allocator, whose word decides. Then what else keeps the pod from the nodes
whose devices fit. At last, where nothing fits, changes are tried until one would do.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property

import msgspec

from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.explain.all_pods import no_pods, one_of, together
from dra_driver.explain.claim_request import ClaimRequest, requests_in
from dra_driver.explain.extended import Extended
from dra_driver.explain.facts import extended_resources
from dra_driver.explain.facts.claim_state import (
    admin_access_allowed,
    binding,
    chosen,
    elsewhere,
    full_name,
    not_owned,
    unusable,
)
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_filters import PodFilters
from dra_driver.explain.facts.readable import readable
from dra_driver.explain.nodes import MALFORMED, NodesExplained
from dra_driver.explain.not_read import about_devices, about_pods
from dra_driver.explain.outcome import EXIT_CODES, Change, ClaimReport, NodeGroup, Outcome, Report
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.remedy import NO_NODES
from dra_driver.explain.replicas import Placed, daemon_nodes, fill, names, shares_a_claim
from dra_driver.explain.requests import RequestsExplained
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    Resolved,
    Subject,
    TemplateSubject,
    WantedClaim,
    after,
    node_named,
    resolve,
)
from dra_driver.explain.summary import can_still_come, summary
from dra_driver.explain.trial import NodeEquivalence
from dra_driver.explain.verdict import (
    AdminAccessNotAllowed,
    ConstraintConflict,
    CouldNotTell,
    FeatureOff,
    Fits,
    OtherCondition,
    SchedulingGated,
    TooManyDevices,
    Verdict,
)
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.cluster import ClusterState
from dra_driver.model.gates import ALLOCATION

__all__ = [
    "ClaimSubject",
    "ManifestSubject",
    "PodSubject",
    "Subject",
    "TemplateSubject",
    "explain",
]

_NO_ALLOCATION = FeatureOff(ALLOCATION, "a claim")
_LABELS_SINCE = 33
"""The release from which on admin access needs a label of the namespace."""


def explain(
    state: ClusterState,
    subject: Subject,
    *,
    node: str = "",
    cancelled: Callable[[], bool] = lambda: False,
    recorded: bool = False,
) -> Report:
    """The answer; with `node` for that node alone. Of several pods one that is not served. Raises Permanent.

    `recorded` says that the cluster's state comes from a file, in which nobody can look with kubectl.
    """
    state = readable(state)
    if node:
        node_named(state, node, recorded=recorded)
    subjects = list(resolve(state, subject, recorded=recorded))
    passed_over = subjects[0].passed_over
    return _with_passed_over(_of_all(subjects, node, cancelled), passed_over)


def _of_all(subjects: Sequence[Resolved], node: str, cancelled: Callable[[], bool]) -> Report:
    def explanation(one: Resolved, only: str = "") -> _Explanation:
        return _Explanation(one, only or node, cancelled)

    subjects = [one for one in subjects if not (one.workload and one.workload.is_empty)] or subjects
    if subjects[0].workload and subjects[0].workload.is_empty:
        return no_pods(subjects)
    if len(subjects) == 1:
        if subjects[0].workload:
            return together(subjects, None, explanation)
        return explanation(subjects[0]).report()
    first: Report | None = None
    for place, one in enumerate(subjects, 1):
        report = explanation(after(one, one.state, 1 if one.workload else 0)).report()
        if report.exit_code:
            return one_of(report, place, len(subjects))
        first = first or report
    if subjects[0].pod is None and first is not None:
        return one_of(first, 1, len(subjects))
    return together(subjects, first, explanation)


def _with_passed_over(report: Report, passed_over: tuple[str, ...]) -> Report:
    """With pods or devices of the file that nobody looked at, nobody can say that all of it fits."""
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


class _Explanation:
    """The making of one report."""

    def __init__(self, resolved: Resolved, node: str, cancelled: Callable[[], bool]) -> None:
        self._resolved = resolved
        self._pod = resolved.pod
        self.fleet = Fleet(resolved.state)
        self._cancelled = cancelled
        self._node = node
        nodes = [node_named(resolved.state, node)] if node else resolved.state.nodes
        self._reach = DeviceNodes(nodes)
        self._extended = Extended(self._pod, self.fleet, self._reach)
        self._wanted = (*resolved.wanted, *self._extended.wanted())
        self._claim_verdicts = {one.name: tuple(self._judge_claim(one)) for one in self._wanted}
        claims = (one.claim for one in self._wanted if one.claim)
        self._new = [claim for claim in claims if not _is_allocated(claim)]
        self._requests = [
            RequestExplained(self.fleet, asked, self._reach)
            for claim in self._new
            for asked in requests_in(claim)
        ]

    def _judge_claim(self, wanted: WantedClaim) -> Iterator[Verdict]:
        yield from wanted.verdicts
        claim = wanted.claim
        if claim is None:
            return
        yield from unusable(claim, self._pod)
        if wanted.made and wanted.own and self._pod is not None:
            yield from not_owned(claim, self._pod)
        if _is_allocated(claim):
            if self.fleet.rules.binding_conditions and not self._is_bound():
                yield from binding(claim)
            return
        if not self.fleet.is_on(ALLOCATION):
            yield _NO_ALLOCATION
        yield from _without_kind(claim)
        requests = list(requests_in(claim))
        least = sum(min(counts) for counts in _counts(requests).values())
        if least > MAX_RESULTS:
            yield TooManyDevices(least)
        admin = self.fleet.rules.admin_access and any(one.admin_access for one in requests)
        if admin and not wanted.made:
            yield from self._admin_access(claim)

    def _admin_access(self, claim: ResourceClaim) -> Iterator[Verdict]:
        state, name = self._resolved.state, claim.metadata.namespace
        if state.minor is not None and state.minor < _LABELS_SINCE:
            return
        found = next((one for one in state.namespaces if one.metadata.name == name), None)
        gap = state.unread("namespaces", name)
        if gap is not None and found is None:
            yield CouldNotTell(gap.reason, gap.message)
            return
        if not admin_access_allowed(found, state.minor):
            yield AdminAccessNotAllowed(name)

    def _is_bound(self) -> bool:
        return self._pod is not None and bool(self._pod.spec.node_name) and self._resolved.live

    def report(self) -> Report:
        """The answer."""
        if self._is_bound():
            return self._bound()
        nodes = self.nodes
        requests = RequestsExplained(self.fleet, self._reach, self._requests, nodes)
        changes = () if nodes.some_fit and not nodes.fatal else requests.changes()
        claims = tuple(self._claim(one, requests) for one in self._wanted)
        verdicts = tuple(self._verdicts(nodes))
        outcome = self._outcome(claims, nodes, verdicts)
        if outcome == "devices fit" and (said := self._scheduler_says()) is not None:
            verdicts = (*verdicts, said)
            outcome = "devices fit, something else is in the way"
        elif outcome == "devices fit" and self._pod and (hidden := about_pods(self.fleet.state)):
            verdicts = (*verdicts, *hidden)
            outcome = "could not tell"
        return self._finished(outcome, claims, nodes, (verdicts, changes))

    def _bound(self) -> Report:
        pod = self._pod
        where = pod.spec.node_name if pod else ""
        elsewhere = self._node and self._node != where
        besides = (
            f"; node {self._node} was not looked at, for the pod stays there" if elsewhere else ""
        )
        devices = tuple(one for w in self._wanted if w.claim for one in chosen(w.claim))
        claims = tuple(
            ClaimReport(name=one.name, origin=one.origin, allocated=chosen(one.claim))
            for one in self._wanted
            if one.claim and one.made
        )
        return Report(
            subject=self._resolved.title,
            outcome="devices fit",
            exit_code=0,
            summary=f"scheduled on node {where}{besides}",
            cluster=self._resolved.state.kubernetes_version,
            verdicts=(Fits(devices),),
            claims=claims,
            nodes=(NodeGroup(count=1, nodes=(where,), placement=devices),),
            not_read=self._resolved.state.not_read,
        )

    @cached_property
    def nodes(self) -> NodesExplained:
        """What is the matter on each node."""
        pods = self._resolved.state.pods
        filters = self.filters(self._pod, pods) if self._pod else None
        alikeness = NodeEquivalence(self.fleet, self._reach, self._requests)
        return NodesExplained(self.fleet, alikeness, filters, self)

    def filters(self, pod: Pod, pods: Sequence[Pod]) -> PodFilters:
        """What nodes are asked for the pod, or for one like it, where these pods are there."""
        return PodFilters(pod, pods, self._extended.names)

    def daemon_nodes(self) -> Sequence[str]:
        """The nodes that get one pod each, if it is one of a DaemonSet."""
        return daemon_nodes(self.nodes)

    def fill(
        self, count: int, number: int, among: Collection[str] | None = None
    ) -> Sequence[Placed]:
        """Where as many pods like this one find their devices. A claim that is theirs together has to be allocated first."""
        if self._pod is None:
            return ()
        made = [one for one in self._new if one.metadata.name != extended_resources.NAME]
        count = 1 if shares_a_claim(made, self._pod) else count
        workload = self._resolved.workload
        return fill(self, names(workload.pod if workload else self._pod, number), count, among)

    def claims_on(self, node: Node) -> list[ResourceClaim]:
        """The claims that would have to be allocated if the pod went to the node."""
        made = [one for one in self._new if one.metadata.name != extended_resources.NAME]
        return [*made, *self._extended.claim_on(node)]

    def elsewhere(self, node: Node) -> tuple[Verdict, ...]:
        """What is the same wherever one looks, and claims that have devices which cannot be used from the node."""
        allocated = tuple(
            reason
            for one in self._wanted
            if one.claim and _is_allocated(one.claim)
            for reason in elsewhere(one.claim, node)
        )
        off = bool(self._new) and not self.fleet.is_on(ALLOCATION)
        return (*((_NO_ALLOCATION,) if off else ()), *self._extended.refused, *allocated)

    def fatal_elsewhere(self) -> str:
        """The error that stops the pod on all nodes and that the scheduler meets on a node that is not looked at."""
        return _Explanation(self._resolved, "", self._cancelled).nodes.fatal if self._node else ""

    def offered(self, node: Node) -> tuple[str, ...]:
        """What the node lacks of the extended resources, so that nodes are told apart by it."""
        return self._extended.offered(node)

    def requests_of(self, claims: Sequence[ResourceClaim]) -> list[RequestExplained]:
        """The requests of these claims, explained; those of a claim for a node by their names."""
        names = {(full_name(claim), asked.name) for claim in claims for asked in requests_in(claim)}
        return [
            one for one in self._requests if (full_name(one.asked.claim), one.asked.name) in names
        ]

    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._cancelled()

    def _claim(self, wanted: WantedClaim, requests: RequestsExplained) -> ClaimReport:
        claim = wanted.claim
        return ClaimReport(
            name=wanted.name,
            origin=wanted.origin,
            verdicts=self._claim_verdicts[wanted.name],
            allocated=chosen(claim) if claim else (),
            requests=requests.reports(claim) if claim and not _is_allocated(claim) else (),
        )

    def _verdicts(self, nodes: NodesExplained) -> Iterator[Verdict]:
        state = self._resolved.state
        classes = {one.asked.body.device_class_name for one in self._requests}
        names = {one.name for one in self._wanted}
        hidden = tuple(about_devices(self.fleet, classes, names, fit=nodes.some_fit))
        yield from hidden
        gates = (self._pod.spec.scheduling_gates or ()) if self._pod else ()
        if gates:
            yield SchedulingGated(tuple(gate.name for gate in gates))
        if nodes.malformed and not hidden:
            yield CouldNotTell(MALFORMED, nodes.malformed)
        if nodes.cancelled:
            yield CouldNotTell("timeout", "the search took too long on some node")
        if not state.nodes and state.unread("nodes") is None:
            yield OtherCondition(NO_NODES, "")

    def _outcome(
        self, claims: Sequence[ClaimReport], nodes: NodesExplained, verdicts: Sequence[Verdict]
    ) -> Outcome:
        hard = [
            reason for claim in claims for reason in claim.verdicts if not can_still_come(reason)
        ]
        of_claims = any(isinstance(one, CouldNotTell) for one in hard)
        unknown = of_claims or any(isinstance(one, CouldNotTell) for one in verdicts)
        refused = [one for one in hard if not isinstance(one, CouldNotTell)]
        if refused:
            return "devices do not fit"
        if unknown and (nodes.cancelled or of_claims or self._new):
            return "could not tell"
        if nodes.fatal or not nodes.some_fit:
            return "could not tell" if unknown else "devices do not fit"
        if nodes.allocated_elsewhere and not nodes.some_take_the_pod:
            return "devices do not fit"
        held = any(isinstance(one, SchedulingGated) for one in verdicts)
        late = any(can_still_come(one) for claim in claims for one in claim.verdicts)
        if held or late or not nodes.some_take_the_pod:
            return "devices fit, something else is in the way"
        return "could not tell" if unknown else "devices fit"

    def _scheduler_says(self) -> Verdict | None:
        """What the pod's own condition says, where the pod is pending and everything here fits."""
        if self._pod is None or not self._resolved.live:
            return None
        for condition in self._pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return OtherCondition(
                    condition.reason or "PodScheduled is False", condition.message
                )
        return None

    def _finished(
        self,
        outcome: Outcome,
        claims: tuple[ClaimReport, ...],
        nodes: NodesExplained,
        rest: tuple[tuple[Verdict, ...], tuple[Change, ...]],
    ) -> Report:
        verdicts, changes = rest
        known = self._new or all(one.claim for one in self._wanted)
        groups = nodes.groups() if known else ()  # nobody can say where it would fit
        together = [
            one for group in groups for one in group.devices if isinstance(one, ConstraintConflict)
        ]
        if not nodes.some_fit:
            verdicts = (*verdicts, *together[:1])
        told = (*verdicts, *(one for claim in claims for one in claim.verdicts))
        if outcome == "devices fit":
            verdicts = (Fits(nodes.first_placement()), *verdicts)
        return Report(
            subject=self._resolved.title,
            outcome=outcome,
            exit_code=EXIT_CODES[outcome],
            summary=summary(outcome, nodes, told, claims, self._pod),
            cluster=self._resolved.state.kubernetes_version,
            verdicts=verdicts,
            claims=claims,
            nodes=groups,
            changes=changes,
            not_read=self._resolved.state.not_read,
        )


def _is_allocated(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None


def _without_kind(claim: ResourceClaim) -> Iterator[Verdict]:
    """Requests that ask for nothing: in a newer API a request is one or the other, in an older one it was flat."""
    for request in claim.spec.devices.requests or ():
        if request.exactly is None and not request.first_available:
            yield CouldNotTell(
                MALFORMED,
                f"request {request.name} of claim {full_name(claim)} has neither exactly nor firstAvailable",
            )


def _counts(requests: Sequence[ClaimRequest]) -> dict[int, list[int]]:
    """How many devices the alternatives of each request take at least."""
    counts: dict[int, list[int]] = {}
    for asked in requests:
        least = 0 if asked.all_devices else asked.body.count
        counts.setdefault(asked.indices[0], []).append(least)
    return counts
