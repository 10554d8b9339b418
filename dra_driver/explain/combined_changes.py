# SPDX-License-Identifier: Apache-2.0
"""What would have to be different at once, where no single change helps?

Several requests may each ask for what nobody has, or several devices of one node may all be in use. For the nodes that
miss least, every request is given the devices that miss least there, and all that these miss makes one change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.facts.claim_state import full_name
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
    """Several changes in one, for one node; claims and `ended` by "namespace/name"."""

    what: str
    asked: TriedNodes
    claims: Mapping[str, ResourceClaim]
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """A request with the devices of a node that miss least, as many as it needs."""

    request: RequestExplained
    misses: Sequence[Miss]

    @property
    def distance(self) -> int:
        return sum(_missed(miss) for miss in self.misses)


def together(
    requests: Sequence[RequestExplained], nodes: Sequence[TriedNodes]
) -> Iterator[Combined]:
    """What has to change on the nodes that miss least, each with all of it in one change."""
    mains: dict[tuple[str, int], list[RequestExplained]] = {}
    for request in requests:
        mains.setdefault(request.asked.main, []).append(request)
    found: list[tuple[int, list[_Given], TriedNodes]] = []
    looked_at = 0
    for asked in nodes:
        looked_at += len(asked.alike.devices)
        if looked_at > MOST_DEVICES:
            break
        given = _given(list(mains.values()), asked.alike.devices)
        if given is not None and not asked.elsewhere:
            found.append((sum(one.distance for one in given), given, asked))
    found.sort(key=lambda one: one[0])
    for _, given, asked in found[:MOST_NODES]:
        combined = _combined(given, asked)
        if combined is not None and combined.what:
            yield combined


def _given(
    mains: Sequence[Sequence[RequestExplained]], devices: Sequence[SliceDevice]
) -> list[_Given] | None:
    """For each request the alternative and the devices that miss least; None if there are too few devices."""
    used: set[SliceDevice] = set()
    given: list[_Given] = []
    for alternatives in mains:
        possible = [
            one
            for request in alternatives
            if (one := _nearest(request, [d for d in devices if d not in used])) is not None
        ]
        if not possible:
            return None
        best = min(possible, key=lambda one: one.distance)
        given.append(best)
        used |= {
            miss.device for miss in best.misses if not miss.device.device.allow_multiple_allocations
        }
    return given


def _nearest(request: RequestExplained, devices: Sequence[SliceDevice]) -> _Given | None:
    if request.problems:
        return None
    misses = [missed(request, one) for one in devices if not request.foreign(one)]
    if request.asked.all_devices:
        misses = [one for one in misses if not _unselected(one)]
        return _Given(request, misses) if misses else None
    misses.sort(key=_missed)
    count = max(request.asked.body.count, 0)  # less is only in records that somebody wrote
    return _Given(request, misses[:count]) if len(misses) >= count else None


def _missed(miss: Miss) -> int:
    """How much would have to change for a device of a driver that is meant."""
    return miss.distance[1]


def _unselected(miss: Miss) -> bool:
    return any(isinstance(one, SelectorFalse) for one in miss.reasons)


def _combined(given: Sequence[_Given], asked: TriedNodes) -> Combined | None:
    claims: dict[str, ResourceClaim] = {}
    words: list[str] = []
    ended: dict[str, None] = {}
    for one in given:
        for miss in one.misses:
            ended.update(dict.fromkeys(_users(miss)))
        worst = max(map(_without_users, one.misses), key=_missed, default=None)
        if worst is None or not worst.reasons:
            continue
        mine = one.request.asked
        name = full_name(mine.claim)
        mine = replace(mine, claim=claims.get(name, mine.claim))
        proposal = next(from_miss(mine, relaxed(one.request, worst)), None)
        if proposal is None:
            return None
        claims[name] = proposal.claim
        words.append(proposal.what)
    if ended:
        words.append(f"end {'claim' if len(ended) == 1 else 'claims'} {', '.join(ended)}")
    return Combined("; ".join(words), asked, claims, tuple(ended))


def _users(miss: Miss) -> Iterator[str]:
    """The claims that would have to give up the device, or its counters."""
    for reason in miss.reasons:
        if isinstance(reason, HeldByClaim):
            yield reason.claim
        elif isinstance(reason, CountersUsedUp):
            yield from reason.claims


def _without_users(miss: Miss) -> Miss:
    """What the device misses even if nobody used it."""
    reasons = tuple(one for one in miss.reasons if not isinstance(one, _IN_USE))
    return replace(miss, reasons=reasons)
