# SPDX-License-Identifier: Apache-2.0
"""The form of the texts of `dra-driver doctor`."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "warning", "unknown", "note", "ok"]


@dataclass(frozen=True, slots=True)
class Check:
    """One question that `doctor` asks. `to_look` says what it needs where it cannot look."""

    question: str
    to_look: str


@dataclass(frozen=True, slots=True)
class Text:
    """What a finding of a check means, and what to do. `command` has gaps such as {path}."""

    check: str
    severity: Severity
    title: str
    meaning: str
    next_step: str
    command: str
