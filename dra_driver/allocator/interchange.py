# SPDX-License-Identifier: Apache-2.0
"""Which devices need not be tried, because others failed in their place?

Two rules, both only used once the search has had to go back, so that an easy claim pays nothing for them.

*Interchangeable devices.* Two devices are alike if every request of the pod judges them alike, every constraint sees the
same values, and they take the same from the same counters and have the same capacity left. Whatever contains one of
them has a twin that contains the other. So when everything with device A in a place has failed, then everything with an
alike device B in this place fails too, and so does everything with B in a later place of the same request: its twin,
put in order, has A first. B is barred there. The same if A was rejected at once: what is taken later frees nothing.

*Too few left.* A request that lacks five devices fails if fewer than five of those still to come are eligible. Under
matchAttribute all five must carry one value: a device fails of which no value is carried by five.

Both hold only if nothing depends on the order in which devices are added, and only if nothing is left out that
would have ended the search with an error. So neither is used (`possible` is False)
- when a request wants All devices under a constraint: the first device that violates it is an error, not a failure;
- when a single value is wanted and an attribute is a list, which may come first but not second;
- when a counter's consumption is negative, so that one device makes room for another.
A selector that fails on a device makes this device like no other, and ends the second rule for its request; attributes
computed by the request end it too.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from dra_driver.allocator.board import Board
from dra_driver.allocator.capacity import Consumed
from dra_driver.allocator.constraints import UNKNOWN, AnyConstraint, MatchAttribute
from dra_driver.allocator.eligibility import Verdicts
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.requests import Choice, Request


class Taken(NamedTuple):
    """The state of the search, as far as it is read here."""

    verdicts: Verdicts
    in_use: Mapping[int, set[int]]
    shares: Mapping[int, list[Consumed]]


class Interchange:
    """Answers for one search."""

    def __init__(
        self,
        board: Board,
        claims: Sequence[Sequence[Choice]],
        under: Callable[[Request], Sequence[AnyConstraint]],
        taken: Taken,
    ) -> None:
        self._board = board
        self._claims = claims
        self._under = under
        self._verdicts = taken.verdicts
        self._in_use = taken.in_use
        self._shares = taken.shares
        self._alike: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._to_come: dict[Request, Sequence[int]] = {}
        self._verdicts_of: dict[Request, Sequence[bool | None]] = {}

    @cached_property
    def _requests(self) -> list[Request]:
        return [
            one for choices in self._claims for choice in choices for one in choice.alternatives
        ]

    @cached_property
    def possible(self) -> bool:
        """Whether the rules may be used for these claims."""
        return (
            not any(one.wants_all and self._under(one) for one in self._requests)
            and all(ledger.monotonic for ledger in set(self._board.ledgers))
            and (self._board.rules.list_attributes or not self._any_list())
        )

    def key(self, position: int) -> Hashable:
        """Equal for positions whose devices are alike, in the present state of the search."""
        alike = self._alike.get(position)
        if alike is None:
            description = self._describe(position)
            alike = self._numbers.setdefault(description, len(self._numbers))
            self._alike[position] = alike
        claims = self._in_use.get(position)
        shares = self._shares.get(position)
        if not claims and not shares:
            return alike
        taken = tuple(tuple(share.items()) for share in shares or ())
        return alike, frozenset(claims or ()), taken

    def to_come(self, request: Request) -> Sequence[int]:
        """For each position how many devices the request can take from it on if it takes this one, at best.

        Nothing if that is not certain.
        """
        if not self._board.rules.newer_than_stable or request.derived:
            return ()
        to_come = self._to_come.get(request)
        if to_come is None:
            to_come = self._to_come[request] = self._count(request)
        return to_come

    def _count(self, request: Request) -> Sequence[int]:
        verdicts = self._judgements(request)
        if None in verdicts:
            return ()
        many = list(accumulate(map(int, map(bool, reversed(verdicts)))))[::-1]
        for constraint in self._under(request):
            if isinstance(constraint, MatchAttribute):
                matching = self._matching(constraint, request, verdicts)
                many = list(map(min, many, matching))
        return many

    def _matching(
        self, constraint: MatchAttribute, request: Request, verdicts: Sequence[bool | None]
    ) -> Sequence[int]:
        """For each position how many eligible devices from it on carry one and the same of the device's values."""
        carriers: dict[Hashable, int] = {}
        found = [0] * len(verdicts)
        for position in reversed(range(len(verdicts))):
            if not verdicts[position]:
                continue
            device = self._board.devices[position]
            values = self._board.lookup.values(request, device, constraint.attribute)
            kind, own = values or UNKNOWN
            for value in own:
                carried = carriers[kind, value] = carriers.get((kind, value), 0) + 1
                found[position] = max(found[position], carried)
        return found

    def _judgements(self, request: Request) -> Sequence[bool | None]:
        """What `_verdict` says, for all positions."""
        known = self._verdicts_of.get(request)
        if known is None:
            known = [self._verdict(request, at) for at in range(len(self._board.devices))]
            self._verdicts_of[request] = known
        return known

    def _verdict(self, request: Request, position: int) -> bool | None:
        """Whether the device is eligible; None if asking is an error, which is not ours to raise."""
        device, ledger = self._board.devices[position], self._board.ledgers[position]
        try:
            if not self._verdicts.eligible(request, position):
                return False
        except AllocationError:
            return None
        if not device.device.consumes_counters or device.device.allow_multiple_allocations:
            return True
        return not ledger.never(device)

    def _describe(self, position: int) -> Hashable:
        device, ledger = self._board.devices[position], self._board.ledgers[position]
        holdings = self._board.holdings
        judged = tuple([self._judged(request, position) for request in self._requests])
        if None in judged:
            return position, "unlike all others"
        consumes = device.device.consumes_counters
        return (
            judged,
            device.device.allow_multiple_allocations,
            holdings.allocated(device.id),
            holdings.shared(device.id),
            (id(ledger), tuple(device.consumes.items()), device.groups) if consumes else None,
        )

    def _judged(self, request: Request, position: int) -> Hashable:
        """All that the request can tell of the device; None if asking is an error."""
        device = self._board.devices[position]
        verdict = (
            position in request.all_devices
            if request.wants_all
            else self._judgements(request)[position]
        )
        if not verdict:
            return verdict
        under = self._under(request)
        try:
            lookup = self._board.lookup
            values = tuple([lookup.values(request, device, one.attribute) for one in under])
        except AllocationError:
            return None
        return values, self._capacity(request, position)

    def _capacity(self, request: Request, position: int) -> Hashable:
        device = self._board.devices[position]
        if not (self._board.rules.consumable_capacity and device.device.allow_multiple_allocations):
            return None
        consumed = self._board.eligibility.consumed(request, device, device.id)
        taken = self._board.holdings.capacity(device.id)
        return tuple(
            (name, consumed[name], device.capacity[name].nanos, taken.get(name, 0))
            for name in sorted(consumed)
        )

    def _any_list(self) -> bool:
        """Whether some attribute under a constraint is of a kind that a single value cannot have."""
        if any(request.derived for request in self._requests):
            return True
        values, devices = self._board.lookup.values, self._board.devices
        compared = {(one, found.attribute) for one in self._requests for found in self._under(one)}
        return any(values(one, each, name) is UNKNOWN for one, name in compared for each in devices)
