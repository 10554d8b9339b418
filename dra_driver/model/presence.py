# SPDX-License-Identifier: Apache-2.0
"""Whether a pod still has a process on this node, as a closed set of answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gone:
    """Shown to have no process left. Never said for want of an answer."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Something of the pod still runs; `detail` says where that was seen."""

    detail: str


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Nobody could show it either way; `reason` says what was looked at."""

    reason: str


Presence = Gone | Alive | CannotTell
