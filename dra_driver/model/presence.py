# SPDX-License-Identifier: Apache-2.0
"""Does a pod still have a process on this node? The possible answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gone:
    """It is proven that the pod has no process left. A missing answer is no proof."""


@dataclass(frozen=True, slots=True)
class Alive:
    """A process of the pod still runs; `detail` says where it was found."""

    detail: str


@dataclass(frozen=True, slots=True)
class CannotTell:
    """It is not known whether the pod has a process; `reason` says why."""

    reason: str


Presence = Gone | Alive | CannotTell
