# SPDX-License-Identifier: Apache-2.0
"""How far is a device from a request? All reasons against it, weighed by what it costs to remove them."""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.explain.costs import CORRECT, EDIT, EDIT_CLASS, cost_of
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.selector_answers import RequestSelector
from dra_driver.explain.verdict import CapacityTooSmall, SelectorFalse, Verdict


class Miss(Struct, frozen=True, eq=False):
    """A device and all reasons against it.

    `parts` are the false conditions of the selectors. `foreign`: the selectors ask for another driver. `own` are the claims of the
    pod that have their devices already.
    """

    device: SliceDevice
    reasons: tuple[Verdict, ...]
    parts: tuple[tuple[RequestSelector, FalseCondition], ...]
    foreign: bool
    own: Collection[str] = ()

    @property
    def cost(self) -> int:
        """What it costs to remove all reasons."""
        parts = sum(_cost_of_part(selector, part) for selector, part in self.parts)
        return parts + sum(cost_of(one, self.own) for one in self.others)

    @property
    def others(self) -> Sequence[Verdict]:
        """The reasons other than false selectors."""
        return [one for one in self.reasons if not isinstance(one, SelectorFalse)]

    @property
    def distance(self) -> tuple[bool, bool, int]:
        """How far the device is from the request: the smaller, the nearer.

        A device of another driver is farther than all other devices, and one that the request does not match is farther than one
        that it matches, whatever keeps that one.
        """
        unmatched = any(isinstance(one, SelectorFalse | CapacityTooSmall) for one in self.reasons)
        return self.foreign, unmatched, self.cost


def missed(explained: RequestExplained, device: SliceDevice) -> Miss:
    """Return the device with all reasons against it for this request."""
    parts = explained.answers.judged(device).parts
    foreign = explained.answers.foreign(device)
    return Miss(device, explained.reasons(device), parts, foreign, explained.own)


def relaxed(explained: RequestExplained, miss: Miss) -> Miss:
    """Return the same miss, where each false condition also has the nearest condition that the device meets."""
    return replace(miss, parts=explained.answers.relaxed(miss.device))


def nearest(
    explained: RequestExplained, devices: Sequence[SliceDevice], *, free: bool = False
) -> Miss | None:
    """Return the device with the smallest distance, the first of several; None if no device has a reason against it.

    `free`: only among the devices against which nothing but selectors speaks.
    """
    best: Miss | None = None
    seen: set[object] = set()
    for kind in explained.kinds(devices):
        # Devices with the same false conditions and equally costly other reasons have the same distance. A large fleet has few of
        # these, and the first device of each is enough.
        key = (id(kind.judgement), *(cost_of(one, explained.own) for one in kind.others))
        if key in seen:
            continue
        seen.add(key)
        miss = missed(explained, kind.devices[0])
        if free and miss.others:
            continue
        if miss.reasons and (best is None or miss.distance < best.distance):
            best = miss
    return best and relaxed(explained, best)


def _cost_of_part(selector: RequestSelector, part: FalseCondition) -> int:
    if part.typo:
        return CORRECT
    return EDIT if selector.is_own else EDIT_CLASS
