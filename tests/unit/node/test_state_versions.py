# SPDX-License-Identifier: Apache-2.0
"""Drivers of different versions on one state file: older files, newer files, both at once, and the way back."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import Fatal, Permanent
from dra_driver.model.claim import ClaimRef, DeviceConfig
from dra_driver.model.device import Version
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, ShareId
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import (
    NOBODY_KNOWN,
    Held,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.node.schema import SCHEMA
from dra_driver.node.state import StateStore, read_claims
from dra_driver.testing.builders import A_POOL, a_ref, a_uid
from tests.support.api_values import published

TESTS = Path(__file__).parents[2]
FIXTURES = TESTS / "fixtures" / "state"
DEADLINE = 300  # seconds, against hanging only


def built(path: Path, schema: int, *more: str) -> Path:
    """The state file of that schema, with further statements."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript((FIXTURES / f"schema-{schema}.sql").read_text())
        db.execute("PRAGMA journal_mode = WAL")
        for statement in more:
            db.execute(statement)
    return path


def opened(path: Path) -> closing[StateStore]:
    return closing(StateStore(path, boot_id="boot-1"))


def made(path: Path) -> Path:
    """Once opened by today's driver."""
    StateStore(path, boot_id="boot-1").close()
    return path


def schema_of(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return {
            (name, " ".join(sql.split()))
            for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL")
        }


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        found: int = db.execute(f"PRAGMA {name}").fetchone()[0]
        return found


def uid(number: int) -> ClaimUid:
    return ClaimUid(f"00000000-0000-4000-8000-00000000000{number}")


def a_row(name: str, device: str) -> PreparedClaim:
    entry = PreparedDevice(("gpu",), A_POOL, DeviceName(device), (), "uuid")
    return PreparedClaim(a_ref(name), Phase.STARTED, "boot-1", (entry,), "text")


def start(store: StateStore, row: PreparedClaim) -> None:
    with store.transaction("started") as transaction:
        transaction.start(row)


def names(store: StateStore) -> list[str]:
    with store.reading() as state:
        return [claim.ref.name for claim in state.all_claims()]


class Peer:
    """A driver process of another schema on the same file."""

    def __init__(self, path: Path, schema: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "support" / "state_peer.py"), str(path), str(schema)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __call__(self, *words: str) -> Any:
        self._say(" ".join(words))
        return self._answer()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """In the middle of a transaction."""
        assert self("hold") == "held"
        yield
        self._say("")
        assert self._answer() == "done"

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self) -> int:
        self._process.communicate(timeout=DEADLINE)
        return self._process.returncode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@contextmanager
def peer_of(path: Path, schema: int) -> Iterator[Peer]:
    peer = Peer(path, schema)
    try:
        yield peer
    finally:
        assert peer.end() == 0


EVERY_CLAIM = ["whole", "shared", "half-done", "before-the-reboot", "admin"]


def test_a_migrated_file_is_like_a_new_one(tmp_path: Path) -> None:
    new = made(tmp_path / "new.db")
    for schema in range(1, SCHEMA + 1):
        old = made(built(tmp_path / f"{schema}.db", schema))
        assert schema_of(old) == schema_of(new)
        assert pragma(old, "user_version") == SCHEMA


def test_there_is_a_fixture_of_every_schema_and_the_newest_is_todays(tmp_path: Path) -> None:
    new = made(tmp_path / "new.db")
    assert schema_of(built(tmp_path / "fixture.db", SCHEMA)) == schema_of(new)
    assert sorted(file.name for file in FIXTURES.glob("*.sql")) == [
        f"schema-{schema}.sql" for schema in range(1, SCHEMA + 2)
    ]


@pytest.mark.parametrize("schema", range(1, SCHEMA + 2))
def test_every_claim_of_every_schema_is_read_as_it_was_written(path: Path, schema: int) -> None:
    built(path, schema)
    with opened(path) as store, store.reading() as state:
        claims = state.all_claims()
        assert [claim.ref.name for claim in claims][:5] == EVERY_CLAIM
        assert claims[1] == PreparedClaim(
            ClaimRef("default", "shared", uid(2)),
            Phase.PREPARED,
            "boot-1",
            (
                PreparedDevice(
                    ("gpu",),
                    A_POOL,
                    DeviceName("gpu-2"),
                    (f"k8s.gpu.dra-driver.dev/claim={uid(2)}-gpu-2",),
                    "GPU-gpu-2",
                    ShareId("share-1"),
                ),
            ),
            '{"cdiVersion": "0.3.0"}\n',
        )
        key = DeviceKey(A_POOL, DeviceName("gpu-4"))
        assert state.read(keys=[key]).owners[key].name == "before-the-reboot"
        assert state.owned_devices(A_POOL) >= {"gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"}


@pytest.mark.parametrize("schema", range(1, SCHEMA + 2))
def test_who_used_a_claim_and_that_it_is_held_are_known_from_schema_3_on(
    path: Path, schema: int
) -> None:
    built(path, schema)
    with opened(path) as store, store.reading() as state:
        whole, _, half_done, _, admin = state.all_claims()[:5]
        held = state.held_claims()
    if schema < 3:
        assert {row.users for row in (whole, half_done, admin)} == {NOBODY_KNOWN}
        assert held == ()
        return
    assert whole.users == Users((uid(7),), sole=True)
    assert admin.users == Users((uid(8), uid(9)), unnamed=True)
    assert held == (half_done,)
    assert half_done.held == Held("the kubelet unprepared it", "2026-11-22T09:16:08Z", unasked=True)


def test_the_previous_driver_keeps_what_is_held_and_its_own_rows_name_no_users(path: Path) -> None:
    built(path, 3)
    with opened(path) as store, peer_of(path, 2) as older:
        with store.reading() as state:
            before = state.held_claims()
        assert older("claims")[uid(3)] == "Started"
        assert older("start", "rival", "gpu-3") == "owned"
        assert older("start", "rival", "gpu-2") == "owned"  # one of its shares is in use
        assert older("start", "theirs", "gpu-5") == "done"
        assert older("prepared", "theirs") == "done"
        with store.reading() as state:
            assert state.held_claims() == before
            theirs = state.read(uids=[ClaimUid("theirs")]).claims[ClaimUid("theirs")]
        assert theirs.users == NOBODY_KNOWN
        # What it starts anew is held no longer, and who used it is not known any more.
        assert older("start", str(uid(3)), "gpu-3") == "done"
        with store.reading() as state:
            assert state.held_claims() == ()
            assert state.read(uids=[uid(3)]).claims[uid(3)].users == NOBODY_KNOWN
        with store.transaction("joined") as transaction:
            transaction.add_users(ClaimUid("theirs"), Users((uid(8),)))
        assert older("claims")["theirs"] == "Prepared"


@pytest.mark.parametrize("schema", range(1, SCHEMA + 2))
def test_what_is_leased_is_known_from_schema_4_on(path: Path, schema: int) -> None:
    built(path, schema)
    with opened(path) as store, store.reading() as state:
        whole, _, half_done, reboot, admin = state.all_claims()[:5]
    assert reboot.leases is None
    if schema < 4:
        assert (whole.leases, half_done.leases, admin.leases) == (None, None, None)
        return
    config = DeviceConfig("a.example.com/v1", "Mode", {"label": "ü"})
    assert whole.leases == tuple(
        Lease(
            uid(1),
            "gpu",
            DeviceName(f"gpu-{index}"),
            index,
            config=config,
            backend="simulated",
            parent=f"GPU-gpu-{index}",
        )
        for index in (0, 1)
    )
    assert half_done.leases == (
        Lease(
            uid(3),
            "gpu/small",
            DeviceName("gpu-3"),
            consumed_capacity={"memory": "20Gi"},
            backend="simulated",
            parent="GPU-gpu-5",
            parts=("s0", "s1"),
            profile="2g.20gb",
        ),
    )
    assert [lease.admin_access for lease in admin.leases or ()] == [True]


@pytest.mark.parametrize("schema", range(1, SCHEMA + 2))
def test_the_owners_of_every_schema_occupy_what_is_behind_their_devices(
    path: Path, schema: int
) -> None:
    """From schema 4 on that is in the file, for older files the first scan says it."""
    built(path, schema)
    partition = {DeviceName("gpu-3"): Hardware("GPU-gpu-5", ("s0", "s1"))}
    whole = {DeviceName("gpu-5"): Hardware("GPU-gpu-5")}
    with opened(path) as store:
        if schema < 4:
            with store.transaction("learned") as transaction:
                transaction.learn_hardware(A_POOL, partition | whole)
        with pytest.raises(Permanent, match="is owned by claim default/half-done"):
            start(store, a_row("rival", "gpu-5"))


def test_the_previous_driver_gets_no_hardware_that_another_claim_has_under_another_name(
    path: Path,
) -> None:
    """A driver of schema 3 knows only `owners`."""
    built(path, 4)
    with opened(path) as store, peer_of(path, 3) as older:
        # gpu-3 is a partition of gpu-5
        assert older("start", "rival", "gpu-5") == "owned"
        assert older("forget", str(uid(3))) == "done"
        assert older("start", "theirs", "gpu-5") == "done"
        with pytest.raises(Permanent, match="is owned by claim default/theirs"):
            start(store, a_row("mine", "gpu-3"))
        assert older("forget", "theirs") == "done"
        start(store, a_row("mine", "gpu-3"))


def test_what_was_published_is_read_as_far_as_it_is_known(path: Path) -> None:
    built(path, 5, "INSERT INTO published VALUES ('node-1', 9, 'gpu-9', 'no JSON')")
    attributes = {
        "index": 0,
        "healthy": True,
        "productName": "NVIDIA L40S",
        "driverVersion": Version("550.54.15"),
    }
    memory = {"memory": Quantity.parse("46068Mi")}
    with opened(path) as store, store.reading() as state:
        assert state.published(A_POOL) == (
            published("gpu-0", attributes, memory),
            published("gpu-4", {**attributes, "index": 1}, memory),
            # A list is more than this driver knows of attributes.
            published("gpu-6", {"index": 6}, {"memory": Quantity.parse("1Gi")}),
        )


def test_an_older_file_is_still_the_older_drivers(path: Path) -> None:
    built(path, 1)
    with opened(path) as store:
        start(store, a_row("new", "gpu-7"))
    with peer_of(path, 1) as old:
        assert old("claims")[a_uid("new")] == "Started"
        assert old("start", "other", "gpu-7") == "owned"
        assert old("prepared", str(a_uid("new"))) == "done"
    with opened(path) as store, store.reading() as state:
        assert state.read(uids=[a_uid("new")]).claims[a_uid("new")].phase is Phase.PREPARED


def test_the_older_driver_goes_on_while_the_newer_one_migrates_its_file(path: Path) -> None:
    built(path, 1)
    with peer_of(path, 1) as old:
        assert old("start", "before", "gpu-5") == "done"
        with opened(path) as store:
            assert old("start", "after", "gpu-6") == "done"
            assert {"before", "after"} <= set(names(store))
            with pytest.raises(Permanent, match="is owned by claim default/after"):
                start(store, a_row("mine", "gpu-6"))
            assert old("forget", "after") == "done"
            start(store, a_row("mine", "gpu-6"))
            assert old("owners")["gpu-6"] == a_uid("mine")


def test_a_newer_driver_migrates_the_file_that_this_one_has_open(path: Path) -> None:
    built(path, 2)
    with opened(path) as store:
        start(store, a_row("before", "gpu-5"))
        with peer_of(path, 5) as newer:
            assert pragma(path, "user_version") == 5
            assert newer("start", "theirs", "gpu-6") == "done"
            start(store, a_row("mine", "gpu-7"))
            assert newer("start", "too-late", "gpu-7") == "owned"
            with pytest.raises(Permanent, match="is owned by claim default/theirs"):
                start(store, a_row("too-late", "gpu-6"))
            # What is ended here ends there, with what only the newer driver knows.
            assert newer("notes")[1] == {"theirs": "noted"}
            with store.transaction("released") as transaction:
                transaction.forget(ClaimUid("theirs"))
            assert newer("notes")[1] == {}
            assert newer("forget", str(a_uid("mine"))) == "done"
            assert names(store) == [*EVERY_CLAIM, "before"]
    assert pragma(path, "integrity_check") == "ok"


def test_the_way_back_from_a_newer_driver_keeps_its_columns_and_rows(path: Path) -> None:
    built(path, 5)
    with opened(path) as store:
        start(store, a_row("mine", "gpu-7"))
        with store.transaction("prepared") as transaction:
            transaction.set_phase(uid(6), Phase.STARTED)
        with store.transaction("published") as transaction:
            transaction.set_published(A_POOL, [published("gpu-7")])
    assert pragma(path, "user_version") == 5
    with peer_of(path, 5) as newer:
        columns, notes = newer("notes")
        assert (columns[uid(6)], columns[a_uid("mine")]) == ("noted", None)
        assert notes == {uid(6): "noted"}
        assert newer("claims")[uid(6)] == "Started"


def test_both_write_at_the_same_time_and_lose_nothing(path: Path) -> None:
    built(path, 2, "DELETE FROM claims", "DELETE FROM owners")
    rounds = 40

    def theirs(newer: Peer) -> int:
        won = 0
        for turn in range(rounds):
            assert newer("start", f"theirs-{turn}", f"own-{turn}") == "done"
            won += newer("start", f"theirs-contended-{turn}", f"gpu-{turn}") == "done"
        return won

    def ours(store: StateStore) -> int:
        won = 0
        for turn in range(rounds):
            start(store, a_row(f"mine-{turn}", f"mine-{turn}"))
            with suppress(Permanent):
                start(store, a_row(f"contended-{turn}", f"gpu-{turn}"))
                won += 1
        return won

    with opened(path) as store, peer_of(path, 5) as newer, ThreadPoolExecutor(1) as pool:
        other = pool.submit(theirs, newer)
        assert ours(store) + other.result() == rounds
        owners = newer("owners")
        claims = newer("claims")
    assert set(owners) == {
        f"{kind}-{turn}" for kind in ("own", "mine", "gpu") for turn in range(rounds)
    }
    assert set(claims) == set(owners.values())


def test_a_newer_drivers_transaction_is_waited_for(path: Path) -> None:
    built(path, 2)
    with opened(path) as store, peer_of(path, 5) as newer, ThreadPoolExecutor(1) as pool:
        with newer.holding():
            assert names(store) == EVERY_CLAIM  # readers go on
            waiting = pool.submit(start, store, a_row("mine", "gpu-7"))
        waiting.result()
        assert "mine" in names(store)


def test_a_newer_file_that_needs_just_this_driver_is_used(path: Path) -> None:
    built(path, 5, f"UPDATE meta SET value = '{SCHEMA}'")
    with opened(path) as store:
        start(store, a_row("mine", "gpu-7"))


def test_owners_that_only_a_newer_driver_understands_are_no_damage(path: Path) -> None:
    more = f"INSERT INTO owners VALUES ('node-1', 'gpu-6-partition', '', '{uid(6)}')"
    built(path, 5, more)
    with opened(path) as store:
        assert store.quarantined is None
        with store.transaction("released") as transaction:
            transaction.forget(uid(6))
            assert "gpu-6-partition" not in transaction.owned_devices(A_POOL)
    ours = built(path.with_name("2.db"), 2, more)
    with opened(ours) as store:
        assert store.quarantined is not None


def test_claims_of_a_file_that_is_damaged_elsewhere_are_not_believed(path: Path) -> None:
    built(path, 2)
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'owners'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"x" * size)
    with pytest.raises(Permanent, match=r"integrity_check|malformed"):
        read_claims(path)


REFUSALS = {
    "it says so": "UPDATE meta SET value = '5' WHERE key = 'min_reader'",
    "it says nothing": "DELETE FROM meta",
    "it says it in another way": "DROP TABLE meta",
    "it says what no number is": "UPDATE meta SET value = 'three'",
}


@pytest.mark.parametrize("statement", REFUSALS.values(), ids=REFUSALS)
def test_a_file_for_newer_drivers_only_is_refused_and_not_harmed(
    path: Path, statement: str
) -> None:
    built(path, 5, statement)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    message = (
        f"state file {path} needs a driver that reads schema 5, this one reads 4; nothing was changed: install the newer "
        f"driver again; or drain the node, reboot it, and run `dra-driver cleanup --force` on it (without the reboot, containers that "
        f"still run would share their devices with the next pods)"
    )
    for attempt in (lambda: StateStore(path, boot_id="boot-1"), lambda: read_claims(path)):
        with pytest.raises(Fatal) as caught:
            attempt()
        assert str(caught.value) == message
    guard = {"state.db.guard": b""}
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before | guard


def test_claims_are_read_without_making_or_changing_a_file(path: Path) -> None:
    assert read_claims(path) == ()
    assert not path.parent.exists()
    for schema in (1, 2, 3, 4, 5):
        file = built(path.with_name(f"{schema}.db"), schema)
        before = file.read_bytes()
        assert [claim.ref.name for claim in read_claims(file)][:5] == EVERY_CLAIM
        assert file.read_bytes() == before
    empty = path.with_name("empty.db")
    empty.touch()
    assert read_claims(empty) == ()
    damaged = path.with_name("damaged.db")
    damaged.write_bytes(b"no database" * 100)
    with pytest.raises(Permanent, match=f"state file {damaged}: file is not a database"):
        read_claims(damaged)
    assert damaged.read_bytes() == b"no database" * 100
