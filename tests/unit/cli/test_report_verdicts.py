# SPDX-License-Identifier: Apache-2.0
"""How often does a document have a long condition?"""

import msgspec

from dra_driver.cli.report_verdicts import for_programs
from dra_driver.explain.outcome import (
    ClaimReport,
    DeviceGroup,
    NearestMiss,
    NodeGroup,
    Report,
    ReportList,
    RequestReport,
)
from dra_driver.explain.verdict import (
    NoDevices,
    SelectorError,
    SelectorFalse,
    SelectorNeverMatches,
    Verdict,
)

LONG, OTHER, SHORT = "l" * 9000, "o" * 9000, "s" * 1000
FALSE = SelectorFalse("request", 0, LONG, "f")


def report(*about: Verdict) -> Report:
    groups = (
        DeviceGroup(verdict=FALSE, count=1),
        DeviceGroup(verdict=SelectorError("request", 0, LONG, "m"), count=1),
        DeviceGroup(verdict=SelectorFalse("request", 0, SHORT, "f"), count=1),
        DeviceGroup(verdict=SelectorFalse("request", 0, SHORT, "g"), count=1),
    )
    nearest = NearestMiss(device="d", node="n", reasons=(FALSE,))
    request = RequestReport(name="r", asks="", verdicts=about, devices=groups, nearest=nearest)
    alone = RequestReport(name="s", asks="")
    return Report(
        subject="pod a/p",
        outcome="devices do not fit",
        exit_code=1,
        summary="",
        claims=(ClaimReport(name="c", requests=(request, alone)),),
        nodes=(NodeGroup(count=1, nodes=("n",), devices=(FALSE,), pod=(NoDevices(),)),),
    )


def test_a_long_condition_is_whole_where_it_is_first() -> None:
    never = SelectorNeverMatches("request", 0, LONG, "f", others=(OTHER,))
    shown = for_programs(report(never))
    text = msgspec.json.encode(shown).decode()
    assert text.count(LONG) == text.count(OTHER) == 1
    assert text.count(SHORT) == 2
    request = shown.claims[0].requests[0]
    (first,), (cut, error, *_) = request.verdicts, request.devices
    assert first == never
    assert request.nearest
    assert request.nearest.reasons == (cut.verdict,)
    assert isinstance(cut.verdict, SelectorFalse)
    assert isinstance(error.verdict, SelectorError)
    assert error.verdict.part == cut.verdict.part
    assert cut.verdict.part == f"{LONG[:500]} … {LONG[:500]}"


def test_each_of_several_reports_has_it() -> None:
    both = ReportList(
        subject="",
        outcome="devices do not fit",
        exit_code=1,
        summary="",
        items=(report(), report()),
    )
    assert msgspec.json.encode(for_programs(both)).decode().count(LONG) == 2


def test_short_reports_stay_as_they_are() -> None:
    short = Report(subject="", outcome="devices fit", exit_code=0, summary="")
    assert for_programs(short) == short
