# SPDX-License-Identifier: Apache-2.0
"""A folder that an admin fills: its files, its limits, and its changes."""

import os
from pathlib import Path

from dra_driver.node.mounted_folder import LARGEST_FILE, MOST_FILES, FolderContent, mark, read


def mounted(folder: Path, version: str, **files: str) -> None:
    """What the kubelet makes of a ConfigMap: a new folder, and a link that it turns in one step."""
    data = folder / f"..{version}"
    data.mkdir(parents=True)
    for name, text in files.items():
        (data / f"{name}.yaml").write_text(text)
        if not (folder / f"{name}.yaml").is_symlink():
            (folder / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").replace(folder / "..data")


def test_a_configmap_has_its_keys_and_nothing_of_its_links(tmp_path: Path) -> None:
    mounted(tmp_path, "1", b="two", a="one")
    assert read(tmp_path) == FolderContent({"a.yaml": b"one", "b.yaml": b"two"})


def test_the_mark_changes_with_a_file_and_else_stays(tmp_path: Path) -> None:
    assert mark(tmp_path / "none") == mark(tmp_path / "none") != mark(tmp_path)
    mounted(tmp_path, "1", a="one")
    before = mark(tmp_path)
    assert mark(tmp_path) == before
    mounted(tmp_path, "2", a="two")
    assert mark(tmp_path) != before
    assert read(tmp_path).files == {"a.yaml": b"two"}
    before = mark(tmp_path)
    (tmp_path / "b").symlink_to("nowhere")
    assert mark(tmp_path) != before


def test_what_cannot_be_read_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * LARGEST_FILE)
    (tmp_path / "b").write_bytes(b"x" * (LARGEST_FILE + 1))
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "d")
    (tmp_path / "e").symlink_to("nowhere")
    (tmp_path / "f").write_text("good")
    found = read(tmp_path)
    assert list(found.files) == ["a", "f"]
    assert found.problems == (
        f"{tmp_path}/b is larger than 1 MiB, and is not read: split it into several files",
        f"{tmp_path}/c is no file, and is not read: take it out of this folder",
        f"{tmp_path}/d is no file, and is not read: take it out of this folder",
        f"cannot read {tmp_path}/e: the directory does not exist; create it or correct the path",
    )


def test_more_files_than_a_folder_may_have_are_told(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 2):
        (tmp_path / f"{number:03}").write_text("x")
    found = read(tmp_path)
    assert list(found.files) == [f"{number:03}" for number in range(MOST_FILES)]
    assert found.problems == (
        f"{tmp_path} has more than 64 files, and those from '064' on are not read: put several documents into one file",
    )


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert read(tmp_path / "x") == FolderContent(
        problems=(
            f"cannot read the folder {tmp_path}/x: the directory does not exist; create it or correct the path",
        ),
        listed=False,
    )


def test_a_file_is_a_folder_with_this_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("one")
    (tmp_path / "b.yaml").write_text("other")
    assert read(file) == FolderContent({"a.yaml": b"one"})
    before = mark(file)
    file.write_text("two!")
    assert mark(file) != before
