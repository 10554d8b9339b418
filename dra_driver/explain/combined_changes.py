# SPDX-License-Identifier: Apache-2.0
"""Which combination of changes helps, if no single change does?

Several requests may each ask for a property that no device has, or several devices of one node may be in use. For each node this
module picks, for every request, the devices whose reasons cost least to remove. It takes the nodes where that costs least. For
each of them it proposes one change, which removes all the reasons.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.cheapest_ends import alternatives_of
from dra_driver.explain.closeness import closeness_for
from dra_driver.explain.misses import Miss, missed, relaxed, room
from dra_driver.explain.names import full_name
from dra_driver.explain.proposals import Candidate, from_miss, users_of
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.tried_nodes import TriedNodes
from dra_driver.explain.verdict import SelectorFalse

MOST_NODES = 3
MOST_DEVICES = 50_000
"""The nodes are checked in order, until they have more devices than this together."""

MOST_IN_EACH_ORDER = 3
"""More requests than this are served as they are written, because there are too many orders."""


class _Given(Struct, frozen=True, eq=False):
    """A request with as many devices of a node as it needs: the devices with the fewest reasons against them."""

    explained: RequestExplained
    misses: Sequence[Miss]

    @property
    def cost(self) -> int:
        return sum(miss.cost for miss in self.misses)

    @property
    def far(self) -> float:
        """How far the devices' values are from what the request asks for."""
        of = closeness_for(self.explained).of
        return sum(of(miss.device) for miss in self.misses)


def combined_changes(
    requests: Sequence[RequestExplained],
    places: Iterable[tuple[TriedNodes, Sequence[SliceDevice]]],
) -> Iterator[Candidate]:
    """Yield, for each of the nearest nodes, one change that contains all that has to change there. `places` are nodes with their devices."""
    mains = alternatives_of(requests)
    found: list[tuple[tuple[int, float], list[_Given], TriedNodes]] = []
    for tried, devices in _looked_at(places):
        given = _given(mains, devices)
        if given is not None and not tried.ruled_out:
            cost = sum(one.cost for one in given), sum(one.far for one in given)
            found.append((cost, given, tried))
    found.sort(key=lambda one: one[0])
    for _, given, tried in found[:MOST_NODES]:
        combined = _combined(given, tried)
        if combined is not None and (combined.what or combined.ended):
            yield combined


def everything_ended(
    requests: Sequence[RequestExplained],
    places: Iterable[tuple[TriedNodes, Sequence[SliceDevice]]],
) -> Iterator[Candidate]:
    """Yield for each of these nodes the end of all claims that have a device for one of the requests.

    Which of them must end depends on the constraints: which devices go together. `tried_changes` keeps only those that must.
    """
    for tried, devices in islice(_looked_at(places), MOST_NODES):
        misses = (missed(one, device) for one in requests for device in devices)
        held = (one for one in misses if one.reasons and all(map(users_of, one.reasons)))
        ended = tuple(dict.fromkeys(name for one in held for name in _users(one)))
        if ended and not tried.ruled_out:
            yield Candidate("", {}, ended=ended, first=tried)


def _looked_at(
    places: Iterable[tuple[TriedNodes, Sequence[SliceDevice]]],
) -> Iterator[tuple[TriedNodes, Sequence[SliceDevice]]]:
    looked_at = 0
    for tried, devices in places:
        looked_at += len(devices)
        if looked_at > MOST_DEVICES:
            break
        yield tried, devices


def _given(
    mains: Sequence[Sequence[RequestExplained]], devices: Sequence[SliceDevice]
) -> list[_Given] | None:
    """Return for each request the nearest alternative and its nearest devices; None if there are fewer devices than needed.

    What is nearest depends on the order: a request that many devices suit may take the only one that suits another.
    """
    orders = permutations(mains) if len(mains) <= MOST_IN_EACH_ORDER else [mains]
    in_orders = (_given_in_order(order, devices) for order in orders)
    possible = [one for one in in_orders if one is not None]
    return min(possible, key=lambda one: sum(given.cost for given in one), default=None)


def _given_in_order(
    mains: Sequence[Sequence[RequestExplained]], devices: Sequence[SliceDevice]
) -> list[_Given] | None:
    used: set[SliceDevice] = set()
    given: list[_Given] = []
    for alternatives in mains:
        possible = [
            one
            for explained in alternatives
            if (one := _nearest(explained, [d for d in devices if d not in used])) is not None
        ]
        if not possible:
            return None
        best = min(possible, key=lambda one: one.cost)
        given.append(best)
        used |= {
            miss.device for miss in best.misses if not miss.device.device.allow_multiple_allocations
        }
    return given


def _nearest(explained: RequestExplained, devices: Sequence[SliceDevice]) -> _Given | None:
    if explained.problems:
        return None
    misses = [missed(explained, one) for one in devices if not explained.answers.foreign(one)]
    if explained.request.all_devices:
        misses = [one for one in misses if not _unselected(one)]
        return _Given(explained, misses) if misses else None
    # Of devices that cost the same, those come first whose claim has most of them: one claim less has to end.
    users = Counter(_users(one) for one in misses)
    # Of the rest, those whose users cost least to end, then those that have most left, and then those with the closest values.
    far = closeness_for(explained).of
    misses.sort(
        key=lambda one: (
            *(one.cost, one.ends, -users[_users(one)], -room(explained, one)),
            far(one.device),
        )
    )
    # Only a record that was edited by hand has a negative count.
    count = max(explained.request.body.count, 0)
    return _Given(explained, misses[:count]) if len(misses) >= count else None


def _unselected(miss: Miss) -> bool:
    return any(isinstance(one, SelectorFalse) for one in miss.reasons)


def _combined(given: Sequence[_Given], tried: TriedNodes) -> Candidate | None:
    """Return one change for all requests; None if nobody can remove one of the reasons."""
    whole = Candidate("", {}, first=tried)
    for one in given:
        users = (name for miss in one.misses for name in _users(miss))
        whole = replace(whole, ended=tuple(dict.fromkeys((*whole.ended, *users))))
        worst = _worst(one)
        if worst is None or not worst.reasons:
            continue
        mine = one.explained.request
        mine = replace(mine, claim=whole.claims.get(full_name(mine.claim.metadata), mine.claim))
        found = next(from_miss(one.explained, mine, relaxed(one.explained, worst)), None)
        if found is None:
            return None
        whole = whole.and_also(found)
    return whole


def _worst(given: _Given) -> Miss | None:
    """Return the device that costs most, apart from the claims that end; of several, the one that has least left, or is farthest."""
    left = map(_without_users, given.misses)
    explained = given.explained
    far = closeness_for(explained).of
    return max(
        left, key=lambda one: (one.cost, -room(explained, one), far(one.device)), default=None
    )


def _users(miss: Miss) -> tuple[str, ...]:
    """Return the claims that would have to be deleted, so that the device, its capacity or its counters are free."""
    return tuple(dict.fromkeys(name for reason in miss.reasons for name in users_of(reason)))


def _without_users(miss: Miss) -> Miss:
    """Return the miss with only those reasons that would stay if no claim used the device, its capacity or its counters."""
    return replace(miss, reasons=tuple(one for one in miss.reasons if not users_of(one)))
