# SPDX-License-Identifier: Apache-2.0
"""For which request does a node not have enough devices, and why not?

The allocator says only that claims do not fit. So this module counts the devices for each request alone. If it finds a reason, the
report gives this reason. If not, the requests exclude each other, and `conflict` searches for a smallest set that does not fit.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CouldNotTell,
    NotEnoughDevices,
    PoolIncomplete,
    PoolInvalid,
    SelectorError,
    SelectorFalse,
    Verdict,
)
from dra_driver.explain.verdicts.request import NONE_MATCHES


class NodeReason(NamedTuple):
    """Why the devices do not fit on a node, and the `request` of which that is the reason; None if it is of no single request."""

    verdict: Verdict
    request: RequestExplained | None = None


def unserved(
    requests: Sequence[RequestExplained], devices: Sequence[SliceDevice]
) -> Iterator[NodeReason]:
    """Yield why these devices are not enough for the requests.

    For a request with alternatives there are reasons only if the devices are not enough for any of them.
    """
    by_main: dict[tuple[str, int], list[list[NodeReason]]] = {}
    known: dict[Hashable, list[Verdict]] = {}
    for one in requests:
        key = (one.asks, one.request.body.count)
        if key not in known:
            known[key] = list(lacking(one, devices))
        found = [NodeReason(reason, one) for reason in known[key]]
        by_main.setdefault(one.request.main, []).append(found)
    for alternatives in by_main.values():
        if all(alternatives):
            for reasons in alternatives:
                yield from reasons


def lacking(explained: RequestExplained, devices: Sequence[SliceDevice]) -> Iterator[Verdict]:
    """Yield why these devices are not enough for this request alone; nothing if enough of them fit."""
    if explained.problems:
        yield from explained.problems
        return
    meant = explained.answers.meant(devices)
    firsts = [explained.first(one) for one in meant]
    errors = [one for one in firsts if isinstance(one, SelectorError)]
    if errors:
        yield errors[0]
        return
    counted = Counter(one for one in firsts if one is not None)
    available = sum(one is None for one in firsts)
    unknown = [one for one in counted if isinstance(one, CouldNotTell)]
    if explained.request.all_devices:
        if unknown:
            yield unknown[0]
            return
        yield from _all_wanted(firsts, may_be_none=explained.may_be_none)
        return
    needed = explained.request.body.count
    shared = any(
        reason is None and one.device.allow_multiple_allocations
        for one, reason in zip(meant, firsts, strict=True)
    )
    if available >= needed or shared:
        return
    if unknown:  # such a device may be one that can be had
        yield unknown[0]
        return
    if available or not counted:
        yield NotEnoughDevices(needed, available, empty=not devices)
    # Name a false selector last. Other devices do match it, and the reasons against those can change.
    yield from sorted(counted, key=lambda one: (isinstance(one, SelectorFalse), -counted[one]))


def _all_wanted(firsts: Sequence[Verdict | None], *, may_be_none: bool) -> Iterator[Verdict]:
    """Yield why a request for all matching devices gets none: no device matches, or one of them is not available."""
    matching = [one for one in firsts if not isinstance(one, SelectorFalse)]
    broken = [one for one in matching if isinstance(one, PoolIncomplete | PoolInvalid)]
    yield from broken[:1]
    missing = [one for one in matching if one is not None]
    if not matching and not may_be_none:
        yield AllUnsatisfied(NONE_MATCHES)
    elif missing:
        yield AllUnsatisfied(
            f"all {len(matching)} matching devices are asked for, {len(missing)} cannot be had: {missing[0]}"
        )
