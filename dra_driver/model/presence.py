# SPDX-License-Identifier: Apache-2.0
"""Does a pod still have a process on this node? The possible answers."""

from msgspec import Struct


class Gone(Struct, frozen=True):
    """It is proven that the pod has no process left. A missing answer is no proof."""


class Alive(Struct, frozen=True):
    """A process of the pod still runs; `detail` says where it was found."""

    detail: str


class CannotTell(Struct, frozen=True):
    """It is not known whether the pod has a process; `reason` says why."""

    reason: str


Presence = Gone | Alive | CannotTell
