# SPDX-License-Identifier: Apache-2.0
"""This module formats the report of `dra-driver explain`: as text for a terminal, or as a JSON document.

The text is short on purpose: what stands between the pod and its devices comes first, and nothing is said twice. The lines about
devices and nodes are made in `dra_driver.cli.explain_lines`.
The JSON document has everything.
"""

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dra_driver.cli.explain_lines import device_lines, node_lines
from dra_driver.cli.render import plain
from dra_driver.explain.names import condition, first_names
from dra_driver.explain.outcome import (
    ClaimReport,
    NodeGroup,
    Report,
    ReportList,
    RequestReport,
)
from dra_driver.explain.proposals import users_of
from dra_driver.explain.remedy import about, fix
from dra_driver.explain.verdict import (
    CompileError,
    ConstraintConflict,
    Fits,
    HeldByClaim,
    NodeResources,
    NodeTainted,
    NotEnoughDevices,
    PoolIncomplete,
    PoolInvalid,
    SelectorError,
    Tainted,
    Verdict,
)
from dra_driver.model.cluster import GATES_PATH

LONGEST_ASK = 240
SHOWN_NODE_GROUPS = 8
SHOWN_FIXES = 5
SHOWN_GAPS = 8
_KEPT = (Tainted, PoolIncomplete, PoolInvalid)
"""What keeps a device from everybody, whoever has it."""
_BOLD, _PLAIN = "\033[1m", "\033[0m"
COLORS = {0: "\033[32m", 1: "\033[31m", 2: "\033[33m", 3: "\033[33m"}


class _Place(NamedTuple):
    """The object for which a verdict was found: a node, or the name of another object."""

    name: str
    is_node: bool = False
    of_scheduler: bool = False  # the claim is one that the scheduler writes
    is_one_of: bool = False  # a request beside others, which may need the same devices


def document(report: Report) -> object:
    """Return the report as dicts and lists, for JSON. Every verdict is an object with the field `reason`."""
    return msgspec.to_builtins(report)


def bold(words: str, *, color: bool) -> str:
    """Return the words for a heading, with control characters escaped."""
    return f"{_BOLD}{plain(words)}{_PLAIN}" if color else plain(words)


def wrapped(words: str, width: int, *, indent: str = "", first: str = "") -> list[str]:
    """Return the words as lines of at most `width` characters; only a single long word can be longer."""
    return textwrap.wrap(
        plain(" ".join(words.split())),
        width,
        initial_indent=first or indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def not_read(found: Report | ReportList, *, width: int, color: bool) -> list[str]:
    """Return the lines about what could not be read; none if everything was."""
    return list(_Writer(width, color=color).not_read(found))


def text(report: Report, *, width: int, color: bool) -> list[str]:
    """Return the report as lines of at most `width` characters; only a single long word can be longer."""
    return list(_Writer(width, color=color).report(report))


class _Writer:
    """Yields the lines of a report, section by section, in the order in which `report` calls the methods."""

    def __init__(self, width: int, *, color: bool) -> None:
        self._width = max(width, 40)
        self._color = color

    def report(self, report: Report) -> Iterator[str]:
        mark = COLORS[report.exit_code] if self._color else ""
        title = plain(f"{report.subject}: {report.outcome}")
        yield f"{mark}{_BOLD}{title}{_PLAIN}" if self._color else title
        yield from self._wrapped(report.summary, 2)
        for verdict in report.verdicts:
            if not isinstance(verdict, Fits) and str(verdict) not in report.summary:
                yield from self._wrapped(str(verdict), 2)
        for claim in report.claims:
            yield ""
            yield from self._claim(claim, report.summary)
        if report.changes or report.no_help:
            yield ""
            yield self._heading("What would help (tried out)")
            for change in report.changes:
                on = f" -> fits on {change.on}" if change.on else ""
                yield from self._item(f"{change.what}{on}")
            if report.no_help:
                yield from self._item(report.no_help)
        if report.nodes:
            yield ""
            yield from self._nodes(report.nodes)
        yield from self._fixes(report)
        if report.passed_over:
            yield ""
            yield self._heading("Not looked at")
            for one in report.passed_over:
                yield from self._item(one)
        yield from self.not_read(report)

    def _claim(self, claim: ClaimReport, said: str) -> Iterator[str]:
        origin = f", from {claim.origin}" if claim.origin else ""
        yield self._heading(f"Claim {claim.name}{origin}")
        for verdict in claim.verdicts:
            yield from self._wrapped(str(verdict), 2)
        for device in claim.allocated:
            yield from self._wrapped(f"has {device} for request {device.request}", 2)
        if claim.used_by:
            yield from self._wrapped(f"used by {first_names(claim.used_by)}", 2)
        for request in claim.requests:
            yield from self._request(request, said)
        for constraint in claim.constraints:
            yield from self._wrapped(f"constraint: {constraint}", 4, first="  ")

    def _request(self, request: RequestReport, said: str) -> Iterator[str]:
        asks = request.asks
        if len(asks) > LONGEST_ASK:
            asks = f"{asks[:LONGEST_ASK]} …"
        words = f"request {request.name}: {asks}"
        yield from self._wrapped(words, 4, first="  ")
        for verdict in request.verdicts:
            if isinstance(verdict, CompileError):
                yield from self._refused(verdict)
            elif isinstance(verdict, SelectorError) and verdict.message in said:
                yield from self._item(f"{condition(verdict.part)}: {verdict.in_brief}", 4)
            else:
                yield from self._item(str(verdict), 4)
        for line in device_lines(request):
            yield from self._item(line, 4)

    def _refused(self, error: CompileError) -> Iterator[str]:
        """Yield the lines of a CEL compile error. They are not wrapped, because a caret in them points at a column."""
        yield from self._item(f"{error.source} selector #{error.index} does not compile:", 4)
        for line in error.message.splitlines():
            yield f"        {plain(line)}"
        if error.hint:
            yield from self._wrapped(error.hint, 8)

    def _nodes(self, reported: Sequence[NodeGroup]) -> Iterator[str]:
        yield self._heading("Nodes")
        for line in node_lines(reported, SHOWN_NODE_GROUPS):
            yield from self._item(line)

    def _fixes(self, report: Report) -> Iterator[str]:
        if report.exit_code == 0:
            return
        own = {claim.name for claim in report.claims}
        besides = _besides(report.nodes)
        advice: dict[str, dict[_Place, None]] = {}
        for reason, place in _to_act_on(report):
            named = about(reason, "")
            also, unfit = "", False
            if isinstance(reason, HeldByClaim):
                also, unfit = besides.get(reason.claim, (also, unfit))
            words = fix(
                reason,
                own=own,
                of_scheduler=place.of_scheduler,
                besides=also,
                unfit=unfit,
                is_one_of=place.is_one_of,
            )
            advice.setdefault(words, {})[_Place(named) if named else place] = None
        if advice:
            yield ""
            yield self._heading("What to do")
            for words, objects in list(advice.items())[:SHOWN_FIXES]:
                yield from self._item(f"{_places(objects)}: {words}")
            if len(advice) > SHOWN_FIXES:
                yield from self._item(f"… ({len(advice)} in all, -o json)")

    def not_read(self, report: Report | ReportList) -> Iterator[str]:
        gates = any(gap.resource == GATES_PATH for gap in report.not_read)
        gaps = [gap for gap in report.not_read if gap.resource != GATES_PATH]
        if gates:
            yield ""
            release = report.cluster or "the newest release"
            yield from self._wrapped(
                f"Feature gates: the defaults of {release} are assumed ({GATES_PATH} may not be read).",
                0,
            )
        if gaps:
            yield ""
            yield self._heading("Could not be read")
            for gap in gaps[:SHOWN_GAPS]:
                name = f" {gap.name}" if gap.name else ""
                yield from self._item(f"{gap.resource}{name} ({gap.reason}): {gap.message}")
            if len(gaps) > SHOWN_GAPS:
                yield from self._item(f"… ({len(gaps):,} in all, -o json)")

    def _heading(self, words: str) -> str:
        return bold(words, color=self._color)

    def _item(self, words: str, indent: int = 2) -> Iterator[str]:
        yield from self._wrapped(words, indent + 2, first=" " * indent + "- ")

    def _wrapped(self, words: str, indent: int, first: str = "") -> Iterator[str]:
        yield from wrapped(words, self._width, indent=" " * indent, first=first)


def _besides(nodes: Sequence[NodeGroup]) -> Mapping[str, tuple[str, bool]]:
    """Return for each claim that has devices on such nodes only as do not take the pod what else keeps the pod off them.

    With whether all of them are ill or go away.
    """
    found: dict[str, dict[str, bool]] = {}
    for group in nodes:
        words = "; ".join(map(str, group.pod))
        unfit = any(isinstance(one, NodeTainted) and one.is_unfit for one in group.pod)
        for reason in group.devices:
            if isinstance(reason, HeldByClaim):
                found.setdefault(reason.claim, {})[words] = unfit
    return {
        claim: (" or ".join(words), all(words.values()))
        for claim, words in found.items()
        if "" not in words
    }


def _places(objects: Collection[_Place]) -> str:
    """Return the names of the objects of one advice. All nodes are counted together, also nodes of different groups."""
    nodes = [one.name for one in objects if one.is_node]
    others = [one.name for one in objects if not one.is_node]
    parts = [first_names(others)] if others else []
    if nodes:
        parts.append(f"{'node' if len(nodes) == 1 else 'nodes'} {first_names(nodes)}")
    return ", ".join(parts)


def _to_act_on(report: Report) -> Iterator[tuple[Verdict, _Place]]:
    """Yield the verdicts that need an action, each with the object that it is about.

    The device verdicts of nodes are used only if the claims give no verdict: otherwise they repeat the same reason per node.
    """
    of_claims = list(_of_claims(report))
    yield from of_claims
    of_scheduler = _is_of_scheduler(report)
    fitting = {_keeping_off(one) for one in report.nodes if one.pod and not one.devices}
    for node in report.nodes:
        # Where the same is in the way as on another node, and more besides, nobody needs to do anything.
        found = _keeping_off(node)
        reasons = () if any(less < found for less in fitting) else node.pod
        if node.devices:
            needed = report.exit_code == 1 and not (of_claims or report.changes)
            reasons = node.devices if needed else ()
        yield from (
            (reason, _Place(name, is_node=True, of_scheduler=of_scheduler))
            for reason in reasons
            for name in node.nodes
        )


def _with_kept(request: RequestReport) -> Iterator[Verdict]:
    """Yield the verdicts of a request. If too few devices can be had: also what keeps others from everybody, such as a taint.

    If nothing else does, it is no help to ask for fewer, or to free some.
    """
    of_devices = [one.verdict for one in request.devices]
    kept = [one for one in of_devices if isinstance(one, _KEPT)]
    some_used = any(map(users_of, of_devices))
    for one in request.verdicts:
        if not isinstance(one, NotEnoughDevices):
            yield one
            continue
        if one.available or one.matching or some_used or not kept:
            yield one
        yield from kept


def _keeping_off(node: NodeGroup) -> frozenset[object]:
    """Return what keeps the pod off these nodes besides devices, whatever amount of a resource is missing."""
    return frozenset(one.resource if isinstance(one, NodeResources) else one for one in node.pod)


def _of_claims(report: Report) -> Iterator[tuple[Verdict, _Place]]:
    """Yield the verdicts of claims, requests and the pod. If the report has a change that makes everything fit, omit requests."""
    several = sum(len(claim.requests) for claim in report.claims) > 1
    for claim in report.claims:
        whole = _Place(f"claim {claim.name}", of_scheduler=claim.of_scheduler)
        yield from ((reason, whole) for reason in claim.verdicts)
        for request in () if report.changes else claim.requests:
            name = f"request {request.name} of claim {claim.name}"
            place = _Place(name, of_scheduler=claim.of_scheduler, is_one_of=several)
            missed = request.nearest.reasons if request.nearest else ()
            # It is not enough to free the one device that a claim uses, if there are several requests, or if the device has more against
            # it that stays. So the report does not advise it.
            if several or not all(map(users_of, missed)):
                missed = tuple(one for one in missed if not isinstance(one, HeldByClaim))
            reasons = tuple(_with_kept(request)) or missed
            yield from ((reason, place) for reason in reasons)
    solved: tuple[type, ...] = (Fits, ConstraintConflict) if report.changes else (Fits,)
    for reason in report.verdicts:
        if not isinstance(reason, solved):
            yield reason, _Place(report.subject, of_scheduler=_is_of_scheduler(report))


def _is_of_scheduler(report: Report) -> bool:
    """Return whether the scheduler writes every claim of the report. A node's reason does not name its claim."""
    return bool(report.claims) and all(claim.of_scheduler for claim in report.claims)
