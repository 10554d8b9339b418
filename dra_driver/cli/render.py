# SPDX-License-Identifier: Apache-2.0
"""Text for people and JSON for machines: the only place that prints.

A reader who has seen enough (`| head`) is no error: what comes after goes nowhere. Output that cannot be written for another
reason, a full disk, is one.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from dra_driver.errors import Permanent
from dra_driver.model.printable import printable


def line(text: str = "") -> None:
    """One line on standard output. Raises Permanent where it cannot be written."""
    _write(sys.stdout, text)


def error(text: str) -> None:
    """One line on standard error, without what a terminal would obey."""
    lines = (plain(one) for one in f"dra-driver: {text}".splitlines())
    _write(sys.stderr, "\n".join(lines))


def raw(content: bytes) -> None:
    """A line of bytes on standard output. Raises Permanent where it cannot be written."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(content + b"\n")
        sys.stdout.buffer.flush()
    except OSError as problem:
        _lost(sys.stdout, problem)


def plain(text: str) -> str:
    """The text with control characters and marks of writing direction spelled out: it may come from anybody's objects."""
    return printable(text)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # closed by whoever started this
        return
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, file=stream, flush=True)
    except OSError as problem:
        _lost(stream, problem)


def _lost(stream: TextIO, problem: OSError) -> None:
    """Nothing can be written any more: what is buffered, and what comes, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    if stream is sys.stdout and not isinstance(problem, BrokenPipeError):
        raise Permanent(
            f"cannot write to standard output: {problem}; free some space or write it elsewhere"
        ) from problem


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
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return terminal and not os.environ.get("NO_COLOR")
