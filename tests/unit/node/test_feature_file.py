# SPDX-License-Identifier: Apache-2.0
"""The feature file is whole or not there, and nothing else of the folder changes."""

import os
from pathlib import Path
from threading import Thread

import pytest

from dra_driver.errors import DriverError
from dra_driver.node.feature_file import FeatureFile

HANG_SECONDS = 60
NAME = "gpu.example.com"


@pytest.fixture
def file(tmp_path: Path) -> FeatureFile:
    return FeatureFile(tmp_path, NAME)


def test_a_file_is_written_replaced_and_removed(tmp_path: Path, file: FeatureFile) -> None:
    other = tmp_path / "gfd"
    other.write_text("theirs=1\n")
    assert (file.has_folder, file.read()) == (True, "")
    assert [file.replace(text) for text in ("a/b=1\n", "a/b=1\n", "a/b=2\n")] == [True, False, True]
    assert (tmp_path / NAME).read_text() == "a/b=2\n" == file.read()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o644
    assert [file.replace(""), file.replace("")] == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["gfd"]
    assert other.read_text() == "theirs=1\n"


def test_the_folder_is_not_made(tmp_path: Path) -> None:
    file = FeatureFile(tmp_path / "features.d", NAME)
    assert not file.has_folder
    assert not file.replace("")
    with pytest.raises(DriverError, match="the directory does not exist"):
        file.replace("a/b=1\n")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path, file: FeatureFile) -> None:
    (tmp_path / f".{NAME}.abcd-1.tmp").write_text("half")
    (tmp_path / ".other.example.com.abcd-1.tmp").write_text("theirs")
    (tmp_path / f".{NAME}.odd.tmp").mkdir()
    file.replace("a/b=1\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".{NAME}.odd.tmp",
        ".other.example.com.abcd-1.tmp",
        NAME,
    ]


def test_a_file_that_is_no_text_is_replaced(tmp_path: Path, file: FeatureFile) -> None:
    (tmp_path / NAME).write_bytes(b"\xff")
    assert file.read() == ""
    assert file.replace("a/b=1\n")
    assert file.read() == "a/b=1\n"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path, file: FeatureFile) -> None:
    """Whoever can write into the folder must not make the driver, which is root, write elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("a/b=1\n")
    (tmp_path / NAME).symlink_to(elsewhere)
    assert file.replace("a/b=1\n")
    assert not (tmp_path / NAME).is_symlink()
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).symlink_to(tmp_path / "nothing")
    assert file.replace("")
    assert not os.path.lexists(tmp_path / NAME)
    assert elsewhere.read_text() == "a/b=1\n"


def test_what_is_no_file_of_labels_is_replaced_without_reading_it(
    tmp_path: Path, file: FeatureFile
) -> None:
    os.mkfifo(tmp_path / NAME)  # to read it would wait for ever
    writing = Thread(target=file.replace, args=("a/b=1\n",), daemon=True)
    writing.start()
    writing.join(HANG_SECONDS)
    assert file.path.is_file()
    assert file.read() == "a/b=1\n"
    os.truncate(file.path, 1 << 40)
    assert file.read() == ""
    assert file.replace("a/b=1\n")
    assert file.read() == "a/b=1\n"


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises(DriverError, match="loop"):
        FeatureFile(path, NAME).replace("a/b=1\n")
