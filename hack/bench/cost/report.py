# SPDX-License-Identifier: Apache-2.0
"""What is found is a value; here it becomes Markdown, on the terminal and in docs/performance.md.

The page has a pair of comments around what a question's answer fills: `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.
What stands outside them is written by people.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.bench.cost.figures import Ratio, Times

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """One promise: what was found beside what it should be at most. `limit` None: reported only."""

    what: str
    found: Ratio | float
    limit: float | None
    unit: str = ""

    @property
    def cells(self) -> Cells:
        """A row of the table of targets."""
        value = self.found.value if isinstance(self.found, Ratio) else self.found
        shown = str(self.found) if isinstance(self.found, Ratio) else _three_digits(self.found)
        unit = f" {self.unit}" if self.unit else ""
        if self.limit is None:
            return (self.what, f"{shown}{unit}", "reported", "")
        verdict = "within" if value <= self.limit else "**over**"
        return (self.what, f"{shown}{unit}", f"≤ {self.limit:g}{unit}", verdict)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head, with a sentence above."""

    about: str
    head: Cells
    rows: tuple[Cells, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question found."""

    targets: tuple[Target, ...]
    tables: tuple[Table, ...] = ()


def times_table(about: str, times: Sequence[Times]) -> Table:
    """Count, p50, p99 and the medians of the repeats, in milliseconds."""
    rows = tuple(
        (
            each.what,
            str(len(each.all)),
            _milliseconds(each.quantile(0.5)),
            _milliseconds(each.quantile(0.99)),
            _spread(each.medians),
        )
        for each in times
    )
    return Table(
        about, ("", "count", "p50 ms", "p99 ms", "p50 of a repeat, lowest to highest"), rows
    )


def markdown(answer: Answer) -> str:
    """The answer as it stands on the page."""
    parts = []
    if answer.targets:
        head = ("", "found", "target", "")
        parts.append(_table(head, [target.cells for target in answer.targets]))
    parts += [f"{table.about}\n\n{_table(table.head, table.rows)}" for table in answer.tables]
    return "\n\n".join(parts)


def write(page: Path, name: str, text: str) -> None:
    """Put a question's text between its marks on the page."""
    before = page.read_text()
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    marked = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not marked.search(before):
        raise SystemExit(
            f"{page} has no place for {name}: write {begin} and {end} where it shall be"
        )
    page.write_text(marked.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", before))


def _table(head: Cells, rows: Sequence[Cells]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spread(medians: list[float]) -> str:
    if len(medians) == 1:
        return ""
    return f"{_milliseconds(min(medians))} to {_milliseconds(max(medians))}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def _three_digits(value: float) -> str:
    """Return the value with the digits that mean something, and never as a power of ten."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded.is_integer() else f"{rounded:g}"
