# SPDX-License-Identifier: Apache-2.0
"""This module formats the findings of `check` as text: a line as compilers write it, and below it what to do."""

from collections.abc import Iterator

from dra_driver.check.outcome import CheckReport, FoundMistake
from dra_driver.cli.render import plain
from dra_driver.cli.render_explain import wrapped

_COLORS = {"error": "31", "warning": "33", "note": "36"}
_INDENT = "    "


def text(found: CheckReport, *, width: int, color: bool) -> Iterator[str]:
    """Yield the lines of the answer; what to do has at most `width` characters in a line."""
    for one in found.fixed:
        yield f"{_place(one)}: fixed: {plain(one.message)} [{one.rule}]"
    for one in found.findings:
        yield from _lines(one, width, color=color)
    yield _summary(found)


def _lines(one: FoundMistake, width: int, *, color: bool) -> Iterator[str]:
    severity = f"\033[{_COLORS[one.severity]}m{one.severity}\033[0m" if color else one.severity
    yield f"{_place(one)}: {severity}: {plain(one.subject)}: {plain(one.message)} [{one.rule}]"
    for line in one.detail:
        yield f"{_INDENT}{plain(line)}"
    if one.action:
        yield from wrapped(one.action, width, indent=_INDENT)


def _place(one: FoundMistake) -> str:
    """Return FILE:LINE:COLUMN. Without a line, the number of the document says where it is."""
    if not one.line:
        return plain(one.file) + (f" (document {one.document})" if one.document > 1 else "")
    column = f":{one.column}" if one.column else ""
    return f"{plain(one.file)}:{one.line}{column}"


def _summary(found: CheckReport) -> str:
    counts = [
        _count(found.errors, "error"),
        _count(found.warnings, "warning"),
        _count(found.notes, "note"),
    ]
    nothing = "nothing found" if found.files else "nothing is checked"
    told = ", ".join(one for one in counts if one) or nothing
    fixed = f"; {len(found.fixed)} fixed" if found.fixed else ""
    fixable = sum(one.fixable for one in found.findings)
    more = f"; --fix would correct {fixable}" if fixable else ""
    others = _count(len(found.unchecked), "file")
    left = f"; {others} not looked into" if found.unchecked else ""
    return f"{_count(found.files, 'file')}: {told}{fixed}{more}{left}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number or what == "file" else ""
