# SPDX-License-Identifier: Apache-2.0
"""The README's row of figures, and critiques.md's of memory, taken from the pages that `make bench` and the image's build are written down in."""

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
# The text above the tables of `explain` on 1,000 nodes, and the tables: of the fleet with free devices, and of the one without.
EXPLAIN = r"1,000 nodes x 8 devices, \d+ runs.*\n\n((?:\|.*\n)+(?:\n.*all devices are held.*\n\n(?:\|.*\n)+)?)"
# What the row says, the page, which part of it (all: ""), and where the figure stands there. Of several figures the largest counts.
FIGURES = (
    ("memory at rest", "performance.md", "", r"^\| idle daemon \| ([\d.]+)(?: to | \|)", "{:.0f} MiB"),
    ("start to serving", "performance.md", "", r"^\| start to both sockets listening \| \d+ \| ([\d.]+) ", "{:.0f} ms"),
    ("prepare a claim", "performance.md", "", r"^\| prepare 1 claim, none prepared \| \d+ \| ([\d.]+) ", "{:.1f} ms"),
    ("the same, with its GET at a real API server", "performance.md", "", r"^\| prepare 1 claim, with its GET \| \d+ \| ([\d.]+) ", "{:.1f} ms"),
    ("requests of a node at rest, no claims", "performance.md", "", r"^\| none \| 1 \| (\d+) \|", "{:.0f} an hour"),
    ("the same with 8 claims", "performance.md", "", r"^\| 8 \| 9 \| (\d+) \|", "{:.0f} an hour"),
    ("`explain`, 8,000 devices, the slowest problem", "performance.md", EXPLAIN, r"^\| [^|]+ \| \d+ \| ([\d.]+) ", "{:.0f} ms"),
    ("image, compressed", "image.md", "", r"; (\d+) MB when compressed", "{:.0f} MB"),
)  # fmt: skip

# A figure of performance.md's part about memory that has a target: what, found, target, and whether it is over.
MEMORY = r"^<!-- bench:memory -->\n((?:.*\n)+?)<!-- /bench:memory -->"
JUDGED = r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| (\*\*over\*\*|within) \|"
# What the interpreter and the libraries have, and how much the process has grown after so many pairs.
LIBRARIES = r"^\| libraries imported \| ([\d.]+(?: to [\d.]+)?) "
GROWN = r"^\| after [\d,]+ more \| [\d.]+ \| ([+-][\d.]+) \|"


def memory_table(*, over: bool) -> str:
    """The figures of memory that are over their target, or those that are within, with a sentence above; nothing where there is none."""
    text = _found("performance.md", MEMORY)[0]
    (libraries,) = _found("performance.md", LIBRARIES, text)
    *_, before, last = map(float, _found("performance.md", GROWN, text))
    means = {
        "idle daemon": f"the interpreter and the libraries alone have {libraries} MiB",
        "growth": f"the last step of the measurement added {last - before:.2f} MiB",
    }
    rows = [
        f"| {what} | {found} | {target} | {_meaning(means, what)} |\n"
        for what, found, target, judged in _found("performance.md", JUDGED, text)
        if (judged != "within") is over
    ]
    side = "over" if over else "within"
    begin = f"\nOf [memory](performance.md#memory), {side} its target:\n\n"
    head = f"{begin}| memory | here | target | beside it |\n| --- | --- | --- | --- |\n"
    return head + "".join(rows) if rows else ""


def _meaning(means: dict[str, str], what: str) -> str:
    return next((text for begin, text in means.items() if what.startswith(begin)), "")


def figures_row() -> str:
    """A table of one row."""
    shown = [form.format(_figure(page, part, pattern)) for _, page, part, pattern, form in FIGURES]
    heads = [what for what, *_ in FIGURES]
    rows = (heads, ["---"] * len(heads), shown)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _figure(page: str, part: str, pattern: str) -> float:
    text = (DOCS / page).read_text()
    if part:
        found = re.search(part, text)
        text = found[1] if found else ""
    return max(map(float, _found(page, pattern, text)))


def _found(page: str, pattern: str, text: str | None = None) -> list[Any]:
    """All that a pattern finds in a text, else in the page: at least one."""
    text = (DOCS / page).read_text() if text is None else text
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        sys.exit(f"docs/{page} has no row like {pattern} any more; correct hack/figures.py")
    return found
