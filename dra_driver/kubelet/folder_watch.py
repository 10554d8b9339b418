# SPDX-License-Identifier: Apache-2.0
"""Notices at once when a file of a folder is made, replaced or removed.

The kernel reports it (inotify), so a waiting thread sleeps until something happens. A process may be refused an inotify instance,
because a user has only 128 by default, and the folder may not exist yet. So each wait ends after LOOK_SECONDS at most, and the caller
looks at the files itself: without inotify it is only later. While the kernel reports, a wait may take WATCHED_LOOK_SECONDS: it does not
report that something is mounted over the folder.
"""

import ctypes
import math
import os
import select
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock

LOOK_SECONDS = 1.0
WATCHED_LOOK_SECONDS = 10.0
# From <sys/inotify.h>; these numbers are the kernel's interface.
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_MOVE_SELF, _DELETE_SELF, _OVERFLOW, _IGNORED, _ONLYDIR = 0x800, 0x400, 0x4000, 0x8000, 0x1000000
_NAMES = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_FOLDER_GONE = _MOVE_SELF | _DELETE_SELF | _IGNORED
_EVENT = struct.Struct("iIII")
_MOST_BYTES = 64 * 1024


class FolderWatch:
    """Watches the names in `folder` that `wants` accepts. One thread waits; any thread may wake it."""

    def __init__(
        self, folder: Path, wants: Callable[[str], bool], *, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._folder = folder
        self._wants = wants
        self._look_seconds = look_seconds
        self._mutex = Lock()  # so that nobody wakes a closed file descriptor, whose number may be another file's by then
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)  # -1 if refused
        self._watch = -1
        self._poll = select.poll()
        for descriptor in (self._wakes, self._inotify):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)
        self._begin()

    def wait(self, seconds: float) -> bool:
        """Wait until a name changed, or somebody woke this thread; at most `seconds` and the time between two looks.

        Returns whether a name has changed, or may have. False proves nothing: the caller looks for itself.
        """
        if self._watch < 0 and self._begin():
            return True  # what happened before the watch began was not reported
        longest = WATCHED_LOOK_SECONDS if self._watch >= 0 else self._look_seconds
        # Rounded up: a wait that ends a fraction of a millisecond early is followed by another one.
        timeout = math.ceil(max(0.0, min(seconds, longest)) * 1000)
        ready = {descriptor for descriptor, _ in self._poll.poll(timeout)}
        if self._wakes in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._wakes)
        # The list is complete before `any`: each event must be read, also after the first one that counts.
        return self._inotify in ready and any(list(self._changes()))

    def wake(self) -> None:
        """Let `wait` return."""
        with self._mutex:
            if self._wakes >= 0:
                os.eventfd_write(self._wakes, 1)

    def close(self) -> None:
        """Free the file descriptors. No thread may be waiting."""
        with self._mutex:
            for descriptor in (self._wakes, self._inotify):
                if descriptor >= 0:
                    os.close(descriptor)
            self._wakes = self._inotify = -1

    def _begin(self) -> bool:
        """Begin to watch the folder. Returns whether it does."""
        if self._inotify >= 0:
            mask = _NAMES | _MOVE_SELF | _DELETE_SELF | _ONLYDIR
            path = os.fsencode(self._folder)
            self._watch = self._libc.inotify_add_watch(self._inotify, path, mask)
        return self._watch >= 0

    def _changes(self) -> Iterator[bool]:
        """Read the events that have come; yields for each whether it counts."""
        for watch, mask, name in self._events():
            if mask & _OVERFLOW:
                yield True
            elif watch == self._watch and mask & _FOLDER_GONE:
                # A folder that was moved away is still watched, but its path is another folder's.
                self._libc.inotify_rm_watch(self._inotify, watch)
                self._watch = -1
                yield True
            elif watch == self._watch:
                yield self._wants(name)

    def _events(self) -> Iterator[tuple[int, int, str]]:
        try:
            content = os.read(self._inotify, _MOST_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(content):
            watch, mask, _cookie, length = _EVENT.unpack_from(content, at)
            at += _EVENT.size
            yield watch, mask, os.fsdecode(content[at : at + length].rstrip(b"\0"))
            at += length
