# SPDX-License-Identifier: Apache-2.0
"""Which request does a node not have enough devices for, and why not? Found by counting, each request alone.

The allocator only says that claims do not fit. Where counting finds a reason, it is the one to tell; where it finds none, the
requests are in each other's way, and `conflict` looks for the smallest set that does not fit.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    NotEnoughDevices,
    PoolIncomplete,
    PoolInvalid,
    SelectorError,
    SelectorFalse,
    Verdict,
)

SHOWN_REASONS = 2


def unserved(
    requests: Sequence[RequestExplained], devices: Sequence[SliceDevice]
) -> Iterator[Verdict]:
    """Why requests cannot be served by these devices. A request with alternatives counts only if none of them can be served."""
    by_main: dict[tuple[str, int], list[list[Verdict]]] = {}
    for one in requests:
        by_main.setdefault(one.request.main, []).append(list(lacking(one, devices)))
    for alternatives in by_main.values():
        if all(alternatives):
            for reasons in alternatives:
                yield from reasons


def lacking(explained: RequestExplained, devices: Sequence[SliceDevice]) -> Iterator[Verdict]:
    """Why this request cannot be served by these devices; nothing where enough of them would do."""
    if explained.problems:
        yield from explained.problems
        return
    firsts = [explained.first(one) for one in explained.answers.meant(devices)]
    errors = [one for one in firsts if isinstance(one, SelectorError)]
    if errors:
        yield errors[0]
        return
    counted = Counter(one for one in firsts if one is not None)
    available = sum(one is None for one in firsts)
    if explained.request.all_devices:
        yield from _all_wanted(firsts)
        return
    needed = explained.request.body.count
    shared = any(one.device.allow_multiple_allocations for one in devices)
    if available >= needed or (shared and available):
        return
    if available or not counted:
        yield NotEnoughDevices(needed, available)
    # A selector is the last thing to blame: what keeps back the devices that match can change.
    yield from sorted(counted, key=lambda one: (isinstance(one, SelectorFalse), -counted[one]))[
        :SHOWN_REASONS
    ]


def _all_wanted(firsts: Sequence[Verdict | None]) -> Iterator[Verdict]:
    """Why a request for all matching devices gets none: none matches, or one of them cannot be had."""
    matching = [one for one in firsts if not isinstance(one, SelectorFalse)]
    broken = [one for one in matching if isinstance(one, PoolIncomplete | PoolInvalid)]
    yield from broken[:1]
    missing = [one for one in matching if one is not None]
    if not matching:
        yield AllUnsatisfied("all matching devices are asked for, and none matches")
    elif missing:
        yield AllUnsatisfied(
            f"all {len(matching)} matching devices are asked for, {len(missing)} cannot be had: {missing[0]}"
        )
