# SPDX-License-Identifier: Apache-2.0
"""Which claims have to end on one node, so that the requests get devices there, and it costs least?

A request needs a number of devices, and a claim frees all that it has when it ends: of many small claims and a few large ones, the
cheapest that free enough are chosen. The requests are served one after the other: what ends for one is free for the next. A request
that many devices suit must not take the only one that suits another, so those that fewest suit are served first, if that costs less. This
is an estimate, because constraints and counters are not looked at; `tried_changes` runs the allocator.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.explain.costs import cost_of
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.proposals import users_of
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.verdict import SelectorFalse

_Users = Mapping[SliceDevice, tuple[str, ...] | None]
"""The claims whose end lets a request have a device; None for a device that their end is not enough for."""


class Part(NamedTuple):
    """What frees `size` devices and costs this much."""

    size: int
    cost: int


class Ends(NamedTuple):
    """The claims ("namespace/name") that have to end on a node, and what that costs."""

    cost: int
    claims: tuple[str, ...]


class _Served(NamedTuple):
    """A request with the devices that it takes, and the claims that have to end for it."""

    ends: Ends
    devices: Sequence[SliceDevice]


class _Way(NamedTuple):
    """Parts that together free enough; a list linked backwards, so that many ways can have one beginning."""

    cost: int
    length: int
    last: int = -1
    before: "_Way | None" = None


def alternatives_of(requests: Iterable[RequestExplained]) -> list[list[RequestExplained]]:
    """Return the requests, the alternatives of one together."""
    mains: dict[tuple[str, int], list[RequestExplained]] = {}
    for one in requests:
        mains.setdefault(one.request.main, []).append(one)
    return list(mains.values())


class CheapestEnds:
    """Finds the claims that have to end, for the requests of one pod or claim."""

    def __init__(self, fleet: Fleet, requests: Sequence[RequestExplained]) -> None:
        self._fleet = fleet
        self._requests = requests
        self._mains = alternatives_of(requests)
        self._costs: dict[str, int] = {}
        self._chosen: dict[tuple[int, tuple[Part, ...]], list[int] | None] = {}

    def on(self, devices: Sequence[SliceDevice]) -> Ends | None:
        """Return the claims to end, so that the node with these devices serves each request; None if that is not enough."""
        known: dict[Hashable, _Users] = {}
        for one in self._requests:
            if one.asks not in known:
                known[one.asks] = {device: _users(one, device) for device in devices}
        mains = [[(one, known[one.asks]) for one in some] for some in self._mains]
        found: Ends | None = None
        fewest_first = sorted(mains, key=_suitable)
        for order in (mains, fewest_first) if fewest_first != mains else (mains,):
            ends = self._in_order(order, devices)
            if ends is not None and (found is None or ends.cost < found.cost):
                found = ends
        return found

    def _in_order(
        self,
        mains: Sequence[Sequence[tuple[RequestExplained, _Users]]],
        devices: Sequence[SliceDevice],
    ) -> Ends | None:
        ended: dict[str, None] = {}
        used: set[SliceDevice] = set()
        for alternatives in mains:
            left = [one for one in devices if one not in used] if used else devices
            ways = [self._served(one, users, left, ended) for one, users in alternatives]
            possible = [one for one in ways if one is not None]
            if not possible:
                return None
            best = min(possible, key=lambda one: one.ends.cost)
            ended |= dict.fromkeys(best.ends.claims)
            used |= {one for one in best.devices if not one.device.allow_multiple_allocations}
        return self._all_of(ended)

    def _served(
        self,
        explained: RequestExplained,
        users_of_device: _Users,
        devices: Sequence[SliceDevice],
        ended: Collection[str],
    ) -> _Served | None:
        groups: dict[tuple[str, ...], list[SliceDevice]] = {}
        every = explained.request.all_devices
        for device in devices:
            users = users_of_device[device]
            if users is not None:
                left = tuple([one for one in users if one not in ended]) if ended else users
                groups.setdefault(left, []).append(device)
            elif every and not _unselected(explained, device):
                return None  # it asks for all that match, and nobody can free this one
        if explained.problems:
            return None
        if every:
            names = dict.fromkeys(name for users in groups for name in users)
            matching = [one for some in groups.values() for one in some]
            return _Served(self._all_of(names), matching) if matching else None
        return self._of_count(explained, groups)

    def _of_count(
        self, explained: RequestExplained, groups: dict[tuple[str, ...], list[SliceDevice]]
    ) -> _Served | None:
        # Only a record that was edited by hand has a negative count.
        count = max(explained.request.body.count, 0)
        free = groups.pop((), [])
        parts = tuple([Part(len(found), self._cost(users)) for users, found in groups.items()])
        numbers = self._cheapest(parts, count - len(free))
        if numbers is None:
            return None
        every = list(groups)
        chosen = [every[number] for number in numbers]
        taken = [*free, *(one for users in chosen for one in groups[users])]
        names = dict.fromkeys(name for users in chosen for name in users)
        return _Served(self._all_of(names), taken[:count])

    def _cheapest(self, parts: tuple[Part, ...], needed: int) -> list[int] | None:
        """Return what `cheapest` does; it is found once for nodes where other claims have as many devices at the same cost."""
        key = (needed, parts)
        if key not in self._chosen:
            self._chosen[key] = cheapest(parts, needed)
        return self._chosen[key]

    def _all_of(self, claims: Iterable[str]) -> Ends:
        names = tuple(claims)
        return Ends(self._cost(names), names)

    def _cost(self, claims: Iterable[str]) -> int:
        return sum([self._costs.get(one) or self._cost_of(one) for one in claims])

    def _cost_of(self, claim: str) -> int:
        found = self._costs[claim] = cost_of(self._fleet.holders.named(claim))
        return found


def cheapest(parts: Sequence[Part], needed: int) -> list[int] | None:
    """Return the numbers of the parts that free at least as many devices as needed and cost least, of several ways the one with fewest parts.

    None if all together are not enough, or if one claim cannot have as many devices.
    """
    if needed <= 0:
        return []
    if needed > MAX_RESULTS or sum(one.size for one in parts) < needed:
        return None
    # The best way to free at least so many devices, for each number up to the needed one.
    ways: list[_Way | None] = [_Way(0, 0), *[None] * needed]
    alike: dict[Part, int] = {}
    for index, part in enumerate(parts):
        alike[part] = alike.get(part, 0) + 1
        if (alike[part] - 1) * part.size >= needed:
            continue  # as many as can be of use were looked at
        for number in range(needed, 0, -1):
            before, known = ways[max(number - part.size, 0)], ways[number]
            if before is not None:
                way = _Way(before.cost + part.cost, before.length + 1, index, before)
                if known is None or way[:2] < known[:2]:
                    ways[number] = way
    return _numbers(ways[needed])


def _numbers(way: _Way | None) -> list[int]:
    numbers: list[int] = []
    while way is not None and way.before is not None:
        numbers.append(way.last)
        way = way.before
    return numbers[::-1]


def _users(explained: RequestExplained, device: SliceDevice) -> tuple[str, ...] | None:
    """Return the claims whose end lets the request have the device; None if something else is in its way, or the pod's own claim."""
    users: tuple[str, ...] = ()
    for reason in explained.reasons(device):
        some = users_of(reason)
        if not some or any(one in explained.own for one in some):
            return None
        users += some
    return users


def _suitable(alternatives: Sequence[tuple[RequestExplained, _Users]]) -> int:
    """Return how many devices one of the alternatives can have, if claims end."""
    return sum(one is not None for _, users in alternatives for one in users.values())


def _unselected(explained: RequestExplained, device: SliceDevice) -> bool:
    return any(isinstance(one, SelectorFalse) for one in explained.reasons(device))
