# SPDX-License-Identifier: Apache-2.0
"""How far is a device from a request? All reasons against it, weighed by what it costs to remove them."""

from collections.abc import Collection, Sequence
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.allocator.amounts import ZERO, Amount, amount
from dra_driver.allocator.capacity import permitted
from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.explain.closeness import closeness_for
from dra_driver.explain.costs import CORRECT, EDIT, EDIT_CLASS, cost_of
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.reasons import DeviceKind, RequestExplained
from dra_driver.explain.selector_answers import RequestSelector
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    HeldByClaim,
    SelectorFalse,
    Verdict,
)


class Miss(Struct, frozen=True, eq=False):
    """A device and all reasons against it.

    `parts` are the false conditions of the selectors. `foreign`: the selectors ask for another driver. `own` are the claims of the
    pod that have their devices already. `ends` is what it costs to end the claims that have the device, or use up its capacity or its counters.
    """

    device: SliceDevice
    reasons: tuple[Verdict, ...]
    parts: tuple[tuple[RequestSelector, FalseCondition], ...]
    foreign: bool
    own: Collection[str] = ()
    ends: int = 0

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
    def distance(self) -> tuple[bool, bool, int, int]:
        """How far the device is from the request: the smaller, the nearer.

        A device of another driver is farther than all other devices, and one that the request does not match is farther than one
        that it matches, whatever keeps that one.
        """
        unmatched = any(isinstance(one, SelectorFalse | CapacityTooSmall) for one in self.reasons)
        return self.foreign, unmatched, self.cost, self.ends


def missed(explained: RequestExplained, device: SliceDevice) -> Miss:
    """Return the device with all reasons against it for this request."""
    parts = explained.answers.judged(device).parts
    foreign = explained.answers.foreign(device)
    reasons = explained.reasons(device)
    return Miss(device, reasons, parts, foreign, explained.own, _ends(explained.fleet, reasons))


def relaxed(explained: RequestExplained, miss: Miss) -> Miss:
    """Return the same miss, where each false condition also has the nearest condition that the device meets."""
    meant = closeness_for(explained).meant
    return replace(miss, parts=explained.answers.relaxed(miss.device, meant))


def nearest(
    explained: RequestExplained, devices: Sequence[SliceDevice], *, free: bool = False
) -> Miss | None:
    """Return the device with the smallest distance; None if no device has a reason against it.

    Of several, the one whose values are closest to what the false conditions ask for, and of these the first.
    `free`: only among the devices against which nothing but selectors speaks.
    """
    key = (Miss, frozenset(explained.own))
    groups = explained.shared(key, devices, lambda: _of_each_distance(explained, devices))
    possible = [one for one in groups if one.miss.reasons and not (free and one.miss.others)]
    if not possible:
        return None
    least = min(one.miss.distance for one in possible)
    kinds = [kind for one in possible if one.miss.distance == least for kind in one.kinds]
    candidates = (device for kind in kinds for device in kind.devices)
    best = closeness_for(explained).closest(candidates)
    return relaxed(explained, missed(explained, best))


class _Equal(Struct, frozen=True, eq=False):
    """Devices with the same distance; `miss` is the first of them."""

    miss: Miss
    kinds: Sequence[DeviceKind]


def _of_each_distance(
    explained: RequestExplained, devices: Sequence[SliceDevice]
) -> Sequence[_Equal]:
    """Return the devices with the same false conditions and equally costly other reasons together, in their order.

    A large fleet has few of these.
    """
    found: dict[object, list[DeviceKind]] = {}
    for kind in explained.kinds(devices):
        costs = [cost_of(one, explained.own) for one in kind.others]
        key = (id(kind.judgement), _ends(explained.fleet, kind.others), *costs)
        found.setdefault(key, []).append(kind)
    return [_Equal(missed(explained, kinds[0].devices[0]), kinds) for kinds in found.values()]


def roomiest(
    explained: RequestExplained, devices: Sequence[SliceDevice], *, held: bool = False
) -> Miss | None:
    """Return the device whose rest the request should ask for; None if not only capacity is short, or if none of it is.

    As many of the devices have at least this rest as the request asks for, and no larger one. `held`: also among devices that claims have.
    """
    removed = _is_short_or_held if held else _is_short
    misses = (
        missed(explained, one) for one in devices if all(map(removed, explained.reasons(one)))
    )
    short = sorted(((room(explained, one), one) for one in misses), key=lambda one: -one[0])
    request = explained.request
    count = len(short) if request.all_devices else request.body.count
    if not 0 < count <= len(short):
        return None
    rest, miss = short[count - 1]
    return miss if miss.reasons and rest else None


def room(explained: RequestExplained, miss: Miss) -> float:
    """Return which part of the capacity that it needs the request could get of the device, from 0 to 1; 1 if no capacity is short."""
    short = {one.capacity: one.needed for one in miss.reasons if _is_short(one)}
    if not short:
        return 1.0
    asked = explained.request.body.capacity
    needed = {**((asked.requests if asked else None) or {}), **short}
    parts = (_part(explained.fleet, miss.device, name, amount(needed[name])) for name in needed)
    return min(parts)


def _part(fleet: Fleet, device: SliceDevice, name: str, needed: Amount) -> float:
    left = amount(str(fleet.left_of(device, name)))
    most = permitted((device.device.capacity or {})[name], min(left, needed, key=_nanos))
    return _nanos(most or ZERO) / max(_nanos(needed), 1)


def _nanos(one: Amount) -> int:
    return one.nanos


def _is_short(reason: Verdict) -> TypeGuard[CapacityConsumed | CapacityTooSmall]:
    """Whether the device has the capacity, and not enough of it."""
    if isinstance(reason, CapacityTooSmall):
        return bool(reason.has)
    return isinstance(reason, CapacityConsumed)


def _is_short_or_held(reason: Verdict) -> bool:
    return isinstance(reason, HeldByClaim) or _is_short(reason)


def _ends(fleet: Fleet, reasons: Sequence[Verdict]) -> int:
    """Return what it costs to end the claims that have the device, or use up its capacity or its counters."""
    users: dict[str, None] = {}
    for one in reasons:
        match one:
            case HeldByClaim(claim=name):
                users[name] = None
            case CapacityConsumed(claims=names) | CountersUsedUp(claims=names):
                users |= dict.fromkeys(names)
            case _:
                pass
    named = fleet.holders.named
    return sum([cost_of(named(one)) for one in users])


def _cost_of_part(selector: RequestSelector, part: FalseCondition) -> int:
    if part.typo:
        return CORRECT
    return EDIT if selector.is_own else EDIT_CLASS
