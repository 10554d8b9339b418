# SPDX-License-Identifier: Apache-2.0
"""What SQLite itself keeps from having two owners: devices, shares, and devices that are the same hardware."""

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, PoolName, ShareId
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node import rows
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref, a_uid

WHOLE, LEFT, LOWER, RIGHT, OTHER = map(DeviceName, ("gpu-0", "left", "lower", "right", "gpu-1"))
PARENT = "GPU-0"
FOUND = {
    WHOLE: Hardware(PARENT),
    LEFT: Hardware(PARENT, ("s0", "s1")),
    LOWER: Hardware(PARENT, ("s1", "s2")),
    RIGHT: Hardware(PARENT, ("s3",), "1g.10gb"),
    OTHER: Hardware("GPU-1"),
}


def a_lease(name: str, device: str = WHOLE, index: int = 0, *, share: str = "") -> Lease:
    resource = FOUND[DeviceName(device)]
    return Lease(
        a_uid(name),
        "gpu",
        DeviceName(device),
        index,
        ShareId(share),
        parent=resource.parent,
        parts=resource.parts,
    )


def a_row(
    name: str, device: str = WHOLE, *, share: str = "", admin: bool = False, leased: bool = True
) -> PreparedClaim:
    entry = PreparedDevice(
        ("gpu",), A_POOL, DeviceName(device), ("k=x",), "uuid", ShareId(share), admin
    )
    lease = dataclasses.replace(a_lease(name, device, share=share), admin_access=admin)
    leases = (lease,) if leased else None
    return PreparedClaim(a_ref(name), Phase.STARTED, A_BOOT, (entry,), "", leases=leases)


def key(device: str, share: str = "") -> DeviceKey:
    return DeviceKey(A_POOL, DeviceName(device), ShareId(share))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    with closing(StateStore(path, boot_id=A_BOOT)) as store:
        learn(store)
        yield store


def learn(store: StateStore, **found: Hardware | None) -> None:
    """FOUND, with changes by name: None for a device that is not found."""
    changed = FOUND | {DeviceName(name): one for name, one in found.items()}
    with store.transaction("learned") as transaction:
        transaction.learn_hardware(
            A_POOL, {name: one for name, one in changed.items() if one is not None}
        )


def start(store: StateStore, *rows: PreparedClaim) -> None:
    with store.transaction("started") as transaction:
        for row in rows:
            transaction.start(row)


def forget(store: StateStore, name: str) -> None:
    with store.transaction("released") as transaction:
        transaction.forget(a_uid(name))


def row_of(store: StateStore, name: str) -> PreparedClaim:
    with store.reading() as state:
        return state.read(uids=[a_uid(name)]).claims[a_uid(name)]


def content(path: Path, table: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return sorted(db.execute(f"SELECT * FROM {table}").fetchall())


def test_what_claims_own_and_what_containers_got_by_the_device_plugin_api_is_told_apart(
    store: StateStore,
) -> None:
    call = ClaimUid("plugin-1")
    with store.reading() as state:
        assert not state.has_plugin_rows()
    start(store, a_row("one", LEFT), a_row("watcher", RIGHT, admin=True))
    with store.reading() as state:
        assert not state.has_plugin_rows()
        assert state.plugin_devices(A_POOL) == frozenset()
    for name, share in (("two", "replica-0"), ("three", "replica-1")):
        row = a_row(name, OTHER, share=share, leased=False)
        uid = ClaimUid(f"{call}-{name}")
        start(store, replace(row, ref=ClaimRef("device-plugin", "nvidia.com/gpu", uid)))
    with store.reading() as state:
        assert state.has_plugin_rows()
        assert state.claimed_devices(A_POOL) == {LEFT}
        assert state.plugin_devices(A_POOL) == {OTHER}
        assert state.owned_devices(A_POOL) == {LEFT, OTHER}
        assert state.claimed_devices(PoolName("other")) == frozenset()
        assert state.plugin_devices(PoolName("other")) == frozenset()


EXCLUDED = {
    "the whole beside a partition": (LEFT, WHOLE),
    "a partition of what is owned as a whole": (WHOLE, RIGHT),
    "a partition that overlaps": (LEFT, LOWER),
    "the same partition": (LEFT, LEFT),
}


@pytest.mark.parametrize(("first", "second"), EXCLUDED.values(), ids=EXCLUDED)
def test_one_piece_of_hardware_has_one_owner(store: StateStore, first: str, second: str) -> None:
    start(store, a_row("one", first))
    with pytest.raises(Permanent) as caught:
        start(store, a_row("two", second))
    assert str(caught.value) == (
        f"device node-1/{second} of claim default/two (uid uid-two) is owned by claim default/one (uid uid-one)"
    )
    # A plan to prepare is told the same.
    with store.reading() as state:
        assert state.read(keys=[key(second)]).owners == {key(second): a_ref("one")}
    forget(store, "one")
    start(store, a_row("two", second))


ALLOWED = {
    "partitions that do not overlap": (a_row("one", LEFT), a_row("two", RIGHT)),
    "another device": (a_row("one", WHOLE), a_row("two", OTHER)),
    "shares of one device": (a_row("one", share="s1"), a_row("two", share="s2")),
    "admin access": (a_row("one", LEFT), a_row("two", WHOLE, admin=True)),
}


@pytest.mark.parametrize(("first", "second"), ALLOWED.values(), ids=ALLOWED)
def test_what_does_not_overlap_has_an_owner_each(
    store: StateStore, first: PreparedClaim, second: PreparedClaim
) -> None:
    start(store, first, second)
    with store.reading() as state:
        assert state.all_claims() == (first, second)


def test_a_share_of_a_partition_excludes_the_whole_and_what_overlaps(store: StateStore) -> None:
    start(store, a_row("one", LEFT, share="s1"), a_row("two", LEFT, share="s2"))
    for device, share in ((WHOLE, ""), (WHOLE, "s3"), (LOWER, ""), (LEFT, "")):
        with pytest.raises(Permanent, match="is owned by claim default/one"):
            start(store, a_row("rival", device, share=share))
    forget(store, "one")
    with pytest.raises(Permanent, match="is owned by claim default/two"):
        start(store, a_row("rival", WHOLE))


def test_what_a_claim_occupies_ends_with_the_claim(store: StateStore, path: Path) -> None:
    start(store, a_row("one", LEFT), a_row("two", RIGHT))
    forget(store, "one")
    assert content(path, "occupied") == [(PARENT, "s3", A_POOL, RIGHT, "", a_uid("two"))]
    start(store, a_row("two", OTHER))
    assert content(path, "occupied") == [("GPU-1", "", A_POOL, OTHER, "", a_uid("two"))]


def test_an_owner_under_the_same_name_is_named_before_one_of_the_same_hardware(
    store: StateStore,
) -> None:
    learn(store, **{LOWER: Hardware("GPU-9")})
    start(store, a_row("a", LOWER, leased=False), a_row("b", LEFT, leased=False))
    learn(store)  # today both overlap
    with store.reading() as state:
        assert state.read(keys=[key(LOWER)]).owners == {key(LOWER): a_ref("a")}
        # Who asks is not in its own way.
        assert state.read(uids=[a_uid("a")], keys=[key(LOWER)]).owners == {key(LOWER): a_ref("b")}


def owned_before_the_first_scan(path: Path, *rows: PreparedClaim) -> StateStore:
    store = StateStore(path, boot_id=A_BOOT)
    start(store, *(replace(row, leases=None) for row in rows))
    assert content(path, "occupied") == []
    return store


def test_a_claim_taken_up_before_the_first_scan_occupies_its_hardware_after_it(path: Path) -> None:
    with closing(owned_before_the_first_scan(path, a_row("one", LEFT))) as store:
        learn(store)
        with pytest.raises(Permanent, match="is owned by claim default/one"):
            start(store, a_row("two", WHOLE))
        start(store, a_row("three", RIGHT))


def test_two_owners_that_overlap_already_both_stay_and_no_third_one_comes(path: Path) -> None:
    rows = (a_row("one", LEFT), a_row("two", LOWER))
    with closing(owned_before_the_first_scan(path, *rows)) as store:
        learn(store)
        with store.reading() as state:
            assert [row.ref for row in state.all_claims()] == [row.ref for row in rows]
            assert state.read(keys=[key(LOWER)], uids=[a_uid("two")]).owners == {
                key(LOWER): a_ref("one")
            }
        with pytest.raises(Permanent, match="is owned by claim default/one"):
            start(store, a_row("three", WHOLE))
        # What a claim owns already it may write anew.
        start(store, replace(row_of(store, "two"), users=Users(())))
        forget(store, "one")
        with pytest.raises(Permanent, match="is owned by claim default/two"):
            start(store, a_row("three", WHOLE))


def test_a_changed_mapping_counts_for_owners_too_beside_what_they_have_of_this_boot(
    path: Path,
) -> None:
    with closing(StateStore(path, boot_id=A_BOOT)) as store:
        learn(store)
        start(store, a_row("one", RIGHT))
        learn(store, **{RIGHT: Hardware("GPU-2")})
        before = (PARENT, "s3", A_POOL, RIGHT, "", a_uid("one"))
        after = ("GPU-2", "", A_POOL, RIGHT, "", a_uid("one"))
        assert content(path, "occupied") == [before, after]
        with pytest.raises(Permanent, match="is owned by claim default/one"):
            start(store, a_row("two", WHOLE))
    # A reboot ends what was set up.
    with closing(StateStore(path, boot_id="another boot")) as store:
        learn(store, **{RIGHT: Hardware("GPU-2")})
        assert content(path, "occupied") == [after]
        start(store, a_row("two", WHOLE))


@pytest.mark.parametrize(
    "lost", [{LEFT: None, WHOLE: None}, {LEFT: Hardware("GPU-2")}], ids=["dropped", "moved"]
)
def test_a_lease_occupies_its_hardware_whatever_another_process_has_scanned(
    store: StateStore, path: Path, lost: dict[str, Hardware | None]
) -> None:
    learn(store, **lost)
    start(store, a_row("one", LEFT))
    assert (PARENT, "s0", A_POOL, LEFT, "", a_uid("one")) in content(path, "occupied")
    with pytest.raises(
        Permanent, match=r"gpu-0 of claim default/two .* is owned by claim default/one"
    ):
        start(store, a_row("two", WHOLE))
    forget(store, "one")
    start(store, a_row("two", WHOLE))


def test_who_has_the_whole_is_named_to_a_part_that_no_scan_has_found(store: StateStore) -> None:
    learn(store, **{LEFT: None, WHOLE: None})
    start(store, a_row("one", WHOLE))
    with pytest.raises(Permanent, match=r"left of claim default/two .* is owned by .*default/one"):
        start(store, a_row("two", LEFT))


def test_a_row_written_anew_leaves_only_what_it_owns_no_more(store: StateStore, path: Path) -> None:
    first, second = a_row("one", LEFT), a_row("one", RIGHT)
    both = replace(
        first,
        devices=(*first.devices, *second.devices),
        leases=(a_lease("one", LEFT), a_lease("one", RIGHT, 1)),
    )
    start(store, both)
    start(store, second)
    assert [row[3] for row in content(path, "occupied")] == [RIGHT]
    start(store, a_row("two", LEFT))


@pytest.mark.parametrize(("owned", "known"), [(True, True), (False, False)], ids=["owned", "free"])
def test_of_a_device_that_vanished_its_hardware_is_known_while_it_is_owned(
    store: StateStore, path: Path, *, owned: bool, known: bool
) -> None:
    if owned:
        start(store, a_row("one", RIGHT))
    learn(store, **{RIGHT: None})
    assert ((A_POOL, RIGHT, PARENT, "s3") in content(path, "hardware")) is known
    if owned:
        with pytest.raises(Permanent, match="is owned by claim default/one"):
            start(store, a_row("two", WHOLE))
        return
    start(store, a_row("two", WHOLE))


def test_each_pool_has_its_own_devices(store: StateStore, path: Path) -> None:
    before = content(path, "hardware")
    start(store, a_row("one", LEFT))
    with store.transaction("learned") as transaction:
        transaction.learn_hardware(PoolName("other"), {WHOLE: Hardware("GPU-7")})
    assert content(path, "hardware") == sorted([*before, ("other", WHOLE, "GPU-7", "")])
    assert [row[3] for row in content(path, "occupied")] == [LEFT, LEFT]


def test_what_is_known_already_is_not_written_again(store: StateStore, path: Path) -> None:
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    learn(store)
    assert not [each for each in statements if "INTO hardware" in each]
    learn(store, **{OTHER: Hardware("GPU-2")})
    assert len([each for each in statements if "INTO hardware" in each]) == 7


OTHERS: dict[str, tuple[bool, Callable[[], PreparedClaim]]] = {
    "a partition": (True, lambda: a_row("other", RIGHT)),
    "a share": (True, lambda: a_row("other", LEFT, share="s2")),
    "another device": (False, lambda: a_row("other", OTHER)),
    "a row of an older driver": (True, lambda: a_row("other", RIGHT, leased=False)),
    "a claim whose leases are all undone": (
        False,
        lambda: replace(a_row("other", RIGHT), leases=()),
    ),
    "admin access beside an owned device": (
        False,
        lambda: replace(
            a_row("other", OTHER),
            leases=(
                a_lease("other", OTHER),
                dataclasses.replace(a_lease("other", index=1), admin_access=True),
            ),
        ),
    ),
}


@pytest.mark.parametrize(("found", "other"), OTHERS.values(), ids=OTHERS)
def test_a_lease_is_alone_if_no_other_one_has_a_part_of_the_same_parent(
    store: StateStore, *, found: bool, other: Callable[[], PreparedClaim]
) -> None:
    mine = a_row("mine", LEFT, share="s1")
    start(store, mine, other())
    assert mine.leases is not None
    with store.reading() as state:
        assert state.has_other_lease(mine.leases[0]) is found


def test_two_leases_of_one_claim_are_not_alone_until_one_is_undone(store: StateStore) -> None:
    first, second = a_lease("mine", LEFT), a_lease("mine", RIGHT, 1)
    entries = tuple(
        PreparedDevice(("gpu",), A_POOL, device, (), "") for device in (first.device, second.device)
    )
    mine = replace(a_row("mine", LEFT), devices=entries, leases=(first, second))
    start(store, mine)
    with store.reading() as state:
        assert state.has_other_lease(first)
        assert state.has_other_lease(second)
    with store.transaction("undone") as transaction:
        transaction.set_undone(second)
        transaction.set_undone(a_lease("unknown"))
    assert row_of(store, "mine") == replace(mine, leases=(first,))
    with store.reading() as state:
        assert not state.has_other_lease(first)
    with store.transaction("undone") as transaction:
        transaction.set_undone(first)
    assert row_of(store, "mine").leases == ()
    # Its devices are its own until the claim is forgotten.
    with pytest.raises(Permanent, match="is owned by claim default/mine"):
        start(store, a_row("two", WHOLE))


def test_a_row_of_many_leases_is_not_read_again_for_each_of_them(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[ClaimUid] = []
    real = rows._leases

    def counting(uid: ClaimUid, entry: Mapping[str, Any]) -> tuple[Lease, ...]:
        read.append(uid)
        return real(uid, entry)

    monkeypatch.setattr(rows, "_leases", counting)
    leases = tuple(a_lease("many", index=index, share=f"s{index}") for index in range(20))
    entries = tuple(PreparedDevice(("gpu",), A_POOL, WHOLE, (), "", one.share_id) for one in leases)
    start(store, replace(a_row("many"), devices=entries, leases=leases))
    read.clear()
    for lease in leases:
        with store.reading() as state:
            assert state.has_other_lease(lease)
    assert read == [a_uid("many")]


@pytest.mark.parametrize("admin", [False, True], ids=["another parent", "admin access"])
def test_a_lease_of_the_same_claim_counts_only_if_it_sets_up_the_same_parent(
    store: StateStore, *, admin: bool
) -> None:
    first = a_lease("mine", LEFT)
    second = dataclasses.replace(a_lease("mine", RIGHT if admin else OTHER, 1), admin_access=admin)
    entries = tuple(
        PreparedDevice(("gpu",), A_POOL, one.device, (), "", admin_access=one.admin_access)
        for one in (first, second)
    )
    start(store, replace(a_row("mine", LEFT), devices=entries, leases=(first, second)))
    with store.reading() as state:
        assert not state.has_other_lease(first)


def test_of_two_shares_of_a_device_in_one_claim_only_the_undone_one_leaves_its_row(
    store: StateStore,
) -> None:
    first, second = a_lease("mine", share="s1"), a_lease("mine", index=1, share="s2")
    entries = tuple(
        PreparedDevice(("gpu",), A_POOL, WHOLE, (), "", one.share_id) for one in (first, second)
    )
    mine = replace(a_row("mine"), devices=entries, leases=(first, second))
    start(store, mine)
    with store.transaction("undone") as transaction:
        transaction.set_undone(second)
    assert row_of(store, "mine") == replace(mine, leases=(first,))


def test_a_row_of_an_older_driver_has_no_lease_of_its_own_claim_beside_it(
    store: StateStore,
) -> None:
    start(store, a_row("mine", LEFT, leased=False))
    with store.reading() as state:
        assert not state.has_other_lease(a_lease("mine", LEFT))
    with store.transaction("undone") as transaction:
        transaction.set_undone(a_lease("mine", LEFT))
    assert row_of(store, "mine").leases is None


def test_a_row_gets_its_text_with_the_phase_and_stays_as_it_was_written(
    store: StateStore, path: Path
) -> None:
    row = replace(a_row("wine"), users=Users(("pod",)))
    start(store, row)
    with store.transaction("prepared") as transaction:
        transaction.set_prepared(a_uid("wine"), '{"ü": 1}\n', '{"gpu": "file"}')
        transaction.set_prepared(a_uid("unknown"), "{}")
    prepared = replace(row, phase=Phase.PREPARED, cdi_spec='{"ü": 1}\n', metadata='{"gpu": "file"}')
    assert row_of(store, "wine") == prepared
    # A next process believes it: the digest is that of the new text.
    with closing(StateStore(path, boot_id=A_BOOT)) as second:
        assert second.quarantined is None
        assert row_of(second, "wine") == prepared


def test_a_held_row_keeps_its_leases(store: StateStore) -> None:
    start(store, a_row("wine"))
    held = Held("the kubelet unprepared it", "2027-01-15T08:00:00Z")
    with store.transaction("releasing") as transaction:
        transaction.hold(a_uid("wine"), held)
    assert row_of(store, "wine") == replace(a_row("wine"), held=held)


def test_what_is_occupied_is_said_by_device_and_goes_with_its_owner(store: StateStore) -> None:
    start(store, a_row("one", LEFT), a_row("two", OTHER, share="s-1"))
    learn(store, left=None)
    with store.reading() as state:
        assert state.occupied(A_POOL) == {name: FOUND[name].pieces for name in (LEFT, OTHER)}
        assert state.occupied(PoolName("other")) == {}
    forget(store, "one")
    with store.reading() as state:
        assert state.occupied(A_POOL).keys() == {OTHER}
