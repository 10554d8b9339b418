# SPDX-License-Identifier: Apache-2.0
"""Text for people and JSON for machines: the only place that prints."""

import json
import os
import sys
from collections.abc import Sequence


def line(text: str = "") -> None:
    """One line on standard output."""
    print(text, flush=True)


def error(text: str) -> None:
    """One line on standard error."""
    print(f"dra-driver: {text}", file=sys.stderr, flush=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Left-aligned columns, as kubectl shows them."""
    widths = [max(len(row[index]) for row in (headers, *rows)) for index in range(len(headers))]
    for row in (headers, *rows):
        line(
            "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def json_line(document: object) -> None:
    """One JSON document on one line."""
    line(json.dumps(document, sort_keys=True))


def heading(text: str) -> None:
    """A line that opens a section; bold where colour is wanted."""
    line(f"\033[1m{text}\033[0m" if colored() else text)


def colored() -> bool:
    """Whether to write for a terminal; not when NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
