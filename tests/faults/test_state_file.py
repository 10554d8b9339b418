# SPDX-License-Identifier: Apache-2.0
"""The state file is cut short, has a bit turned over, is newer than the driver, or goes away.

Whatever was done to it, after a start the claims of running pods are Prepared with the same devices, the same CDI text and the
same answer; nobody else owns their devices.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dra_driver.errors import Permanent
from dra_driver.model.state import PodDevice
from dra_driver.testing.builders import A_DRIVER, A_POOL, a_claim, a_config, a_result, an_inventory
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, wait_for
from tests.faults.bed import Bed
from tests.support.local_node import Disk, LocalNode, ManualClock

CLAIMS = (
    a_claim("one", configs=[a_config(label="x")]),
    a_claim("two", results=[a_result("gpu-1"), a_result("gpu-2", share="s1")]),
    a_claim("three", results=[a_result("gpu-3"), a_result("gpu-0", admin=True)]),
)
INVENTORY = an_inventory(4, shared=True)
FLIPS = 150
Damage = Callable[[Path], None]


class Original:
    """A node with prepared claims, whose files can be copied, damaged and started again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        node = LocalNode(directory, clock=ManualClock(), inventory=INVENTORY)
        # Prepared in another boot first, so that an older moment of the file is that boot.
        node.restart(boot_id="boot-0")
        node.prepare(*node.add(*CLAIMS))
        self._reboot(node)
        self.answers = node.prepare(*(claim.ref for claim in CLAIMS))
        self.disk = node.disk()
        # With its -wal and -shm, as a killed process leaves it; and closed, as one that ended.
        shutil.copytree(directory, directory / "killed", ignore=shutil.ignore_patterns("killed"))
        node.close()
        shutil.copytree(
            directory, directory / "ended", ignore=shutil.ignore_patterns("killed", "ended")
        )

    @staticmethod
    def _reboot(node: LocalNode) -> None:
        """Another boot, with the log of the earlier one still to be taken up by SQLite."""
        with closing(sqlite3.connect(node.directory / "state.db")) as keeps_log:
            keeps_log.execute("SELECT * FROM claims").fetchall()
            node.restart()
        node.recover()

    def started(self, how: str, directory: Path, damage: Damage) -> tuple[Disk, bool]:
        """What a start makes of a damaged copy: the disk, and whether the file was set aside."""
        shutil.copytree(self.directory / how, directory)
        damage(directory)
        node = LocalNode(directory, clock=ManualClock(), inventory=INVENTORY)
        node.add(*CLAIMS)
        node.pod_devices = frozenset(held())
        node.recover()
        open_questions = node.sweep()
        assert open_questions == ()
        found = node.disk()
        assert node.violations() == []
        assert node.prepare(*(claim.ref for claim in CLAIMS)) == self.answers
        set_aside = node.store.quarantined is not None
        node.close()
        return found, set_aside


def held() -> Iterator[PodDevice]:
    """Only the first claim's pod runs; the others are known by their files."""
    name = f"k8s.{A_DRIVER}/claim={CLAIMS[0].ref.uid}-gpu-0"
    yield PodDevice("default", "one", A_DRIVER, A_POOL, "gpu-0", cdi_ids=(name,))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return Original(tmp_path_factory.mktemp("original"))


def boundaries(size: int) -> list[int]:
    """Every sector, and one byte to either side of every page."""
    pages = range(0, size + 1, 4096)
    return sorted({*range(0, size, 512), *(page + by for page in pages for by in (-1, 1))} - {-1})


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm"])
def test_a_file_cut_anywhere_costs_no_claim(original: Original, tmp_path: Path, name: str) -> None:
    how = "ended" if name == "state.db" else "killed"
    size = (original.directory / how / name).stat().st_size
    places = boundaries(size)
    chosen = places if len(places) < 60 else random.Random(1).sample(places, 60)
    for place in chosen:

        def cut(directory: Path, place: int = place) -> None:
            with (directory / name).open("rb+") as file:
                file.truncate(place)

        disk, _ = original.started(how, tmp_path / str(place), cut)
        assert disk == original.disk, place


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_bit_turned_over_costs_no_claim(original: Original, tmp_path: Path, how: str) -> None:
    set_aside = 0
    for seed in range(FLIPS):
        chance = random.Random(seed)

        def flip(directory: Path, chance: random.Random = chance) -> None:
            file = chance.choice(
                [path for path in sorted(directory.glob("state.db*")) if path.suffix != ".guard"]
            )
            content = bytearray(file.read_bytes())
            if content:
                bit = chance.randrange(len(content) * 8)
                content[bit // 8] ^= 1 << bit % 8
                file.write_bytes(content)

        disk, damaged = original.started(how, tmp_path / str(seed), flip)
        assert disk == original.disk, seed
        set_aside += damaged
    if how == "ended":
        assert 0 < set_aside < FLIPS  # most bits are in unused space


@pytest.mark.parametrize("byte", range(100))
def test_no_byte_of_the_header_can_lock_the_driver_out(
    original: Original, tmp_path: Path, byte: int
) -> None:
    def turn(directory: Path) -> None:
        content = bytearray((directory / "state.db").read_bytes())
        content[byte] ^= 0xFF if byte not in range(60, 64) else 0x01
        (directory / "state.db").write_bytes(content)

    disk, _ = original.started("ended", tmp_path / "copy", turn)
    assert disk == original.disk


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE claims SET cdi_spec = replace(cdi_spec, '\"minor\": 0', '\"minor\": 3')",
        "UPDATE claims SET devices = replace(devices, 'gpu-1', 'gpu-3')",
        "UPDATE claims SET phase = 'Qrepared' WHERE uid = 'uid-one'",
        "UPDATE claims SET devices = '['",
        "UPDATE claims SET boot_id = 'boot-3'",
        "UPDATE owners SET device = 'gpu-7' WHERE device = 'gpu-1'",
        "DELETE FROM owners WHERE device = 'gpu-0'",
        "DELETE FROM claims WHERE uid = 'uid-one'",
        "DROP TABLE owners",
        "ALTER TABLE claims RENAME COLUMN devices TO devises",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1",
    ],
)
def test_a_file_that_sqlite_reads_and_that_lies_is_damaged_too(
    original: Original, tmp_path: Path, statement: str
) -> None:
    def lie(directory: Path) -> None:
        with closing(sqlite3.connect(directory / "state.db", isolation_level=None)) as db:
            db.execute(statement)

    assert original.started("ended", tmp_path / "copy", lie) == (original.disk, True)


def test_a_file_of_a_newer_driver_ends_the_start_and_goes_on_working_there(bed: Bed) -> None:
    claim = bed.claim("one", ["gpu-0"])
    bed.start_registered()
    bed.kubelet.prepare(DRIVER, [claim])
    known = {claim.uid: bed.running_claim(claim.uid)}
    bed.stop()
    with closing(sqlite3.connect(bed.state_file, isolation_level=None)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        db.execute("UPDATE meta SET value = '99' WHERE key = 'min_reader'")
        db.execute("PRAGMA user_version = 99")
    before = bed.state_file.read_bytes()
    bed.start()
    assert bed.process is not None
    assert bed.process.wait(DEADLINE_SECONDS) == 1
    bed.stop()
    last = bed.log().splitlines()[-1]
    assert "needs a driver that reads schema 99" in last
    assert "install the newer driver again" in last
    assert bed.state_file.read_bytes() == before
    # The newer driver is installed again.
    with closing(sqlite3.connect(bed.state_file, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = '1' WHERE key = 'min_reader'")
        db.execute(f"PRAGMA user_version = {version}")
    bed.start_registered()
    bed.settles(running=known)


def overwrite(path: Path) -> None:
    with path.open("rb+") as file:
        file.write(b"\xa5" * path.stat().st_size)


def cut(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(0)


@pytest.mark.parametrize("damage", [Path.unlink, overwrite, cut])
def test_damage_while_running_is_missed_by_nobody_and_cured_by_the_restart(
    bed: Bed, damage: Callable[[Path], None]
) -> None:
    """SQLite works on with the pages that it has in memory, or with the file that has no name any more."""
    claim, later = bed.claim("one", ["gpu-0"]), bed.claim("two", ["gpu-1"])
    bed.start_registered()
    wait_for(bed.slices, "the slices")
    bed.kubelet.prepare(DRIVER, [claim], pod="default/one")
    known = {claim.uid: bed.running_claim(claim.uid)}
    for path in bed.state_files():
        if not path.name.endswith("-shm"):
            damage(path)
    with suppress(KubeletError):
        bed.kubelet.prepare(DRIVER, [later], pod="default/two")
    with pytest.raises(KubeletError, match=r"is prepared for claim default/one|state file"):
        bed.kubelet.prepare(DRIVER, [bed.claim("three", ["gpu-0"])], pod="default/three")
    bed.kill()
    bed.start_registered()
    bed.settles(running=known)
    assert bed.kubelet.prepare(DRIVER, [later], pod="default/two")[later.uid]


def test_damage_that_a_call_meets_is_told_with_the_way_out(tmp_path: Path) -> None:
    node = LocalNode(tmp_path, clock=ManualClock())
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as db:
        db.execute("UPDATE claims SET devices = replace(devices, 'gpu-0', 'gpu-1')")
    reason = node.prepare(ref)[ref.uid].reason
    assert reason == (
        f"cannot prepare claim {ref}: state file {tmp_path}/state.db: the row of claim {ref} is not as it was written; "
        "restart the driver, which sets a damaged file aside and rebuilds it"
    )
    node.pod_devices = frozenset(held())
    node.restart()
    assert node.store.quarantined is not None
    node.recover()
    node.sweep()
    assert [device.device for device in node.prepare(ref)[ref.uid]] == ["gpu-0"]
    node.close()


def test_a_damaged_file_that_cannot_be_set_aside_is_left_alone(
    original: Original, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(original.directory / "ended", copy)
    (copy / "state.db").write_bytes(b"no database" * 1000)
    user = LocalNode(tmp_path / "other")
    (copy / "state.db.guard").unlink()
    (copy / "state.db.guard").hardlink_to(user.directory / "state.db.guard")  # somebody has it open
    with pytest.raises(Exception, match="another driver process has it open") as caught:
        LocalNode(copy)
    assert not isinstance(caught.value, Permanent)
    assert (copy / "state.db").read_bytes() == b"no database" * 1000
    user.close()
