# SPDX-License-Identifier: Apache-2.0
"""The answer of `dra-driver explain`: for a person on a terminal, and as JSON for programs.

`dra_driver.cli.render_explain` turns it into text; encoded as it is, it is the stable document of `-o json`. Fields are
only ever added. Everything that says why is a member of `dra_driver.explain.verdict`.
"""

from typing import Literal

import msgspec

from dra_driver.explain.verdict import ChosenDevice, Verdict
from dra_driver.model.cluster import NotRead

Outcome = Literal[
    "devices fit",
    "devices do not fit",
    "could not tell",
    "devices fit, something else is in the way",
]
EXIT_CODES: dict[Outcome, int] = {
    "devices fit": 0,
    "devices do not fit": 1,
    "could not tell": 2,
    "devices fit, something else is in the way": 3,
}


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the report."""


class DeviceGroup(_Part, frozen=True):
    """Devices that are not taken for the same reason, or that can be had (Fits); a few of them by name."""

    verdict: Verdict
    count: int
    examples: tuple[str, ...] = ()


class Change(_Part, frozen=True):
    """The smallest change that makes everything fit, tried out: `what` in words, `on` one node where it then fits."""

    what: str
    on: str = ""


class NearestMiss(_Part, frozen=True):
    """The device that misses the fewest conditions, and all that it misses."""

    device: str
    node: str
    reasons: tuple[Verdict, ...]


class RequestReport(_Part, frozen=True):
    """One request, or one alternative of it ("main/sub"). `verdicts` concern the request as a whole."""

    name: str
    asks: str
    verdicts: tuple[Verdict, ...] = ()
    devices: tuple[DeviceGroup, ...] = ()
    nearest: NearestMiss | None = None


class ClaimReport(_Part, frozen=True):
    """One claim; `origin` says what it is made from where it does not exist yet, `allocated` what it already has."""

    name: str
    origin: str = ""
    verdicts: tuple[Verdict, ...] = ()
    allocated: tuple[ChosenDevice, ...] = ()
    requests: tuple[RequestReport, ...] = ()


class NodeGroup(_Part, frozen=True):
    """Nodes with the same answer. `devices` is why the devices do not fit there (empty: they do), `pod` what else is in the way.

    `placement` is what the scheduler would take on the first of `nodes`.
    """

    count: int
    nodes: tuple[str, ...]
    devices: tuple[Verdict, ...] = ()
    pod: tuple[Verdict, ...] = ()
    placement: tuple[ChosenDevice, ...] = ()


class PodCount(_Part, frozen=True):
    """How many pods a manifest makes at a time, and how many of them find their devices together."""

    wanted: int
    fit: int


class Report(_Part, frozen=True):
    """The whole answer. `verdicts` concern the subject as a whole, not single claims or nodes.

    `pods` is there for a workload and for several pods. `passed_over` names the objects of a manifest that are not looked at.
    """

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
