# SPDX-License-Identifier: Apache-2.0
"""The report of `dra-driver explain`: for a person on a terminal, and as JSON for programs.

`dra_driver.cli.render_explain` turns the report into text. Encoded as JSON, the report is the stable output of `-o json`: a new
version may add fields, but never removes or changes one. Every reason is a member of `dra_driver.explain.verdict`.
"""

from typing import Literal

import msgspec

from dra_driver.explain.verdict import ChosenDevice, Verdict
from dra_driver.model.cluster import NotRead
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, NOT_DONE, WITH_RESERVATION
from dra_driver.model.names import DOCUMENT_VERSION, EXPLANATION_KIND, EXPLANATION_LIST_KIND

Outcome = Literal[
    "devices fit",
    "devices do not fit",
    "could not tell",
    "devices fit, something else is in the way",
]
EXIT_CODES: dict[Outcome, int] = {
    "devices fit": DONE,
    "devices do not fit": NOT_DONE,
    "could not tell": COULD_NOT_TELL,
    "devices fit, something else is in the way": WITH_RESERVATION,
}


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the report."""


class DeviceGroup(_Part, frozen=True):
    """Devices with the same first reason against them, or devices that are available (verdict Fits); `examples` names some of them.

    `since` is the time of the oldest taint, if they are tainted. `foreign`: the selectors ask for another driver.
    """

    verdict: Verdict
    count: int
    examples: tuple[str, ...] = ()
    since: str = ""
    foreign: bool = False


class Change(_Part, frozen=True):
    """A change after which everything fits; the allocator has tried it. `what` is its text, `on` a node where everything then fits.

    `kind` is one of "correct", "wait", "end", "add node", "tolerate", "ask for less", "edit", from the one that costs the user least
    to the one that costs most. `ends` are the claims that have to end.
    """

    what: str
    on: str = ""
    kind: str = ""
    ends: tuple[str, ...] = ()


class NearestMiss(_Part, frozen=True):
    """The device with the fewest reasons against it, and these reasons."""

    device: str
    node: str
    reasons: tuple[Verdict, ...]


class RequestReport(_Part, frozen=True):
    """One request, or one alternative of a request ("main/sub"). `verdicts` are about the request as a whole."""

    name: str
    asks: str
    verdicts: tuple[Verdict, ...] = ()
    devices: tuple[DeviceGroup, ...] = ()
    nearest: NearestMiss | None = None


class ClaimReport(_Part, frozen=True):
    """One claim. If it does not exist yet, `origin` says what it is made from.

    `constraints` are those that its devices must meet. `allocated` are the devices that it already has, and `usedBy` the pods that it is reserved for and that may still run.
    `ofScheduler`: the scheduler writes the claim, for extended resources, so nobody can edit it.
    """

    name: str
    origin: str = ""
    verdicts: tuple[Verdict, ...] = ()
    allocated: tuple[ChosenDevice, ...] = ()
    used_by: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    of_scheduler: bool = False


class NodeGroup(_Part, frozen=True):
    """Nodes with the same answer. `devices` are the reasons why the devices do not fit there (empty: they fit).

    `requests` has for each of these reasons the request that it is about, "" if it is about no single one; empty if only one is asked for.
    `pod` are the other reasons why the pod cannot go there, or a CouldNotTell if nobody knows whether it has room. `placement` are the
    devices that the scheduler would take on the first of `nodes`.
    """

    count: int
    nodes: tuple[str, ...]
    devices: tuple[Verdict, ...] = ()
    requests: tuple[str, ...] = ()
    pod: tuple[Verdict, ...] = ()
    placement: tuple[ChosenDevice, ...] = ()


class PodCount(_Part, frozen=True):
    """The number of pods that a manifest makes at a time (`wanted`), and how many of them get their devices together (`fit`)."""

    wanted: int
    fit: int


class Report(_Part, frozen=True, kw_only=True):
    """The whole answer. `verdicts` are about the subject as a whole, not about single claims or nodes.

    `pods` is set for a workload and for several pods. `passed_over` names the objects of a manifest that `explain` ignores. `alike` are
    other pods, which ask for the same and so have the same answer. `no_help` is what does not help although one may expect it: the end of claims that a
    constraint makes useless, and the node that was to be added, if it would not help or was not tried in time.
    """

    api_version: str = DOCUMENT_VERSION
    kind: str = EXPLANATION_KIND
    subject: str
    outcome: Outcome
    exit_code: int
    summary: str
    cluster: str = ""
    verdicts: tuple[Verdict, ...] = ()
    claims: tuple[ClaimReport, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    changes: tuple[Change, ...] = ()
    not_read: tuple[NotRead, ...] = ()
    pods: PodCount | None = None
    passed_over: tuple[str, ...] = ()
    no_help: str = ""
    alike: tuple[str, ...] = ()


WORST_FIRST: tuple[Outcome, ...] = (
    "devices do not fit",
    "could not tell",
    "devices fit, something else is in the way",
    "devices fit",
)
"""The outcome of several reports together is the first of these that one of them has. A certain "no" comes before an unknown answer."""


class ReportList(_Part, frozen=True, kw_only=True):
    """The answer about several subjects: the worst outcome and exit code, and a report for each subject.

    The reports have no `not_read` of their own: what could not be read is the same for all, and is in the list.
    """

    api_version: str = DOCUMENT_VERSION
    kind: str = EXPLANATION_LIST_KIND
    subject: str
    outcome: Outcome
    exit_code: int
    summary: str
    cluster: str = ""
    items: tuple[Report, ...] = ()
    not_read: tuple[NotRead, ...] = ()
