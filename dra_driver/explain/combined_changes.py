# SPDX-License-Identifier: Apache-2.0
"""Which combination of changes helps, if no single change does?

Several requests may each ask for a property that no device has, or several devices of one node may be in use. For each node this
module picks, for every request, the devices with the fewest reasons against them. It takes the nodes with the fewest reasons. For
each of them it proposes one change, which removes all the reasons.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.names import full_name
from dra_driver.explain.nodes import TriedNodes
from dra_driver.explain.proposals import Miss, from_miss, missed, relaxed
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.verdict import CountersUsedUp, HeldByClaim, SelectorFalse
from dra_driver.model.api.resource_claim import ResourceClaim

MOST_NODES = 3
MOST_DEVICES = 50_000
"""The nodes are checked in order, until they have more devices than this together."""
_IN_USE = (HeldByClaim, CountersUsedUp)


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """Several changes as one, for the nodes in `tried`.

    `claims` are the changed claims and `ended` the claims that would have to be deleted, each by "namespace/name".
    """

    what: str
    tried: TriedNodes
    claims: Mapping[str, ResourceClaim]
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """A request with as many devices of a node as it needs: the devices with the fewest reasons against them."""

    explained: RequestExplained
    misses: Sequence[Miss]

    @property
    def distance(self) -> int:
        return sum(_missed(miss) for miss in self.misses)


def combined_changes(
    requests: Sequence[RequestExplained], nodes: Sequence[TriedNodes]
) -> Iterator[Combined]:
    """Yield, for each of the nearest nodes, one change that contains all that has to change there."""
    mains: dict[tuple[str, int], list[RequestExplained]] = {}
    for one in requests:
        mains.setdefault(one.request.main, []).append(one)
    found: list[tuple[int, list[_Given], TriedNodes]] = []
    looked_at = 0
    for tried in nodes:
        looked_at += len(tried.group.devices)
        if looked_at > MOST_DEVICES:
            break
        given = _given(list(mains.values()), tried.group.devices)
        if given is not None and not tried.ruled_out:
            found.append((sum(one.distance for one in given), given, tried))
    found.sort(key=lambda one: one[0])
    for _, given, tried in found[:MOST_NODES]:
        combined = _combined(given, tried)
        if combined is not None and combined.what:
            yield combined


def _given(
    mains: Sequence[Sequence[RequestExplained]], devices: Sequence[SliceDevice]
) -> list[_Given] | None:
    """Return for each request the nearest alternative and its nearest devices; None if there are fewer devices than needed."""
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
        best = min(possible, key=lambda one: one.distance)
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
    misses.sort(key=_missed)
    # Only a record that was edited by hand has a negative count.
    count = max(explained.request.body.count, 0)
    return _Given(explained, misses[:count]) if len(misses) >= count else None


def _missed(miss: Miss) -> int:
    """Return the weight of the reasons against the device. All devices here are of the right driver, so only this part differs."""
    return miss.distance[2]


def _unselected(miss: Miss) -> bool:
    return any(isinstance(one, SelectorFalse) for one in miss.reasons)


def _combined(given: Sequence[_Given], tried: TriedNodes) -> Combined | None:
    claims: dict[str, ResourceClaim] = {}
    words: list[str] = []
    ended: dict[str, None] = {}
    for one in given:
        for miss in one.misses:
            ended.update(dict.fromkeys(_users(miss)))
        worst = max(map(_without_users, one.misses), key=_missed, default=None)
        if worst is None or not worst.reasons:
            continue
        mine = one.explained.request
        name = full_name(mine.claim.metadata)
        mine = replace(mine, claim=claims.get(name, mine.claim))
        proposal = next(from_miss(mine, relaxed(one.explained, worst)), None)
        if proposal is None:
            return None
        claims[name] = proposal.claim
        words.append(proposal.what)
    if ended:
        words.append(f"end {'claim' if len(ended) == 1 else 'claims'} {', '.join(ended)}")
    return Combined("; ".join(words), tried, claims, tuple(ended))


def _users(miss: Miss) -> Iterator[str]:
    """Yield the claims that would have to be deleted, so that the device or its counters are free."""
    for reason in miss.reasons:
        if isinstance(reason, HeldByClaim):
            yield reason.claim
        elif isinstance(reason, CountersUsedUp):
            yield from reason.claims


def _without_users(miss: Miss) -> Miss:
    """Return the miss with only those reasons that would stay if no claim used the device or its counters."""
    reasons = tuple(one for one in miss.reasons if not isinstance(one, _IN_USE))
    return replace(miss, reasons=reasons)
