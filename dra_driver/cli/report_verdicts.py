# SPDX-License-Identifier: Apache-2.0
"""How is every verdict of a report replaced, for the names and the long texts that a reader is not to get?"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from dra_driver.explain.names import LONGEST_FOUND, values_found
from dra_driver.explain.outcome import ClaimReport, NearestMiss, Report, ReportList, RequestReport
from dra_driver.explain.verdict import SelectorError, SelectorFalse, SelectorNeverMatches, Verdict

Changed = Callable[[Verdict], Verdict]


def with_verdicts(report: Report, changed: Changed) -> Report:
    """Return the report with another verdict in the place of each; `changed` gets them in the order in which the report has them."""
    return replace(
        report,
        verdicts=_all(report.verdicts, changed),
        claims=tuple([_of_claim(one, changed) for one in report.claims]),
        nodes=tuple(
            [
                replace(one, devices=_all(one.devices, changed), pod=_all(one.pod, changed))
                for one in report.nodes
            ]
        ),
    )


def _of_claim(claim: ClaimReport, changed: Changed) -> ClaimReport:
    verdicts = _all(claim.verdicts, changed)
    requests = tuple([_of_request(one, changed) for one in claim.requests])
    return replace(claim, verdicts=verdicts, requests=requests)


def _of_request(request: RequestReport, changed: Changed) -> RequestReport:
    nearest: NearestMiss | None = None
    verdicts = _all(request.verdicts, changed)
    devices = tuple([replace(one, verdict=changed(one.verdict)) for one in request.devices])
    if request.nearest:
        nearest = replace(request.nearest, reasons=_all(request.nearest.reasons, changed))
    return replace(request, verdicts=verdicts, devices=devices, nearest=nearest)


def _all(verdicts: Iterable[Verdict], changed: Changed) -> tuple[Verdict, ...]:
    return tuple([changed(one) for one in verdicts])


def for_programs(answer: Report | ReportList) -> Report | ReportList:
    """Return the answer with each long condition whole once in each report."""
    if isinstance(answer, ReportList):
        return replace(answer, items=tuple(map(_conditions_once, answer.items)))
    return _conditions_once(answer)


def _conditions_once(report: Report) -> Report:
    """Return the report for programs: each long condition is whole where it is first, and later cut in the middle.

    A condition may have 10 KiB, and the report has it for each group of devices and of nodes.
    """
    seen: set[str] = set()

    def cut(part: str) -> str:
        if part in seen:
            return values_found(part)
        seen.add(part)
        return part

    def changed(one: Verdict) -> Verdict:
        match one:
            case SelectorNeverMatches():
                return replace(one, part=cut(one.part), others=tuple(map(cut, one.others)))
            case SelectorFalse() | SelectorError() if len(one.part) > LONGEST_FOUND:
                return replace(one, part=cut(one.part))
            case _:
                return one

    return with_verdicts(report, changed)
