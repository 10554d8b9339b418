# SPDX-License-Identifier: Apache-2.0
"""Which devices together satisfy all claims? The search returns the first solution in the scheduler's order.

This is a depth-first search: it takes the claims in order, in each claim the requests, and in each request the devices in
the order of the pools. If no device fits, it goes back to the device before. The order must be the same as in the scheduler,
because another order could find another solution first. Inside a request the search tries combinations of devices. The stable
implementation tries permutations, and its first solution is the same.

Upstream is a recursive function. A pod may have many claims with 32 devices each, and Python limits the depth of calls. So
each function here is a generator. It yields the function that it wants to call, and `run` keeps the stack in a list.

The module `pruning` says which combinations the search skips, and why this does not change the result.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (allocateOne, allocateDevice).
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from dra_driver.allocator.capacity import Consumed, exhausted_capacity
from dra_driver.allocator.constraints import AnyConstraint
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.eligibility import EligibilityCache
from dra_driver.allocator.failures import AllocationCancelled, ConstraintViolated
from dra_driver.allocator.pruning import Pruning, SearchState
from dra_driver.allocator.requests import Choice, Request
from dra_driver.allocator.search_input import SearchInput

MAX_RESULTS = 32
"""The largest number of devices for one claim (AllocationResultsMaxSize in the API)."""


class SearchResult(Enum):
    """The result of one function of the search."""

    DONE = "done"
    FAILED = "failed"
    TOO_MANY = "too many"
    """The claim would get more than MAX_RESULTS devices. Other devices do not help, only a subrequest with fewer devices.
    So the search goes back to the last request with subrequests (upstream: errAllocationResultMaxSizeExceeded)."""


Continuation = Generator["Continuation", SearchResult, SearchResult] | SearchResult
"""A function that has not finished yet, or its result. A function that calls no other function returns its result at once."""

Undo = list[Callable[[], object]]
"""The functions that the search must call, last entry first, to go back."""

_is_prioritized = attrgetter("prioritized")


class DeviceResult(NamedTuple):
    """A device, or a share of a device, that the search selected for a request. `consumed` is None for a whole device."""

    request: Request
    device: SliceDevice
    consumed: Consumed | None


class Search:
    """One search for devices on one node. An object can run only once."""

    def __init__(
        self,
        search_input: SearchInput,
        claims: Sequence[Sequence[Choice]],
        constraints: Sequence[Sequence[AnyConstraint]],
        *,
        prune: bool,
    ) -> None:
        self._input = search_input
        self._claims = claims
        self._constraints = constraints
        self.results: list[list[DeviceResult]] = [[] for _ in claims]
        self._allocating_devices: dict[
            int, set[int]
        ] = {}  # device position -> indices of its claims
        self._allocating_shares: dict[int, list[Consumed]] = {}
        self._applying: dict[Request, list[AnyConstraint]] = {}
        self._verdicts = EligibilityCache(search_input.eligibility, search_input.devices)
        self._prune = prune
        self._went_back = False
        self._pruning: Pruning | None = None
        """The rules for skipping devices. None until the search goes back for the first time."""

    def run(self) -> bool:
        """Return whether there is a solution. The solution is then in `results`, one list for each claim."""
        cancelled = self._input.cancelled
        stack: list[Generator[Continuation, SearchResult, SearchResult]] = []
        call = self._claim(0)
        while True:
            if isinstance(call, SearchResult):
                outcome: SearchResult | None = call
            else:
                stack.append(call)
                outcome = None  # send(None) starts a generator
            if not stack:
                return outcome is SearchResult.DONE
            if cancelled():
                raise AllocationCancelled
            try:
                call = stack[-1].send(outcome)  # type: ignore[arg-type] # None starts it
            except StopIteration as finished:
                stack.pop()
                call = finished.value

    def _claim(self, index: int) -> Continuation:
        if index == len(self._claims):
            return SearchResult.DONE
        choices = self._claims[index]
        # TOO_MANY must not leave the claim, because another solution for the claim before can select smaller subrequests.
        # Without subrequests TOO_MANY cannot happen here: the validation of the claim has counted the devices.
        if not choices or any(map(_is_prioritized, choices)):
            return self._whole_claim(index)
        return self._choice(index, 0)

    def _whole_claim(self, index: int) -> Generator[Continuation, SearchResult, SearchResult]:
        outcome = yield self._choice(index, 0)
        return SearchResult.DONE if outcome is SearchResult.DONE else SearchResult.FAILED

    def _choice(self, claim: int, index: int) -> Continuation:
        for choice in self._claims[claim][index:]:
            if choice.prioritized:
                return self._alternatives(choice)
            request = choice.request
            if request.wants_all or request.count > 0:
                return self._request(request, 0, 0, frozenset())
        return self._claim(claim + 1)

    def _alternatives(self, choice: Choice) -> Generator[Continuation, SearchResult, SearchResult]:
        # TOO_MANY goes further back only if every subrequest has too many devices. If one of them failed for another
        # reason, other devices for an earlier request may help.
        always_too_many = True
        for number, alternative in enumerate(choice.alternatives):
            outcome = yield self._request(alternative, 0, 0, frozenset())
            if outcome is SearchResult.DONE:
                choice.taken = number
                return outcome
            always_too_many = always_too_many and outcome is SearchResult.TOO_MANY
        return SearchResult.TOO_MANY if always_too_many else SearchResult.FAILED

    def _request(
        self, request: Request, have: int, start: int, failed: frozenset[object]
    ) -> Continuation:
        """Select the devices that the request still needs, then continue with the next request."""
        no_devices = request.wants_all and not request.all_devices
        if no_devices and not self._input.rules.all_may_be_none:
            return SearchResult.FAILED
        lacking = request.count - have
        if lacking <= 0:
            return self._choice(request.claim_index, request.index + 1)
        if lacking > MAX_RESULTS - len(self.results[request.claim_index]):
            return SearchResult.TOO_MANY
        if request.wants_all:
            return self._all_devices(request, have)
        return self._any_devices(request, have, start, failed)

    def _all_devices(
        self, request: Request, have: int
    ) -> Generator[Continuation, SearchResult, SearchResult]:
        # The order of "all" devices does not matter. So if the request cannot have one of them, there is no solution.
        undo: Undo = []
        if not self._allocate_device(request, request.all_devices[have], undo):
            return SearchResult.FAILED
        outcome = yield self._request(request, have + 1, 0, frozenset())
        if outcome is not SearchResult.DONE:
            _roll_back(undo)
        return outcome

    def _any_devices(
        self, request: Request, have: int, start: int, failed: frozenset[object]
    ) -> Generator[Continuation, SearchResult, SearchResult]:
        lacking = request.count - have
        combinations = self._input.rules.newer_than_stable
        pruning = self._pruning
        remaining = pruning.remaining(request) if pruning else ()
        in_use, known = self._allocating_devices, self._verdicts.of(request)
        ineligible, devices = self._input.eligibility.ineligible, self._input.devices
        for position in range(start, len(devices)):
            if (remaining and remaining[position] < lacking) or (
                position in in_use and not self._is_free(request, position)
            ):
                continue
            # The same as EligibilityCache.eligible, without the call. Most of the time of a search is spent here.
            verdict = known.get(position)
            if verdict is None:
                verdict = known[position] = not ineligible(request, devices[position])
            if not verdict:
                continue
            # An equal device has failed in this place or an earlier one. This check comes after the eligibility, because
            # an error of a selector must still stop the search.
            if pruning and failed and pruning.key(position) in failed:
                continue
            undo: Undo = []
            if self._allocate_device(request, position, undo):
                # The stable allocator starts at the first device again.
                following = position + 1 if combinations else 0
                call = self._request(request, have + 1, following, failed)
                outcome = call if isinstance(call, SearchResult) else (yield call)
                if outcome is SearchResult.DONE:
                    return outcome
                _roll_back(undo)
                if outcome is SearchResult.TOO_MANY:
                    return outcome
                pruning = self._after_failure()
                remaining = pruning.remaining(request) if pruning else ()
            if pruning:
                failed |= {pruning.key(position)}
        return SearchResult.FAILED

    def _after_failure(self) -> Pruning | None:
        """Return the rules for skipping devices, from the first backtracking on. None if they cannot be used."""
        if self._prune and not self._went_back:
            self._went_back = True
            state = SearchState(self._verdicts, self._allocating_devices, self._allocating_shares)
            pruning = Pruning(self._input, self._claims, self._constraints_on, state)
            self._pruning = pruning if pruning.possible else None
        return self._pruning

    def _is_free(self, request: Request, position: int) -> bool:
        """Return whether the request can have the device beside the requests for which this search selected it already.

        With admin access, several claims can have the same device.
        """
        claims = self._allocating_devices.get(position)
        # Inside one claim no device may occur twice, not even with admin access (allocatingDeviceForClaim).
        if request.admin_access:
            return not claims or request.claim_index not in claims
        return not claims

    def _allocate_device(self, request: Request, position: int, undo: Undo) -> bool:
        """Select the device for the request if the devices selected so far allow it (allocateDevice)."""
        if self._try_device(request, position, undo):
            return True
        _roll_back(undo)
        return False

    def _try_device(self, request: Request, position: int, undo: Undo) -> bool:
        rules, device = self._input.rules, self._input.devices[position]
        shareable = rules.consumable_capacity and bool(device.device.allow_multiple_allocations)
        if request.wants_all:
            # For allocationMode All only the selectors and the full capacity were checked before, so check the rest now.
            eligibility = self._input.eligibility
            possible = self._is_free(request, position) and not (
                eligibility.in_use(request, device) or eligibility.blocked(request, device)
            )
        else:
            possible = not shareable or not self._short_beside_shares(request, position)
        # A second share of a device consumes no counters: the first share has consumed them.
        if possible and device.device.consumes_counters:
            possible = (shareable and self._is_shared(position)) or self._take_counters(
                position, undo
            )
        # For allocationMode All a violated constraint is an error, so this check must come after the checks that only fail.
        possible = possible and self._satisfy_constraints(request, device, undo)
        # For ExactCount the eligibility has already compared the capacity that other claims leave.
        if possible and request.wants_all and rules.consumable_capacity:
            possible = self._input.eligibility.short_of_capacity(request, device) is None
            possible = possible and not self._short_beside_shares(request, position)
        if possible:
            self._record(request, position, undo, shareable=shareable)
        return possible

    def _is_shared(self, position: int) -> bool:
        return bool(self._allocating_shares.get(position)) or self._input.devices_in_use.shared(
            self._input.devices[position].id
        )

    def _short_beside_shares(self, request: Request, position: int) -> bool:
        """Return whether too little capacity is left beside the shares that this search selected."""
        shares = self._allocating_shares.get(position)
        if not shares:
            return False
        device = self._input.devices[position]
        eligibility = self._input.eligibility
        taken = dict(self._input.devices_in_use.capacity(device.id))
        for share in shares:
            for name, amount in share.items():
                taken[name] = taken.get(name, 0) + amount.nanos
        consumed = eligibility.consumed(request, device, device.id)
        return exhausted_capacity(consumed, device.capacity, taken) is not None

    def _take_counters(self, position: int, undo: Undo) -> bool:
        counters, device = self._input.counters[position], self._input.devices[position]
        # Groups before counters, as allocateDevice does. Both must be undone if a later check fails.
        if self._input.rules.compatibility_groups:
            if counters.incompatible(device) is not None:
                return False
            undo.append(partial(counters.restore_groups, counters.consume_groups(device)))
        if counters.exhausted(device) is not None:
            return False
        counters.consume(device)
        undo.append(partial(counters.release, device))
        return True

    def _satisfy_constraints(self, request: Request, device: SliceDevice, undo: Undo) -> bool:
        for constraint in self._constraints_on(request):
            values = self._input.lookup.values(request, device, constraint.attribute)
            accepted = None if values is None else constraint.admits(values)
            if accepted is not None:
                constraint.accepted.append(accepted)
                undo.append(constraint.accepted.pop)
            # Upstream: a claim makes no sense if its own constraint excludes one of "all" devices. So this is an error.
            elif request.wants_all:
                raise ConstraintViolated(
                    f"{request}: cannot add device {device.id}"
                    " because a claim constraint would not be satisfied"
                )
            else:
                return False
        return True

    def _constraints_on(self, request: Request) -> Sequence[AnyConstraint]:
        """Return the constraints of the claim that apply to the request."""
        constraints = self._constraints[request.claim_index]
        if not constraints:
            return ()
        found = self._applying.get(request)
        if found is None:
            found = [constraint for constraint in constraints if constraint.applies(request)]
            self._applying[request] = found
        return found

    def _record(self, request: Request, position: int, undo: Undo, *, shareable: bool) -> None:
        device = self._input.devices[position]
        # A shared device is not marked as in use: a later request may get another share, if the capacity suffices.
        consumed: Consumed | None = None
        if shareable:
            consumed = self._input.eligibility.consumed(request, device, device.id)
            shares = self._allocating_shares.setdefault(position, [])
            shares.append(consumed)
            undo.append(shares.pop)
        else:
            claims = self._allocating_devices.get(position)
            if claims is None:
                claims = self._allocating_devices[position] = set()
            claims.add(request.claim_index)
            undo.append(partial(claims.discard, request.claim_index))
        results = self.results[request.claim_index]
        results.append(DeviceResult(request, device, consumed))
        undo.append(results.pop)


def _roll_back(undo: Undo) -> None:
    while undo:
        undo.pop()()
