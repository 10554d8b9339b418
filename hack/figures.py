# SPDX-License-Identifier: Apache-2.0
"""The README's row of figures, taken from the pages that `make bench` and the image's build are written down in."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
# What the row says, the page, and where the figure stands there.
FIGURES = (
    ("memory at rest", "performance.md", r"^\| idle daemon \| ([\d.]+)(?: to | \|)", "{:.0f} MiB"),
    ("start to serving", "performance.md", r"^\| start to both sockets listening \| \d+ \| ([\d.]+) ", "{:.0f} ms"),
    ("prepare a claim", "performance.md", r"^\| prepare 1 claim, none prepared \| \d+ \| ([\d.]+) ", "{:.1f} ms"),
    ("the same, with its GET at a real API server", "performance.md", r"^\| prepare 1 claim, with its GET at a real API server \| \d+ \| ([\d.]+) ", "{:.1f} ms"),
    ("requests of a node at rest", "performance.md", r"^\| an hour at rest \(computed\) \| ([\d.]+) ", "{:.0f} an hour"),
    ("`explain`, 8,000 devices, the slowest problem", "performance.md", r"^\| two requests that cannot go together \| \d+ \| ([\d.]+) ", "{:.0f} ms"),
    ("image, compressed", "image.md", r"; (\d+) MB when compressed", "{:.0f} MB"),
)  # fmt: skip


def figures_row() -> str:
    """A table of one row."""
    found = [_figure(page, pattern) for _, page, pattern, _ in FIGURES]
    shown = [form.format(float(value)) for (*_, form), value in zip(FIGURES, found, strict=True)]
    heads = [what for what, *_ in FIGURES]
    rows = (heads, ["---"] * len(heads), shown)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _figure(page: str, pattern: str) -> str:
    match = re.search(pattern, (DOCS / page).read_text(), re.MULTILINE)
    if match is None:
        sys.exit(
            f"docs/{page} has no row like {pattern} any more; correct FIGURES in hack/figures.py"
        )
    return match[1]
