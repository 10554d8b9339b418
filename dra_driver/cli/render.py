# SPDX-License-Identifier: Apache-2.0
"""The only module that prints: text for people, JSON and YAML for programs.

If the reader closes the pipe early (`| head`), the rest of the output is dropped, and that is no error. Any other failure to
write, such as a full disk, is an error.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TextIO

import msgspec

from dra_driver import PROJECT
from dra_driver.errors import Permanent
from dra_driver.model.printable import printable
from dra_driver.model.yaml_text import yaml_text

JSON, YAML, WIDE = "json", "yaml", "wide"
DOCUMENTS = (JSON, YAML)
"""The values of -o that print one document for programs."""

_NOT_PRINTABLE = re.compile(rb"[\x7f-\xff]+")
GREEN, YELLOW, RED, _PLAIN = "\033[32m", "\033[33m", "\033[31m", "\033[0m"

_without_reader: list[OSError] = []
"""The error after which nobody reads standard output any more, if there was one."""


def line(text: str = "") -> None:
    """Print one line on standard output. Raises Permanent if it cannot be written."""
    _write(sys.stdout, text)


def error(text: str, *more: str) -> None:
    """Print lines on standard error, with control characters and line ends escaped. Never raises.

    A text may repeat what another user wrote. After a line end of his the rest would be a line of its own, which the reader, or a
    program that reads the output, takes for one of ours.
    """
    _write(sys.stderr, "\n".join(map(plain, (f"{PROJECT}: {text}", *more))))


def is_read() -> bool:
    """Return whether anybody may still read standard output: the reader has not closed the pipe."""
    return not _without_reader


def raw(content: bytes) -> None:
    """Write bytes and a line end to standard output. Raises Permanent if they cannot be written."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.writelines((content, b"\n"))
        sys.stdout.buffer.flush()
    except OSError as problem:
        _lost(sys.stdout, problem)


def plain(text: str) -> str:
    """Return the text with control characters and text-direction marks escaped. Another user may have written the text."""
    return printable(text)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # Python was started with this stream closed
        return
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, file=stream, flush=True)
    except OSError as problem:
        _lost(stream, problem)


def _lost(stream: TextIO, problem: OSError) -> None:
    """Send all later output of this stream to /dev/null.

    Raises Permanent if the stream is standard output, unless the reader has closed the pipe.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    if stream is not sys.stdout:
        return
    _without_reader.append(problem)
    if not isinstance(problem, BrokenPipeError):
        raise Permanent(
            f"cannot write to standard output: {problem}; free some space, or send the output elsewhere"
        ) from problem


class Table:
    """Left-aligned columns, as kubectl prints them, with control characters escaped.

    The columns stay as wide as they are, so that rows that come later stand below the first ones. `marks` are the colours of
    cells with just this text.
    """

    def __init__(self, headers: Sequence[str], marks: Mapping[str, str] | None = None) -> None:
        self._headers = headers
        self._marks = marks or {}
        self._widths = [0] * len(headers)

    def show(self, rows: Sequence[Sequence[str]], *, headers: bool = False) -> None:
        """Print the rows, below the headers if these are wanted."""
        escaped = [tuple(plain(cell) for cell in row) for row in rows]
        if headers:
            escaped.insert(0, tuple(map(plain, self._headers)))
        for row in escaped:
            self._widths = [max(pair) for pair in zip(self._widths, map(len, row), strict=True)]
        marks = self._marks if colored() else {}
        for row in escaped:
            cells = [
                f"{marks[cell]}{cell}{_PLAIN}{' ' * (width - len(cell))}"
                if cell in marks
                else cell.ljust(width)
                for cell, width in zip(row, self._widths, strict=True)
            ]
            line("   ".join(cells).rstrip())


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns, as kubectl does, with control characters escaped."""
    Table(headers).show(rows, headers=True)


def pairs(values: Mapping[str, object]) -> str:
    """Return names with their values as one cell of a table; "" if there are none."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def json_line(document: object) -> None:
    """Print a document as JSON on one line."""
    line(json.dumps(document, sort_keys=True))


def document(content: msgspec.Struct | dict[str, object], output: str = JSON) -> None:
    """Print a whole document, for `-o json` and `-o yaml`: the same fields in the same order."""
    text = _json(content)
    if output == YAML:
        # Each document begins with a line of its own, so that a reader can tell the documents of --watch apart.
        line("---\n" + yaml_text(json.loads(text), is_ascii=True, width=80).rstrip("\n"))
    else:
        raw(text)


def _json(content: msgspec.Struct | dict[str, object]) -> bytes:
    """Return the document as JSON of printable ASCII characters only.

    msgspec writes a long document in a tenth of the time and a third of the memory, but leaves other characters as they are, and refuses
    lone surrogates.
    """
    with suppress(UnicodeEncodeError):
        text = _NOT_PRINTABLE.sub(_escaped, msgspec.json.encode(content))
        return msgspec.json.format(text, indent=2)
    return json.dumps(msgspec.to_builtins(content), indent=2).encode()


def _escaped(found: re.Match[bytes]) -> bytes:
    """Return whole characters as JSON escapes. They stand in a string, as everything else of JSON is ASCII."""
    return json.dumps(found[0].decode())[1:-1].encode()


def heading(text: str) -> None:
    """Print the title of a section, in bold if the output is a terminal."""
    line(f"\033[1m{text}{_PLAIN}" if colored() else text)


def colored() -> bool:
    """Return whether to use colours: standard output is a terminal that has them, and NO_COLOR is not set to any text (no-color.org)."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    has_them = os.environ.get("TERM", "") not in ("", "dumb")
    return terminal and has_them and not os.environ.get("NO_COLOR")
