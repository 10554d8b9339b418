# SPDX-License-Identifier: Apache-2.0
"""The state adds up what the shares of a device consume."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.model.ids import DeviceKey, DeviceName, ShareId
from dra_driver.model.lease import Lease
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Consumption, Held, Phase, PreparedClaim, PreparedDevice
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref, a_uid

GPU = DeviceName("gpu-0")
WHOLE = DeviceKey(A_POOL, GPU)
Amounts = dict[str, str]


def a_row(
    name: str,
    *amounts: Amounts,
    device: DeviceName = GPU,
    admin: bool = False,
    leased: bool = True,
) -> PreparedClaim:
    """A claim with one share for each of the amounts."""
    shares = [ShareId(f"{name}-{number}") for number in range(len(amounts))]
    devices = tuple(
        PreparedDevice(("gpu",), A_POOL, device, ("k=x",), "uuid", share, admin) for share in shares
    )
    leases = tuple(
        Lease(
            a_uid(name),
            "gpu",
            device,
            index,
            share,
            consumed_capacity=consumed,
            admin_access=admin,
        )
        for index, (share, consumed) in enumerate(zip(shares, amounts, strict=True))
    )
    return PreparedClaim(
        a_ref(name), Phase.STARTED, A_BOOT, devices, "", leases=leases if leased else None
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    with closing(StateStore(path, boot_id=A_BOOT)) as store:
        yield store


def start(store: StateStore, *rows: PreparedClaim) -> None:
    with store.transaction("started") as transaction:
        for row in rows:
            transaction.start(row)


def found(store: StateStore, *without: str, share: str = "new") -> Consumption | None:
    with store.reading() as state:
        key = DeviceKey(A_POOL, GPU, ShareId(share))
        return state.read(uids=map(a_uid, without), keys=[key]).consumed.get(WHOLE)


def memory(*texts: str) -> dict[str, Quantity]:
    return {"memory": Quantity(sum(Quantity.parse(text).nanos for text in texts))}


def test_a_device_without_shares_has_no_consumption(store: StateStore) -> None:
    assert found(store) is None
    start(store, a_row("other", {"memory": "1Gi"}, device=DeviceName("gpu-1")))
    assert found(store) is None


def test_amounts_of_all_claims_are_added_up_exactly(store: StateStore) -> None:
    start(
        store,
        a_row("a", {"memory": "20Gi"}, {"memory": "1n", "cores": "500m"}),
        a_row("b", {"memory": "8Ei"}, {"memory": "8Ei"}),
    )
    both = memory("20Gi", "1n", "8Ei", "8Ei") | {"cores": Quantity.parse("500m")}
    assert found(store) == Consumption(both, 4, (a_ref("a"), a_ref("b")))


def test_the_claim_that_asks_does_not_count(store: StateStore) -> None:
    start(store, a_row("a", {"memory": "20Gi"}), a_row("b", {"memory": "10Gi"}))
    assert found(store, "a") == Consumption(memory("10Gi"), 1, (a_ref("b"),))
    assert found(store, "a", "b") is None


def test_only_a_question_for_a_share_is_answered(store: StateStore) -> None:
    start(store, a_row("a", {"memory": "20Gi"}))
    assert found(store, share="") is None


def test_a_few_claims_are_named(store: StateStore) -> None:
    start(store, *(a_row(f"claim-{number}", {"memory": "1Gi"}) for number in range(5)))
    consumed = found(store)
    assert consumed is not None
    assert (consumed.shares, len(consumed.claims)) == (5, 3)


def test_a_held_claim_counts_until_it_is_forgotten(store: StateStore) -> None:
    start(store, a_row("a", {"memory": "20Gi"}))
    with store.transaction("releasing") as transaction:
        transaction.hold(a_uid("a"), Held("its pod ended", "now"))
    assert found(store) == Consumption(memory("20Gi"), 1, (a_ref("a"),))
    with store.transaction("released") as transaction:
        transaction.forget(a_uid("a"))
    assert found(store) is None


def test_a_claim_that_is_started_again_counts_once(store: StateStore) -> None:
    start(store, a_row("a", {"memory": "20Gi"}))
    start(store, a_row("a", {"memory": "30Gi"}))
    assert found(store) == Consumption(memory("30Gi"), 1, (a_ref("a"),))


def test_admin_access_and_shares_of_older_drivers_count_nothing(store: StateStore) -> None:
    start(store, a_row("admin", {"memory": "20Gi"}, admin=True))
    start(store, a_row("older", {"memory": "20Gi"}, leased=False), a_row("bare", {}))
    assert found(store) is None


def test_an_older_driver_that_releases_a_share_takes_its_amount_away(
    store: StateStore, path: Path
) -> None:
    """It knows only `owners` and `claims`."""
    start(store, a_row("a", {"memory": "20Gi"}), a_row("b", {"memory": "10Gi"}))
    with closing(sqlite3.connect(path)) as older, older:
        older.execute("DELETE FROM owners WHERE claim_uid = ?", (a_uid("a"),))
        older.execute("DELETE FROM claims WHERE uid = ?", (a_uid("a"),))
    assert found(store) == Consumption(memory("10Gi"), 1, (a_ref("b"),))


def test_an_amount_beyond_every_quantity_is_counted_as_the_largest(store: StateStore) -> None:
    start(store, *(a_row(name, {"memory": "1e300"}) for name in "abc"))
    consumed = found(store)
    assert consumed is not None
    assert consumed.amounts["memory"] > Quantity.parse("16Ei")
