# SPDX-License-Identifier: Apache-2.0
"""Which combination of changes helps, where no single one does?

Several requests may each ask for what no device has, or several devices of one node may be in use. On the nodes that miss
least, each request gets the devices that miss least. All that these devices miss becomes one change.
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
"""Devices that are looked at, those of the first nodes."""
_IN_USE = (HeldByClaim, CountersUsedUp)


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """Several changes as one, for these nodes: the changed `claims`, and the claims to end (`ended`), by "namespace/name"."""

    what: str
    tried: TriedNodes
    claims: Mapping[str, ResourceClaim]
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """A request with as many devices of a node as it needs: those that miss least."""

    explained: RequestExplained
    misses: Sequence[Miss]

    @property
    def distance(self) -> int:
        return sum(_missed(miss) for miss in self.misses)


def combined_changes(
    requests: Sequence[RequestExplained], nodes: Sequence[TriedNodes]
) -> Iterator[Combined]:
    """For each of the nodes that miss least: all that has to change there, as one change."""
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
    """For each request the alternative and the devices that miss least; None where there are fewer devices than needed."""
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
    count = max(explained.request.body.count, 0)  # less is only in records that somebody wrote
    return _Given(explained, misses[:count]) if len(misses) >= count else None


def _missed(miss: Miss) -> int:
    """How far the device misses. The caller passes only devices of the right driver, so that part of the distance is left out."""
    return miss.distance[1]


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
    """The claims that would have to end, so that the device or its counters are free."""
    for reason in miss.reasons:
        if isinstance(reason, HeldByClaim):
            yield reason.claim
        elif isinstance(reason, CountersUsedUp):
            yield from reason.claims


def _without_users(miss: Miss) -> Miss:
    """What the device would miss if no claim used it."""
    reasons = tuple(one for one in miss.reasons if not isinstance(one, _IN_USE))
    return replace(miss, reasons=reasons)
