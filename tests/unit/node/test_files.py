# SPDX-License-Identifier: Apache-2.0
"""Files appear whole or not at all, and an error says what to do."""

import errno
from pathlib import Path

import pytest

from dra_driver.errors import Permanent, Temporary
from dra_driver.node.files import FAILPOINTS, never, remove, translated, write_atomic


def test_a_file_appears_whole_and_readable_for_all(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    write_atomic(path, "first")
    write_atomic(path, "second ü")
    assert path.read_bytes() == "second ü".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_content_stands_until_the_rename(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text("old")
    seen: list[tuple[str, str, list[bool]]] = []

    def point(name: str) -> None:
        others = [other.suffix == ".tmp" for other in tmp_path.iterdir() if other != path]
        seen.append((name, path.read_text(), others))

    write_atomic(path, "new", point=point)
    assert seen == [("rename.file.before", "old", [True]), ("rename.file.after", "new", [])]
    assert tuple(name for name, _, _ in seen) == FAILPOINTS


def test_a_failure_in_the_middle_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spec.json"
    path.write_text("old")

    def point(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, "new", point=point)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"spec.json": "old"}


def test_a_temporary_file_that_another_process_cleared_away_is_written_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spec.json"

    def point(name: str) -> None:
        for each in tmp_path.iterdir():
            each.unlink()

    with pytest.raises(
        Temporary,
        match=r"cannot write .*spec\.json: somebody removed \.spec\.json\..*\.tmp meanwhile",
    ):
        write_atomic(path, "new", point=point)
    write_atomic(path, "new", point=never)
    assert path.read_text() == "new"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "spec.json"
    with pytest.raises(Permanent) as caught:
        write_atomic(path, "x")
    assert str(caught.value) == (
        f"cannot write {path}: the directory does not exist; create it or correct the path"
    )
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_removing_a_missing_file_is_fine_and_a_directory_is_not(tmp_path: Path) -> None:
    remove(tmp_path / "none")
    with pytest.raises(Permanent, match=f"cannot remove {tmp_path}: "):
        remove(tmp_path)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (errno.ENOSPC, Temporary, "the disk is full; free space, the kubelet tries again"),
        (errno.EDQUOT, Temporary, "the disk quota is used up; free space, the kubelet tries again"),
        (errno.EIO, Temporary, "Input/output error"),
        (errno.EMFILE, Temporary, "Too many open files"),
        (errno.EROFS, Permanent, "the filesystem is read-only; mount it writable"),
        (
            errno.EACCES,
            Permanent,
            "permission denied; the driver runs as root with this directory mounted writable",
        ),
        (
            errno.EPERM,
            Permanent,
            "not permitted; the driver runs as root with this directory mounted writable",
        ),
        (None, Permanent, "Success"),
    ],
)
def test_errors_of_the_system_say_who_must_act(code: int | None, kind: type, text: str) -> None:
    error = OSError() if code is None else OSError(code, "x")
    found = translated(error, "cannot write /x")
    assert (type(found), str(found)) == (kind, f"cannot write /x: {text}")
