# SPDX-License-Identifier: Apache-2.0
"""What do the shares of a device consume of its capacity?

The leases in the rows say it too. But a device may have a thousand shares, and each preparation of one more needs the sum. So the
amounts are in a table of their own, which SQLite adds up. A trigger removes them with the owner, also if an older driver removes it.
An older driver writes no amounts, so its shares count nothing.
"""

import sqlite3
from collections.abc import Collection

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceKey
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Consumption, PreparedClaim

# An amount in billionths does not fit into SQLite's 64 bits, and a sum of large amounts must fit too. So an amount is
# `large` * _LARGE + `small`. The sums are exact for 92,000 shares of the largest size that Kubernetes has.
_LARGE = 10**14
_LARGEST = 2**63 * 10**9 // _LARGE
_NAMED = 3


def write_consumption(db: sqlite3.Connection, claim: PreparedClaim) -> None:
    """Write down what the claim's shares consume. The claim owns them already. Nothing is known of a claim without leases."""
    leases = {(lease.device, lease.share_id): lease for lease in claim.leases or ()}
    rows = [
        (key.pool, key.device, key.share, name, claim.ref.uid, *_parts(text))
        for key in claim.owned
        if key.share and (lease := leases.get((key.device, key.share))) is not None
        for name, text in lease.consumed_capacity.items()
    ]
    if rows:
        db.executemany(
            "INSERT OR REPLACE INTO consumed (pool, device, share, capacity, claim_uid, large, small) VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )


def consumption(
    db: sqlite3.Connection, device: DeviceKey, without: Collection[ClaimUid]
) -> Consumption | None:
    """Return what the shares of the device consume, but for those of some claims; None if nothing is known of any share."""
    where = f"pool = ? AND device = ? AND claim_uid NOT IN ({', '.join('?' * len(without))})"
    values = (device.pool, device.device, *without)
    sums = db.execute(
        f"SELECT capacity, SUM(large), SUM(small), COUNT(*) FROM consumed WHERE {where} GROUP BY capacity",  # noqa: S608  constants
        values,
    ).fetchall()
    if not sums:
        return None
    users = db.execute(
        f"""SELECT DISTINCT namespace, name, uid FROM consumed CROSS JOIN claims ON uid = claim_uid WHERE {where}
        LIMIT {_NAMED}""",  # noqa: S608  constants
        values,
    )
    return Consumption(
        {name: Quantity(large * _LARGE + small) for name, large, small, _ in sums},
        max(count for *_, count in sums),
        tuple(ClaimRef(namespace, name, ClaimUid(uid)) for namespace, name, uid in users),
    )


def _parts(text: str) -> tuple[int, int]:
    large, small = divmod(Quantity.parse(text).nanos, _LARGE)
    return min(large, _LARGEST), small
