# SPDX-License-Identifier: Apache-2.0
"""How does `explain` get from one pod, or claims without a pod, to its report?

In five steps. Each step uses only the results of the steps before it:
1. the facts,
2. the requests: every device is checked for each request,
3. the nodes: the allocator runs on each,
4. the requests again: why they get no device, and which changes help,
5. the report.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import msgspec
from msgspec import Struct

from dra_driver.explain.claim_request import is_of_scheduler
from dra_driver.explain.conflict import constraint_text
from dra_driver.explain.facts.binding import BROKEN, is_said_of_binding
from dra_driver.explain.facts.claim_problems import MALFORMED, ClaimFacts
from dra_driver.explain.facts.claim_state import chosen_devices, is_allocated
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.facts.named_node import named, refused_for, starts_without
from dra_driver.explain.given_back import give_back
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.not_read import (
    Asked,
    doubts_about_devices,
    doubts_about_node_resources,
    doubts_about_nodes,
)
from dra_driver.explain.on_node import on_node, unknown_node, without_node
from dra_driver.explain.outcome import EXIT_CODES, Change, ClaimReport, NodeGroup, Outcome, Report
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.remedy import NO_NODES, POD_OVER
from dra_driver.explain.requests import RequestsExplained
from dra_driver.explain.subject.lookup import node_named
from dra_driver.explain.subject.subject import NewNode, Resolved
from dra_driver.explain.summary import after, outcome_of, summary
from dra_driver.explain.tried_changes import TriedChanges
from dra_driver.explain.tried_nodes import try_on_all
from dra_driver.explain.verdict import (
    AdminAccessNotAllowed,
    BindingConditionsPending,
    ConstraintConflict,
    CouldNotTell,
    Fits,
    OtherCondition,
    SchedulingGated,
    TooManyDevices,
    Verdict,
)
from dra_driver.explain.verdicts.pod import (
    LISTS_NONE,
    NAMED_NODE,
    NAMED_UNFIT,
    NO_SUCH_NODE,
    STARTS_WITHOUT,
)
from dra_driver.model.api.core import OVER, Pod
from dra_driver.model.exit_codes import COULD_NOT_TELL

CUT = CouldNotTell(
    "timeout",
    "the time was over before all reasons were found; that the devices do not fit is certain",
)


class Limits(Struct, frozen=True):
    """The `node` that the report is about, "" for all nodes; `stop` returns True when no caller waits for the report any more.

    `among` are several such nodes. `added` is a node that the cluster does not have, and whose help is tried. `changes`: whether changes that help are searched.
    """

    node: str
    stop: Callable[[], bool]
    added: NewNode | None = None
    changes: bool = True
    among: tuple[str, ...] = ()


class Explanation:
    """The steps for one subject; each runs when its result is first read.

    `fleet` is that of another subject; if it is of the same cluster, both share it. Raises Permanent if the node in `limits` does not
    exist.
    """

    def __init__(self, subject: Resolved, limits: Limits, fleet: Fleet | None = None) -> None:
        self._limits = limits
        state = subject.state
        only = [node_named(state, limits.node)] if limits.node else None
        if limits.among:
            only = [one for one in state.nodes if one.metadata.name in limits.among]
        if fleet is None or fleet.state is not state:
            fleet = Fleet(state)
        self._asked = subject
        if named(subject) and subject.pod:
            subject = without_node(subject, subject.pod)  # what is in the way is told besides
        found = give_back(subject, fleet, limits.stop)
        self._subject = found.subject
        self._given_back = found.claims
        self._unbound = tuple(one for one in found.claims if isinstance(one, BROKEN))
        self.facts = Facts(found.subject, found.fleet, only, limits.stop)

    @cached_property
    def _requests(self) -> list[RequestExplained]:
        facts = self.facts
        # A pod may name a claim several times: the claim has to be served as often, but is explained once.
        once = {(id(one.claim), one.name): one for one in facts.requests}
        return [
            RequestExplained(facts.fleet, one, facts.nodes, facts.stop, facts.own_allocated)
            for one in once.values()
        ]

    @cached_property
    def nodes(self) -> NodesExplained:
        """What is in the way on each node."""
        return NodesExplained(self.facts, self._requests)

    @cached_property
    def report(self) -> Report:
        """The answer."""
        return on_node(self.facts, self._limits.node) or self._pending()

    @property
    def only_lacks_devices(self) -> bool:
        """Whether the pod waits for devices and for nothing else: no node name, no gate and no claim keeps it from them."""
        gates = self._subject.pod and self._subject.pod.spec.scheduling_gates
        refused = any(_refusing(self.facts.claims_explained))
        return self.nodes.lack_devices and not (named(self._asked) or gates or refused)

    @property
    def only_room_is_unknown(self) -> bool:
        """Whether the devices fit, and all that is unknown is whether the nodes with such devices have room for the pod."""
        nodes, report = self.nodes, self.report
        unknown = tuple(one for one in report.verdicts if isinstance(one, CouldNotTell))
        if report.exit_code != COULD_NOT_TELL or nodes.fatal or not unknown:
            return False
        return unknown == doubts_about_nodes(self._subject.state, nodes.deciding)

    @cached_property
    def _in_the_way(self) -> tuple[Verdict, ...]:
        """What is in the way of a pod that names its node although it gets no devices there; () if that is not so."""
        where = named(self._asked)
        if not where:
            return ()
        if unknown_node(self._asked):
            return (OtherCondition(NO_SUCH_NODE, where),)
        condition = NAMED_NODE if self._may_fit_on(where) else NAMED_UNFIT
        resources = {
            STARTS_WITHOUT: starts_without(self._asked),
            LISTS_NONE: refused_for(self._asked),
        }
        more = (OtherCondition(one, ", ".join(of)) for one, of in resources.items() if of)
        return (OtherCondition(condition, where), *more)

    def _may_fit_on(self, name: str) -> bool:
        """Return False if the devices certainly do not fit on the node, which the report need not be about."""
        facts = self.facts
        nodes = [one for one in facts.subject.state.nodes if one.metadata.name == name]
        tried = try_on_all(Facts(facts.subject, facts.fleet, nodes, facts.stop))
        return not tried or any(one.fits or one.result.cancelled for one in tried)

    def _pending(self) -> Report:
        nodes = self.nodes
        requests = RequestsExplained(self.facts, self._requests, nodes)
        claims = self.facts.claims_explained
        groups = self._groups()
        holders = self.facts.fleet.holders
        reports = tuple(_claim_report(one, requests, holders) for one in claims)
        # The reasons come before the changes, which take all the time that is left.
        is_cut = self._limits.stop()
        changes: tuple[Change, ...] = ()
        useless = ""
        if self._limits.changes and (nodes.fatal or nodes.lack_devices):
            tried = TriedChanges(self.facts, nodes, requests, self._limits.added)
            changes, useless = tuple(_allowed(tried.changes(), claims)), tried.no_help()
        verdicts = tuple(self._verdicts())
        outcome = outcome_of(claims, nodes, verdicts, allocating=bool(self.facts.claims))
        if outcome == "devices fit":
            outcome, more = self._besides()
            verdicts = (*verdicts, *more)
        verdicts = (*verdicts, *self._conflicts(groups))
        reasons = (*verdicts, *(one for claim in claims for one in claim.verdicts))
        says = summary(outcome, nodes, reasons, claims, self._subject.pod)
        if self._in_the_way:
            verdicts = (*self._in_the_way, *verdicts)
            says = f"{self._in_the_way[0]}; without it, {says}"
            if outcome == "devices fit":
                outcome = "devices fit, something else is in the way"
        if outcome == "devices fit":
            verdicts = (Fits(nodes.first_placement()), *verdicts)
        if outcome == "devices do not fit" and is_cut:
            verdicts = (*verdicts, CUT)
        return Report(
            subject=self._subject.title,
            outcome=outcome,
            exit_code=EXIT_CODES[outcome],
            summary=f"{says}{after(self._given_back)}",
            cluster=self._subject.state.kubernetes_version,
            verdicts=(*verdicts, *self._unbound),
            claims=reports,
            nodes=groups,
            changes=changes,
            no_help=useless,
            not_read=self._subject.state.not_read,
        )

    def _verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts about the subject as a whole."""
        nodes, pod = self.nodes, self._subject.pod
        doubts = tuple(doubts_about_devices(self.facts.fleet, self._answer))
        yield from doubts
        if pod and nodes.fatal and nodes.some_fit:
            yield from doubts_about_nodes(self._subject.state, nodes.deciding)
        gates = (pod.spec.scheduling_gates or ()) if pod else ()
        if gates:
            yield SchedulingGated(tuple(gate.name for gate in gates))
        if nodes.malformed and not doubts:
            yield CouldNotTell(MALFORMED, nodes.malformed)
        if nodes.cancelled:
            yield CouldNotTell("timeout", "the search took too long on some node")
        state = self._subject.state
        if not state.nodes and state.unread("nodes") is None:
            yield NO_NODES

    @property
    def _answer(self) -> Asked:
        nodes = self.nodes
        fatal, deciding = bool(nodes.fatal), nodes.deciding
        return Asked(
            requests=self._requests,
            claims={one.name for one in self.facts.wanted},
            fit=nodes.some_fit,
            # An error is certain only from a node that certainly takes the pod. Devices fit on a node whether or not it does.
            nodes=[one for one in deciding if not (fatal and one in nodes.uncounted)],
            fatal=fatal,
        )

    def doubts_about_more_devices(self) -> tuple[CouldNotTell, ...]:
        """Return the unread objects that may offer devices besides those that the report counts."""
        counted = msgspec.structs.replace(self._answer, fit=False, nodes=(), fatal=False)
        return tuple(doubts_about_devices(self.facts.fleet, counted))

    def _besides(self) -> tuple[Outcome, tuple[Verdict, ...]]:
        """Return the outcome if devices and nodes fit, and the verdicts that change it.

        The pod's PodScheduled condition may be False for another reason. Or some pods could not be read, and may use the node.
        """
        subject = self._subject
        if subject.pod is None:
            return "devices fit", ()
        if subject.live and (over := _why_over(subject.pod)):
            return "devices fit, something else is in the way", (OtherCondition(POD_OVER, over),)
        for condition in (subject.pod.status.conditions or ()) if subject.live else ():
            if condition.type == "PodScheduled" and condition.status == "False":
                if self._unbound and is_said_of_binding(condition.message):
                    continue  # it ends when the scheduler tries again
                reason = condition.reason or "PodScheduled is False"
                said = OtherCondition(reason, condition.message)
                return "devices fit, something else is in the way", (said,)
        had = (one.claim for one in self.facts.wanted if one.claim)
        own = tuple(device for claim in had for device in chosen_devices(claim))
        placements = ((*own, *chosen) for chosen in self.nodes.placements())
        doubts = (
            *doubts_about_nodes(subject.state, self.nodes.deciding),
            *doubts_about_node_resources(self.facts.fleet, placements),
        )
        return ("could not tell" if doubts else "devices fit"), doubts

    def _groups(self) -> tuple[NodeGroup, ...]:
        # If the spec of a claim is not known, the nodes on which it fits are not known.
        known = self.facts.claims or all(one.claim for one in self.facts.wanted)
        return self.nodes.groups() if known else ()

    def _conflicts(self, groups: tuple[NodeGroup, ...]) -> tuple[Verdict, ...]:
        """Return the first conflict between requests, for the whole subject; () if there is none, or the devices fit on a node."""
        if self.nodes.some_fit:
            return ()
        found = (
            one for group in groups for one in group.devices if isinstance(one, ConstraintConflict)
        )
        return tuple(found)[:1]


def _allowed(changes: Iterable[Change], claims: Iterable[ClaimFacts]) -> Iterator[Change]:
    """Yield the changes with what the API server needs besides; none if the pod could not use one of the claims after them."""
    others = list(_refusing(claims))
    unlabeled = [one for one in others if isinstance(one, AdminAccessNotAllowed)]
    if len(unlabeled) < len(others):
        return
    also = "".join(
        f'; label namespace {one.namespace} with {one.label}: "true"'
        for one in dict.fromkeys(unlabeled)
    )
    yield from (msgspec.structs.replace(one, what=f"{one.what}{also}") for one in changes)


def _refusing(claims: Iterable[ClaimFacts]) -> Iterator[Verdict]:
    """Yield the problems that certainly keep the pod from a claim, whichever devices are free."""
    passing = CouldNotTell | TooManyDevices | BindingConditionsPending
    problems = (one for claim in claims for one in claim.problems)
    return (one for one in problems if not isinstance(one, passing))


def _why_over(pod: Pod) -> str:
    """Return why the scheduler will not place the pod; "" if it may."""
    if pod.status.phase in OVER:
        return f"its phase is {pod.status.phase}"
    since = pod.metadata.deletion_timestamp
    return f"it is being deleted since {since}" if since else ""


def _claim_report(claim: ClaimFacts, requests: RequestsExplained, holders: Holders) -> ClaimReport:
    wanted = claim.wanted
    has = wanted.claim is not None and is_allocated(wanted.claim)
    spec = None if has else wanted.claim
    return ClaimReport(
        name=wanted.name,
        origin=wanted.origin,
        verdicts=claim.verdicts,
        allocated=chosen_devices(wanted.claim) if wanted.claim else (),
        used_by=holders.named(wanted.name).pods if has else (),
        constraints=tuple(map(constraint_text, spec.spec.devices.constraints or ()))
        if spec
        else (),
        requests=requests.reports(spec) if spec else (),
        of_scheduler=wanted.claim is not None and is_of_scheduler(wanted.claim),
    )
