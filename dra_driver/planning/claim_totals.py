# SPDX-License-Identifier: Apache-2.0
"""How long has each claim had its devices, and how much memory has it used? Counters by claim and device.

A counter begins when the driver first sees the claim prepared, and goes on between two scrapes. It ends with the claim, and is shown for
`KEPT_SECONDS` more, so that the last scrape of it has its final value. A driver that starts anew counts from 0, as Prometheus expects
of a counter. There are never more than `MOST` of them; the claims that ended first go first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.model.usage import ClaimDevice, ClaimTotals, UsageSample

KEPT_SECONDS = 300.0
LONGEST_GAP_SECONDS = 60.0
"""A sample speaks for at most so long: while a GPU hangs, nobody knows how much memory is used."""
MOST = 1000


def advanced(
    before: Mapping[ClaimDevice, ClaimTotals],
    rows: Iterable[PreparedClaim],
    samples: Mapping[DeviceName, UsageSample],
    now: float,
    begun: Mapping[ClaimUid, float],
) -> Mapping[ClaimDevice, ClaimTotals]:
    """Return the counters as of `now`. `begun` is when claims were prepared, as far as it is known exactly."""
    rows = tuple(rows)
    current = _having(rows)
    owners = Counter(name for row in rows for name in {key.device for key in row.owned})
    after = {
        key: _counted(
            _going_on(before.get(key)) or _new(row, begun.get(key.uid, now)),
            samples.get(key.device),
            now,
            alone=owners[key.device] == 1,
        )
        for key, row in current.items()
    }
    names = {(one.namespace, one.claim, key.device) for key, one in after.items()}
    ended = {
        key: one if one.ended is not None else replace(one, ended=now)
        for key, one in before.items()
        # A new claim of the same name takes the place of the old one: its counter begins again at 0.
        if key not in after and (one.namespace, one.claim, key.device) not in names
    }
    kept = {key: one for key, one in ended.items() if now - (one.ended or 0.0) <= KEPT_SECONDS}
    newest_first = sorted(kept, key=lambda key: kept[key].ended or 0.0, reverse=True)
    room = max(0, MOST - len(after))
    return dict(list(after.items())[:MOST]) | {key: kept[key] for key in newest_first[:room]}


def _going_on(totals: ClaimTotals | None) -> ClaimTotals | None:
    """The counter, unless it has ended: a claim that is prepared again begins at 0, for others had its device meanwhile."""
    return totals if totals is not None and totals.ended is None else None


def device_seconds(totals: ClaimTotals, now: float) -> float:
    """Return how long the claim has had the device."""
    return (now if totals.ended is None else totals.ended) - totals.since


def _having(rows: Iterable[PreparedClaim]) -> dict[ClaimDevice, PreparedClaim]:
    """The rows of claims that have devices now, by device. A held row belongs to a claim that has ended.

    Of two claims of one name the last one counts: a claim that was deleted by force and made anew.
    """
    found = {
        (row.ref.namespace, row.ref.name, device.device): row
        for row in rows
        if row.phase is Phase.PREPARED and not row.ref.of_plugin
        for device in row.devices
        if not device.admin_access
    }
    return {ClaimDevice(row.ref.uid, device): row for (_, _, device), row in found.items()}


def _new(row: PreparedClaim, since: float) -> ClaimTotals:
    return ClaimTotals(row.ref.namespace, row.ref.name, since, since)


def _counted(
    totals: ClaimTotals, sample: UsageSample | None, now: float, *, alone: bool
) -> ClaimTotals:
    if not alone or totals.memory_byte_seconds is None:
        return replace(totals, measured=now, memory_byte_seconds=None)
    used = None if sample is None else sample.usage.memory_used_bytes
    # What was measured before the claim began was used by somebody else.
    if sample is None or used is None or sample.taken < totals.since:
        return replace(totals, measured=now)
    until = min(now, sample.taken + LONGEST_GAP_SECONDS)
    seconds = max(0.0, until - totals.measured)
    return replace(
        totals,
        measured=now,
        memory_byte_seconds=totals.memory_byte_seconds + used * seconds,
    )
