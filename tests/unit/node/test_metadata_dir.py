# SPDX-License-Identifier: Apache-2.0
"""The metadata files of claims, one directory for each claim."""

import stat
from pathlib import Path

import pytest

from dra_driver.errors import DriverError, Permanent
from dra_driver.model.ids import ClaimUid
from dra_driver.model.metadata import joined
from dra_driver.node.metadata_dir import FAILPOINTS, MetadataDirectory

UID, OTHER = ClaimUid("u1"), ClaimUid("u2")
TEXT = joined({"gpu": "{1}", "more": "{2}"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "plugin" / "metadata"


@pytest.fixture
def files(root: Path) -> MetadataDirectory:
    return MetadataDirectory(root)


def test_files_are_written_read_listed_and_removed(files: MetadataDirectory, root: Path) -> None:
    assert (files.read(UID), files.uids(), files.entries(UID)) == (None, [], ())
    files.remove(UID)
    files.write(UID, TEXT)
    files.write(OTHER, joined({"gpu": "{3}"}))
    assert (root / "u1" / "gpu.json").read_text() == "{1}"
    assert (files.read(UID), files.uids()) == (TEXT, [UID, OTHER])
    assert [name for name, *_ in files.entries(UID)] == ["gpu.json", "more.json"]
    files.remove(UID)
    assert (files.read(UID), files.uids()) == (None, [OTHER])


def test_every_user_of_a_container_may_read_them(files: MetadataDirectory, root: Path) -> None:
    files.write(UID, TEXT)
    assert stat.S_IMODE((root / "u1").stat().st_mode) & 0o055 == 0o055
    assert stat.S_IMODE((root / "u1" / "gpu.json").stat().st_mode) == 0o644


def test_only_what_differs_is_written(files: MetadataDirectory, root: Path) -> None:
    files.write(UID, TEXT)
    before = files.entries(UID)
    files.write(UID, TEXT)
    files.write(UID, "")
    assert files.entries(UID) == before


@pytest.mark.parametrize("harm", ["changed", "missing", "no text", "more"])
def test_whatever_was_done_to_them_they_are_written_again(
    files: MetadataDirectory, root: Path, harm: str
) -> None:
    files.write(UID, TEXT)
    file = root / "u1" / "gpu.json"
    match harm:
        case "changed":
            file.write_text("{9}")
        case "missing":
            file.unlink()
        case "no text":
            file.write_bytes(b"\xff")
        case _:
            file.with_name(".gpu.json.1-2.tmp").write_text("{")
    assert files.read(UID) != TEXT
    files.write(UID, TEXT)
    assert files.read(UID) == TEXT


def test_a_request_never_leads_out_of_the_directory(files: MetadataDirectory, root: Path) -> None:
    with pytest.raises(Permanent, match="cannot be a file name"):
        files.write(UID, joined({"../gpu": "{}"}))
    assert not (root / "gpu.json").exists()


def test_an_empty_directory_has_no_text(files: MetadataDirectory, root: Path) -> None:
    (root / "u1").mkdir(parents=True)
    assert files.read(UID) is None


@pytest.mark.parametrize("act", ["write", "remove"])
def test_what_cannot_be_done_says_where(tmp_path: Path, act: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "u1").write_text("")
    files = MetadataDirectory(tmp_path)
    with pytest.raises(DriverError, match=str(tmp_path / "u1")):
        files.write(UID, TEXT) if act == "write" else files.remove(UID)


def test_a_directory_that_is_not_empty_stays(files: MetadataDirectory, root: Path) -> None:
    def point(name: str) -> None:
        if name == "remove.metadata.before":
            (root / "u1" / "late.json").write_text("")

    files.write(UID, TEXT)
    with pytest.raises(DriverError, match="cannot remove"):
        MetadataDirectory(root, point=point).remove(UID)


def test_each_failpoint_is_passed(root: Path) -> None:
    passed: list[str] = []
    files = MetadataDirectory(root, point=passed.append)
    files.write(UID, joined({"gpu": "{}"}))
    files.remove(UID)
    assert tuple(passed) == FAILPOINTS
