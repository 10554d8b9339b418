# SPDX-License-Identifier: Apache-2.0
"""This module formats what `dra-driver doctor` found as text: the worst first, what is fine only as a number."""

from collections.abc import Iterator

from dra_driver.cli.render import plain
from dra_driver.cli.render_explain import bold, wrapped
from dra_driver.doctor.findings import NO_NODE, Diagnosis, Finding, counted
from dra_driver.doctor.text import Severity

_COLORS: dict[Severity, str] = {"problem": "\033[31m", "warning": "\033[33m"}
_END = "\033[0m"
_WORDS: dict[Severity, str] = {
    "problem": "PROBLEM",
    "warning": "WARNING",
    "unknown": "NOT LOOKED AT",
    "note": "NOTE",
    "ok": "fine",
}

_SEEN = {"node": "", "cluster": ", as the API server shows it", "record": ", as it was recorded"}


def lines(found: Diagnosis, *, width: int, color: bool, everything: bool) -> Iterator[str]:
    """Yield the answer as lines of at most `width` characters; with `everything` also what is fine."""
    for one in found.findings:
        if one.severity == "ok":
            if everything:
                yield from wrapped(f"fine: {one.check}: {one.object}: {one.found}", width)
            continue
        yield from _finding(one, width, color=color)
        yield ""
    here = "machine" if any(one.id == NO_NODE for one in found.findings) else "node"
    where = f"node {found.node}" if found.node else f"this {here}"
    seen = _SEEN[found.seen_from]
    yield bold(f"{where}{seen}: {counted(found.findings) or 'nothing was looked at'}", color=color)


def _finding(one: Finding, width: int, *, color: bool) -> Iterator[str]:
    word = _WORDS[one.severity]
    if color and one.severity in _COLORS:
        word = f"{_COLORS[one.severity]}{word}{_END}"
    yield f"{word} {plain(f'{one.id}: {one.object}')}"
    yield from wrapped(one.found, width, indent="  ")
    if one.severity != "unknown":
        yield from wrapped(f"means: {one.meaning}", width, indent="  ")
    yield from wrapped(f"do: {one.next_step}", width, indent="  ")
    if one.command:
        # Not wrapped: it is there to be copied.
        yield f"  $ {plain(one.command)}"
