# SPDX-License-Identifier: Apache-2.0
"""The form of the texts of `dra-driver doctor`."""

from typing import Literal

from msgspec import Struct

Severity = Literal["problem", "warning", "unknown", "note", "ok"]


class Check(Struct, frozen=True):
    """One question that `doctor` asks. `to_look` says what it needs where it cannot look."""

    question: str
    to_look: str


class Text(Struct, frozen=True):
    """What a finding of a check means, and what to do. `command` has gaps such as {path}."""

    check: str
    severity: Severity
    title: str
    meaning: str
    next_step: str
    command: str
