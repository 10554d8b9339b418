# SPDX-License-Identifier: Apache-2.0
"""What ends a wait for a change in a folder."""

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dra_driver.kubelet.folder_watch import LOOK_SECONDS, WATCHED_LOOK_SECONDS, FolderWatch

HANG_SECONDS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "device-plugins"
    path.mkdir()
    return path


@pytest.fixture
def watch(folder: Path) -> Iterator[FolderWatch]:
    found = FolderWatch(folder, lambda name: name == "wanted", look_seconds=HANG_SECONDS)
    yield found
    found.close()


def test_a_wanted_name_that_comes_changes_or_goes_ends_the_wait(
    watch: FolderWatch, folder: Path
) -> None:
    wanted = folder / "wanted"
    for change in (
        lambda: wanted.write_text("made"),
        lambda: wanted.write_text("changed"),
        lambda: wanted.rename(folder / "other"),
        lambda: (folder / "other").rename(wanted),
        wanted.unlink,
        lambda: os.mkfifo(wanted),
    ):
        change()
        assert watch.wait(HANG_SECONDS)
        while watch.wait(0):
            pass  # one write makes two events


def test_an_unwanted_name_is_no_change(watch: FolderWatch, folder: Path) -> None:
    (folder / "other").write_text("made")
    assert not watch.wait(HANG_SECONDS)
    assert not watch.wait(0)


def test_an_unwanted_name_does_not_hide_a_wanted_one(watch: FolderWatch, folder: Path) -> None:
    for name in ("other", "wanted", "another"):
        os.mkfifo(folder / name)
    assert watch.wait(HANG_SECONDS)
    assert not watch.wait(0)


def test_a_thread_is_woken(watch: FolderWatch) -> None:
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(watch.wait, HANG_SECONDS)
        watch.wake()
        assert waits.result(HANG_SECONDS) is False
    assert watch.wait(0) is False  # a wake counts once


@pytest.mark.parametrize("how", ["removed", "moved away"])
def test_a_folder_that_is_made_anew_is_watched_again(
    watch: FolderWatch, folder: Path, how: str
) -> None:
    if how == "removed":
        folder.rmdir()
    else:
        folder.rename(folder.with_name("old"))
    assert watch.wait(HANG_SECONDS)
    assert not watch.wait(0)
    folder.mkdir()
    assert watch.wait(HANG_SECONDS)
    (folder / "wanted").write_text("made")
    assert watch.wait(HANG_SECONDS)


def test_a_folder_that_comes_later_is_watched_from_then_on(tmp_path: Path) -> None:
    later = FolderWatch(tmp_path / "later", lambda _name: True, look_seconds=0.001)
    assert not later.wait(HANG_SECONDS)
    (tmp_path / "later").mkdir()
    assert later.wait(HANG_SECONDS)
    later.close()


def test_a_process_without_inotify_looks_for_itself(folder: Path) -> None:
    # A limit of open files leaves one for the descriptor that wakes. The user's limit of inotify instances would hit other tests.
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, before[1]))
    try:
        watch = FolderWatch(folder, lambda _name: True, look_seconds=0.001)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    (folder / "wanted").write_text("made")
    assert not watch.wait(HANG_SECONDS)
    watch.wake()
    assert not watch.wait(HANG_SECONDS)
    assert watch._inotify == -1
    watch.close()


def test_a_closed_watch_can_be_woken(folder: Path) -> None:
    watch = FolderWatch(folder, lambda _name: True)
    watch.close()
    watch.wake()
    watch.close()


class Asked:
    """Notes for how many milliseconds a wait asks the kernel."""

    def __init__(self) -> None:
        self.for_milliseconds: list[float] = []

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self.for_milliseconds.append(milliseconds)
        return []


def test_a_thread_at_rest_wakes_at_most_once_a_second(folder: Path) -> None:
    watched, unwatched = (FolderWatch(one, lambda _: True) for one in (folder, folder / "none"))
    asked = watched._poll = unwatched._poll = Asked()  # type: ignore[assignment]
    for watch in (watched, unwatched):
        assert not watch.wait(HANG_SECONDS)
    assert not watched.wait(0.0001)
    assert asked.for_milliseconds == [WATCHED_LOOK_SECONDS * 1000, LOOK_SECONDS * 1000, 1]
    assert min(WATCHED_LOOK_SECONDS, LOOK_SECONDS) >= 1
    watched.close()
    unwatched.close()
