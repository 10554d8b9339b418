# SPDX-License-Identifier: Apache-2.0
"""The answer of `dra-driver check`: a document for programs, and SARIF for code hosts.

A new version may add fields, but never removes or changes one.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from dra_driver import PROJECT, __version__
from dra_driver.check.finding import Finding
from dra_driver.check.rules import RULES, SEVERITIES, Severity
from dra_driver.model.names import CHECK_KIND, DOCUMENT_VERSION

SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class FoundMistake(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One finding. `line` and `column` begin at 1, and are 0 if they are not known. `fixable`: --fix would correct it.

    `subject` is the kind and the name of the object, `path` its field.
    """

    rule: str
    severity: Severity
    file: str
    document: int
    line: int
    column: int
    subject: str
    path: str
    message: str
    action: str = ""
    detail: tuple[str, ...] = ()
    fixable: bool = False


class UncheckedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file that was not looked into, or not to its end, and why."""

    file: str
    reason: str


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All findings in the `files` that were looked into; `fixed` are those that --fix corrected. `errors`, `warnings` and `notes` count the findings that are left.

    `unchecked` are the other files. If there are any, the answer is incomplete.
    """

    api_version: str = DOCUMENT_VERSION
    kind: str = CHECK_KIND
    files: int
    errors: int
    warnings: int
    notes: int
    findings: tuple[FoundMistake, ...]
    fixed: tuple[FoundMistake, ...] = ()
    unchecked: tuple[UncheckedFile, ...] = ()


def report_of(
    findings: Sequence[Finding],
    files: int,
    fixed: Sequence[Finding] = (),
    unchecked: Sequence[UncheckedFile] = (),
) -> CheckReport:
    """Return the document of these findings."""
    errors, warnings, notes = (
        sum(one.severity == severity for one in findings) for severity in SEVERITIES
    )
    return CheckReport(
        files=files,
        errors=errors,
        warnings=warnings,
        notes=notes,
        findings=tuple(map(_found, findings)),
        fixed=tuple(map(_found, fixed)),
        unchecked=tuple(unchecked),
    )


def _found(one: Finding) -> FoundMistake:
    return FoundMistake(
        rule=one.rule,
        severity=one.severity,
        file=one.file,
        document=one.document,
        line=one.line,
        column=one.column,
        subject=one.subject,
        path=one.path,
        message=one.message,
        action=one.action,
        detail=one.detail,
        fixable=bool(one.edits),
    )


def sarif(found: CheckReport) -> dict[str, Any]:
    """Return the findings as a SARIF log of one run. Its rules are all rules, so that a viewer can show what was looked for."""
    names = list(RULES)
    rules = [
        {
            "id": rule.name,
            "shortDescription": {"text": rule.meaning},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in RULES.values()
    ]
    driver = {"name": PROJECT, "version": __version__, "rules": rules}
    results = [_result(one, names.index(one.rule)) for one in found.findings]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(found)],
        "results": results,
    }
    return {"version": SARIF_VERSION, "$schema": SARIF_SCHEMA, "runs": [run]}


def _invocation(found: CheckReport) -> dict[str, Any]:
    """Return how the run ended. A viewer must not take what an incomplete one does not have for corrected."""
    told = [
        {
            "level": "error",
            "message": {"text": f"not checked: {one.reason}"},
            "locations": [{"physicalLocation": _artifact(one.file)}],
        }
        for one in found.unchecked
    ]
    return {"executionSuccessful": not told, "toolExecutionNotifications": told}


def _artifact(file: str) -> dict[str, Any]:
    uri = quote(file)
    return {"artifactLocation": {"uri": f"file://{uri}" if uri.startswith("/") else uri}}


def _result(one: FoundMistake, index: int) -> dict[str, Any]:
    place = _artifact(one.file)
    if one.line:
        place["region"] = dict(_region(one))
    location: dict[str, Any] = {"physicalLocation": place}
    if one.path:
        name = f"{one.subject}: {one.path}"
        location["logicalLocations"] = [{"fullyQualifiedName": name}]
    return {
        "ruleId": one.rule,
        "ruleIndex": index,
        "level": one.severity,
        "message": {"text": f"{one.message}; {one.action}" if one.action else one.message},
        "locations": [location],
    }


def _region(one: FoundMistake) -> Iterator[tuple[str, int]]:
    yield "startLine", one.line
    if one.column:
        yield "startColumn", one.column
