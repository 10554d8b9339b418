# SPDX-License-Identifier: Apache-2.0
"""Which devices can the search skip, because trying them cannot change the result?

Upstream tries all combinations of devices. With many equal devices this takes too long. This module has two rules that
skip combinations. The search uses them only after its first backtracking, so they do not slow down a simple claim.

*Equal devices.* Two devices A and B are equal if every request of the pod accepts both or none, every constraint sees the
same values, they consume the same from the same counters, and they have the same capacity left. In every solution with B
we can replace B by A. Now assume that every combination with A in one place of a request failed. Then every combination
with B in this place fails, too. B also fails in all later places of the request. For example, take the combination (C, B):
replaced and sorted it is (A, C), which has A in the place where every combination failed. So B is skipped in all these
places. The same is true if A was rejected at once, because the devices that the search adds later never free anything.

*Too few devices left.* A request needs five more devices. If fewer than five eligible devices follow in the order, the
request fails. Under matchAttribute, five devices must have one value in common. So the search skips a device if each of
its values occurs in fewer than five of the devices that follow.

Both rules need two conditions: the order of the devices does not matter, and no skipped device would have ended the
search with an error. `possible` is False, and no rule is used,
- if a request has allocationMode All and a constraint: the first device that violates the constraint is an error;
- if list attributes are disabled and an attribute is a list: such a device is accepted only as the first one;
- if a device consumes a negative amount of a counter: then one device makes counters free for another device.
If a selector ends with an error on a device, this device equals no other device, and the second rule does not apply to
the request. The second rule also does not apply to a request with derived attributes.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from dra_driver.allocator.capacity import Consumed
from dra_driver.allocator.constraints import UNKNOWN, AnyConstraint, MatchAttribute
from dra_driver.allocator.eligibility import EligibilityCache
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.requests import Choice, Request
from dra_driver.allocator.search_input import SearchInput


class SearchState(NamedTuple):
    """The part of the search's state that the rules read. The search changes these objects."""

    verdicts: EligibilityCache
    devices: Mapping[int, set[int]]
    shares: Mapping[int, list[Consumed]]


class Pruning:
    """The two rules, for one search."""

    def __init__(
        self,
        search_input: SearchInput,
        claims: Sequence[Sequence[Choice]],
        constraints_on: Callable[[Request], Sequence[AnyConstraint]],
        state: SearchState,
    ) -> None:
        self._input = search_input
        self._claims = claims
        self._constraints_on = constraints_on
        self._verdicts = state.verdicts
        self._allocating_devices = state.devices
        self._allocating_shares = state.shares
        self._equal_keys: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._remaining: dict[Request, Sequence[int]] = {}
        self._verdicts_of: dict[Request, Sequence[bool | None]] = {}

    @cached_property
    def _requests(self) -> list[Request]:
        return [
            one for choices in self._claims for choice in choices for one in choice.alternatives
        ]

    @cached_property
    def possible(self) -> bool:
        """Whether the rules can be used for these claims. The three conditions are in the module docstring."""
        return (
            not any(one.wants_all and self._constraints_on(one) for one in self._requests)
            and all(counters.monotonic for counters in set(self._input.counters))
            and (self._input.rules.list_attributes or not self._any_list())
        )

    def key(self, position: int) -> Hashable:
        """Return a key that two positions share if their devices are equal in the current state of the search."""
        equal_key = self._equal_keys.get(position)
        if equal_key is None:
            # The search hashes keys very often. A small number hashes faster than the long description.
            description = self._describe(position)
            equal_key = self._numbers.setdefault(description, len(self._numbers))
            self._equal_keys[position] = equal_key
        claims = self._allocating_devices.get(position)
        shares = self._allocating_shares.get(position)
        if not claims and not shares:
            return equal_key
        taken = tuple(tuple(share.items()) for share in shares or ())
        return equal_key, frozenset(claims or ()), taken

    def remaining(self, request: Request) -> Sequence[int]:
        """Return, for each position, the largest number of devices that the request can get from this position on.

        The number at position p is for combinations that include device p. The sequence is empty if the second rule does not
        apply to the request.
        """
        # The stable allocator starts each search for a device at the first position, so "from this position on" has no
        # meaning there.
        if not self._input.rules.newer_than_stable or request.derived:
            return ()
        remaining = self._remaining.get(request)
        if remaining is None:
            remaining = self._remaining[request] = self._count(request)
        return remaining

    def _count(self, request: Request) -> Sequence[int]:
        # If one of the verdicts is an error, the search must either come to that device or find a solution before it. So the
        # request must not fail early.
        verdicts = self._verdicts_for(request)
        if None in verdicts:
            return ()
        many = list(accumulate(map(int, map(bool, reversed(verdicts)))))[::-1]
        for constraint in self._constraints_on(request):
            if isinstance(constraint, MatchAttribute):
                matching = self._matching(constraint, request, verdicts)
                many = list(map(min, many, matching))
        return many

    def _matching(
        self, constraint: MatchAttribute, request: Request, verdicts: Sequence[bool | None]
    ) -> Sequence[int]:
        """Return, for each position, how many eligible devices from this position on have one value in common with its device."""
        carriers: dict[Hashable, int] = {}
        found = [0] * len(verdicts)
        for position in reversed(range(len(verdicts))):
            if not verdicts[position]:
                continue
            device = self._input.devices[position]
            values = self._input.lookup.values(request, device, constraint.attribute)
            kind, own = values or UNKNOWN
            for value in own:
                carried = carriers[kind, value] = carriers.get((kind, value), 0) + 1
                found[position] = max(found[position], carried)
        return found

    def _verdicts_for(self, request: Request) -> Sequence[bool | None]:
        """Return the results of `_verdict` for all positions."""
        known = self._verdicts_of.get(request)
        if known is None:
            known = [self._verdict(request, at) for at in range(len(self._input.devices))]
            self._verdicts_of[request] = known
        return known

    def _verdict(self, request: Request, position: int) -> bool | None:
        """Return whether the request can have the device. None if the check ends with an error."""
        device, counters = self._input.devices[position], self._input.counters[position]
        try:
            if not self._verdicts.eligible(request, position):
                return False
        except AllocationError:
            # The search may find a solution before it comes to this device. Then the scheduler never gets this error.
            return None
        # A second share of a device consumes no counters, so too few counters now do not exclude the device.
        if not device.device.consumes_counters or device.device.allow_multiple_allocations:
            return True
        return not counters.never_enough(device)

    def _describe(self, position: int) -> Hashable:
        device, counters = self._input.devices[position], self._input.counters[position]
        devices_in_use = self._input.devices_in_use
        observed = tuple([self._observed(request, position) for request in self._requests])
        if None in observed:
            return position, "unlike all others"
        # Devices of two pools are equal only if both consume no counters, because each pool has its own counters.
        consumes = device.device.consumes_counters
        return (
            observed,
            device.device.allow_multiple_allocations,
            devices_in_use.allocated(device.id),
            devices_in_use.shared(device.id),
            (id(counters), tuple(device.consumes.items()), device.groups) if consumes else None,
        )

    def _observed(self, request: Request, position: int) -> Hashable:
        """Return all values of the device that can change the answer for the request. None if a check ends with an error."""
        # All devices that the request cannot have are equal for this request, so their values are left out.
        device = self._input.devices[position]
        verdict = (
            position in request.all_devices
            if request.wants_all
            else self._verdicts_for(request)[position]
        )
        if not verdict:
            return verdict
        constraints_on = self._constraints_on(request)
        try:
            lookup = self._input.lookup
            values = tuple(
                [lookup.values(request, device, one.attribute) for one in constraints_on]
            )
        except AllocationError:
            return None
        return values, self._capacity(request, position)

    def _capacity(self, request: Request, position: int) -> Hashable:
        # A request that takes a whole device takes all its capacity. Only the capacity of a shared device can be too small later.
        device = self._input.devices[position]
        if not (self._input.rules.consumable_capacity and device.device.allow_multiple_allocations):
            return None
        consumed = self._input.eligibility.consumed(request, device, device.id)
        taken = self._input.devices_in_use.capacity(device.id)
        return tuple(
            (name, consumed[name], device.capacity[name].nanos, taken.get(name, 0))
            for name in sorted(consumed)
        )

    def _any_list(self) -> bool:
        """Return whether a constraint may get a value of unknown type, which it accepts only for the first device."""
        if any(request.derived for request in self._requests):
            return True
        values, devices = self._input.lookup.values, self._input.devices
        compared = {
            (one, found.attribute) for one in self._requests for found in self._constraints_on(one)
        }
        return any(values(one, each, name) is UNKNOWN for one, name in compared for each in devices)
