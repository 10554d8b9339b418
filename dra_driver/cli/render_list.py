# SPDX-License-Identifier: Apache-2.0
"""This module formats the answer about several subjects as text: a line for each, then the whole report of each that does not fit."""

from collections.abc import Iterator

from dra_driver.cli.render import plain
from dra_driver.cli.render_explain import COLORS, bold, not_read, text, wrapped
from dra_driver.explain.names import first_names
from dra_driver.explain.outcome import Report, ReportList


def list_text(found: ReportList, *, width: int, color: bool) -> list[str]:
    """Return the answer as lines; the details have at most `width` characters."""
    return list(_lines(found, width, color=color))


def _lines(found: ReportList, width: int, *, color: bool) -> Iterator[str]:
    several = len(found.items) > 1
    if several:
        mark = COLORS[found.exit_code] if color else ""
        yield f"{mark}{bold(f'{found.subject}: {found.outcome}', color=color)}"
        yield from _indented(found.summary, width)
        yield ""
        for one in found.items:
            yield _cut(f"{_subject(one)}: {one.outcome}: {one.summary}", width)
    elif found.summary or not found.items:
        yield bold(found.subject, color=color)
        yield from _indented(found.summary, width)
    for one in found.items:
        if one.exit_code or not several:
            yield ""
            yield from text(one, width=width, color=color)
            yield from _others(one, width)
    yield from not_read(found, width=width, color=color)


def _subject(one: Report) -> str:
    count = len(one.alike)
    return f"{one.subject} and {count:,} alike" if count else one.subject


def _others(one: Report, width: int) -> Iterator[str]:
    """Yield lines that name the pods with the same answer."""
    if one.alike:
        yield ""
        yield from wrapped(f"The same is true of {first_names(one.alike)}", width)


def _indented(words: str, width: int) -> list[str]:
    return wrapped(words, width, indent="  ")


def _cut(words: str, width: int) -> str:
    """Return the words as one indented line, with "…" instead of what is too long."""
    line = plain(" ".join(words.split()))
    return f"  {line}" if len(line) <= width - 2 else f"  {line[: width - 4]} …"
