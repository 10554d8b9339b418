# SPDX-License-Identifier: Apache-2.0
"""How `doctor` reads the state file of a host, from real state files below a folder."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from dra_driver.daemon.claims_on_host import LARGEST, claims_of
from dra_driver.daemon.host import Host
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice, Unknown
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import a_ref

FOLDER = Path("/var/lib/driver")
FILE = FOLDER / "state.db"
DEVICE = PreparedDevice(("gpu",), PoolName("n"), DeviceName("gpu-1"), (), "uuid")
CLAIM = PreparedClaim(a_ref("mine"), Phase.PREPARED, "boot-1", (DEVICE,), "")


def below(root: Path, path: Path) -> Path:
    return root / str(path).lstrip("/")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A state file whose only claim is in its log: its driver was killed, so none is at work."""
    folder = tmp_path / "written"
    folder.mkdir()
    with ExitStack() as stack:
        store = StateStore(folder / "state.db", boot_id="boot-1")
        stack.callback(store.close)
        with store.transaction("started") as transaction:
            transaction.start(CLAIM)
        killed = tmp_path / "killed"
        killed.mkdir()
        for name in ("state.db", "state.db-wal"):
            shutil.copy(folder / name, killed / name)
    return killed


@pytest.fixture
def root(tmp_path: Path, written: Path) -> Path:
    """A foreign host with this state file."""
    found = tmp_path / "root"
    shutil.copytree(written, below(found, FOLDER))
    return found


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in folder.iterdir()}


def refs(found: object) -> list[str]:
    assert isinstance(found, tuple), found
    return [one.ref.word for one in found]


def test_the_claims_of_a_foreign_host_are_read_with_those_in_the_log_and_nothing_is_written(
    root: Path,
) -> None:
    before = contents(below(root, FOLDER))
    assert refs(claims_of(Host(root), FOLDER)) == [CLAIM.ref.word]
    assert contents(below(root, FOLDER)) == before


def test_on_this_machine_the_file_itself_is_read(written: Path) -> None:
    assert refs(claims_of(Host(Path("/")), written)) == [CLAIM.ref.word]
    assert (claims_of(Host(Path("/")), written / "none")) == ()


def test_no_link_of_a_foreign_host_leads_out_of_it(root: Path, written: Path) -> None:
    """Neither that of the file, nor that of its log, which SQLite would follow."""
    before = contents(written)
    for name in ("state.db", "state.db-wal"):
        below(root, FOLDER / name).unlink()
    below(root, FILE).symlink_to(written / "state.db")
    assert claims_of(Host(root), FOLDER) == ()
    below(root, FILE).unlink()
    shutil.copy(written / "state.db", below(root, FILE))
    below(root, FOLDER / "state.db-wal").symlink_to(written / "state.db-wal")
    found = claims_of(Host(root), FOLDER)
    assert isinstance(found, Unknown)
    assert found.reason.startswith(f"cannot copy {FILE} to read it: ")
    assert contents(written) == before


def test_a_link_inside_the_host_is_followed(root: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc/driver").symlink_to(FOLDER)
    assert refs(claims_of(Host(root), Path("/etc/driver"))) == [CLAIM.ref.word]


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_regular_file_is_not_opened(root: Path, kind: str) -> None:
    place = below(root, FILE)
    place.unlink()
    if kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    assert claims_of(Host(root), FOLDER) == (
        f"{FILE} is no regular file; find out who made it, then remove it"
    )


def test_a_damaged_file_is_named_by_the_path_of_the_host(root: Path) -> None:
    below(root, FOLDER / "state.db-wal").unlink()
    below(root, FILE).write_text("no database" * 1000)
    found = claims_of(Host(root), FOLDER)
    assert isinstance(found, str)
    assert str(FILE) in found
    assert "/dev/shm" not in found
    assert str(root) not in found


def test_a_file_too_large_to_copy_is_not_read(root: Path) -> None:
    os.truncate(below(root, FILE), LARGEST + 1)
    found = claims_of(Host(root), FOLDER)
    assert isinstance(found, Unknown)
    assert f"larger than {LARGEST} bytes" in found.reason


def test_a_folder_that_cannot_be_there_is_told(root: Path) -> None:
    assert claims_of(Host(root), FILE / "below") == ()
    found = claims_of(Host(root), Path(f"/{'x' * 300}"))
    assert isinstance(found, str)
    assert "File name too long" in found
