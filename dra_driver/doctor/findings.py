# SPDX-License-Identifier: Apache-2.0
"""The answer of `dra-driver doctor`: findings, in the order in which a person wants to read them."""

import shlex
from collections.abc import Iterable
from typing import Literal

import msgspec

from dra_driver.doctor.text import Severity
from dra_driver.doctor.texts import CHECKS, TEXTS
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, NOT_DONE, WITH_RESERVATION
from dra_driver.model.names import DOCUMENT_VERSION, NODE_DIAGNOSIS_KIND
from dra_driver.model.printable import printable

MOST_TEXT = 2000
"""Of a text from outside, this much is shown: a finding is for reading."""
NO_NODE = "perhaps-no-node"
"""The finding that comes first: the others are read in another way then."""
NOT_ASKED = "probes-out-of-reach"
"""The note that the driver's probes were not looked at, which is the usual case outside of its pod."""
ORDER: tuple[Severity, ...] = ("problem", "warning", "unknown", "note", "ok")


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that a check found. `object` is what was looked at. `severity`: "problem" (devices do not work), "warning" (they may
    fail, or go to the wrong pod), "unknown" (the check could not look; `found` says why), "note", or "ok". `command` is "" if none mends it.
    """

    check: str
    id: str
    severity: Severity
    object: str
    found: str
    meaning: str
    next_step: str
    command: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `doctor -o json`. `from`: "node" (this machine was looked at), "cluster" (only the API server was asked), or "record" (a file)."""

    api_version: str = DOCUMENT_VERSION
    kind: str = NODE_DIAGNOSIS_KIND
    node: str
    driver: str
    seen_from: Literal["node", "cluster", "record"] = msgspec.field(name="from")
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """What the findings mean for a script."""
        found = {one.severity for one in self.findings if one.id != NOT_ASKED}
        if "problem" in found:
            return NOT_DONE
        if found == {"unknown"}:
            return COULD_NOT_TELL
        return WITH_RESERVATION if found & {"warning", "unknown"} else DONE


def finding(name: str, where: str, found: str, **values: str) -> Finding:
    """Make a finding with the texts of the table. `values` fill the gaps of its command, quoted for a shell."""
    text = TEXTS[name]
    quoted = {key: shlex.quote(printable(value)) for key, value in values.items()}
    return Finding(
        check=text.check,
        id=name,
        severity=text.severity,
        object=_shown(where),
        found=_shown(found),
        meaning=text.meaning,
        next_step=text.next_step,
        command=text.command.format_map(quoted),
    )


def fine(check: str, where: str, found: str) -> Finding:
    """Say that a check found nothing wrong."""
    return _plain(check, "ok", where, found, next_step="")


def unknown(check: str, where: str, why: str) -> Finding:
    """Say that a check could not look, and why."""
    return _plain(check, "unknown", where, why, next_step=CHECKS[check].to_look)


def retold(told: Finding) -> Finding:
    """Return a finding of a file in the words of this release. Only what was looked at and what was found are the file's.

    Its author may be anybody. So there is no command to copy, and no advice but this release's own.
    """
    text = TEXTS.get(told.id)
    if text is not None and text.check == told.check:
        return Finding(
            check=text.check,
            id=told.id,
            severity=text.severity,
            object=_shown(told.object),
            found=_shown(told.found),
            meaning=text.meaning,
            next_step=text.next_step,
            command="",
        )
    if told.id != told.check or told.severity not in ("ok", "unknown"):
        return unknown(
            told.check, told.object, f"this release does not know {told.id}: {told.found}"
        )
    return (fine if told.severity == "ok" else unknown)(told.check, told.object, told.found)


def ordered(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, the worst first; those of equal weight in the order of the checks."""
    places = {name: place for place, name in enumerate(CHECKS)}
    return tuple(
        sorted(
            found,
            key=lambda one: (one.id != NO_NODE, ORDER.index(one.severity), places[one.check]),
        )
    )


def counted(found: Iterable[Finding]) -> str:
    """Return how many findings there are of each kind, in one line."""
    words: dict[Severity, tuple[str, str]] = {
        "problem": ("problem", "problems"),
        "warning": ("warning", "warnings"),
        "unknown": ("could not be looked at", "could not be looked at"),
        "note": ("note", "notes"),
        "ok": ("fine", "fine"),
    }
    kinds = [one.severity for one in found]
    return ", ".join(
        f"{number} {words[kind][number != 1]}" for kind in ORDER if (number := kinds.count(kind))
    )


def _plain(check: str, severity: Severity, where: str, found: str, *, next_step: str) -> Finding:
    return Finding(
        check=check,
        id=check,
        severity=severity,
        object=_shown(where),
        found=_shown(found),
        meaning=CHECKS[check].question if severity == "unknown" else "",
        next_step=next_step,
        command="",
    )


def _shown(text: str) -> str:
    return printable(" ".join(text.split()), most=MOST_TEXT)
