# SPDX-License-Identifier: Apache-2.0
"""The README's row of figures, taken from the pages that `make bench` and the image's build are written down in."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
# The text above the table of `explain` on 1,000 nodes, and the table.
EXPLAIN = r"1,000 nodes x 8 devices, \d+ runs.*\n\n((?:\|.*\n)+)"
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
    figures = re.findall(pattern, text, re.MULTILINE)
    if not figures:
        sys.exit(
            f"docs/{page} has no row like {pattern} any more; correct FIGURES in hack/figures.py"
        )
    return max(map(float, figures))
