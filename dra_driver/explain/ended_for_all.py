# SPDX-License-Identifier: Apache-2.0
"""Which claims have to end, so that all pods of a file or a workload fit?

The candidates are the claims that have devices which the pod without devices asks for, the cheapest to end first. As many of them are
ended as are needed for all pods; then those that need not end are left.
"""

from collections.abc import Callable, Collection, Sequence

from dra_driver.explain.costs import cost_of
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.outcome import Change, Report
from dra_driver.explain.tried_changes import ending_words
from dra_driver.explain.verdict import CapacityConsumed, CountersUsedUp, HeldByClaim

MOST_ENDED = 8
"""More claims than this are not ended."""
AllFit = Callable[[Collection[str]], bool]


def end_for_all(
    report: Report,
    holders: Holders,
    known: Collection[str],
    all_fit: AllFit,
    most: int = MOST_ENDED,
) -> Change | None:
    """Return the change that ends claims, so that all pods fit; None if that does not help.

    `report` is about a pod that gets no devices, and `known` are the claims of the cluster. `all_fit` returns whether all pods fit
    without some of them; at most `most` are ended.
    """
    names = _in_the_way(report, holders, known)[:most]
    ended = _fewest(names, all_fit)
    if not ended:
        return None
    reasons = [holders.named(one) for one in ended]
    kind = "wait" if all(one.ends for one in reasons) else "end"
    return Change(what="; ".join(ending_words(reasons)), kind=kind, ends=tuple(ended))


def _in_the_way(report: Report, holders: Holders, known: Collection[str]) -> list[str]:
    """Return the claims that have devices for the pod: the cheapest to end first, of these the one that has most devices."""
    devices: dict[str, tuple[int, str]] = {}
    groups = (one for claim in report.claims for asked in claim.requests for one in asked.devices)
    for group in groups:
        names: tuple[str, ...]
        match group.verdict:
            case HeldByClaim(claim=name):
                names = (name,)
            case CountersUsedUp(claims=users) | CapacityConsumed(claims=users):
                names = users
            case _:
                names = ()
        for name in names:
            count, first = devices.get(name, (0, group.examples[0] if group.examples else ""))
            devices[name] = (count + group.count, first)

    def cheapest(name: str) -> tuple[int, int, str]:
        count, first = devices[name]
        return cost_of(holders.named(name)), -count, first

    # The pods that got devices before this one have claims too, which no one can end.
    return sorted((name for name in devices if name in known), key=cheapest)


def _fewest(names: Sequence[str], all_fit: AllFit) -> list[str]:
    """Return as few of the names, from the first on, as make all fit; [] if all of them do not."""
    if not names:
        return []
    if all_fit(names[:1]):
        return [names[0]]
    if not all_fit(names):
        return []
    least, most = 2, len(names)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if all_fit(names[:middle]) else (middle + 1, most)
    needed = list(names[:most])
    for name in needed[:-1]:
        rest = [one for one in needed if one != name]
        if all_fit(rest):
            needed = rest
    return needed
