# SPDX-License-Identifier: Apache-2.0
"""The list of units of one resource, for the streams of its service."""

from threading import Condition

from dra_driver.model.plugin import ListedUnit


class UnitFeed:
    """Keeps the list that the kubelet has, or shall have (`dra_driver.kubelet.streams.Feed`)."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._version = 0
        self._units: tuple[ListedUnit, ...] = ()

    def set(self, units: tuple[ListedUnit, ...]) -> bool:
        """Replace the list. Returns whether it has changed; then the streams send it."""
        with self._changed:
            if units == self._units:
                return False
            self._units = units
        self.wake()
        return True

    def snapshot(self) -> tuple[int, tuple[ListedUnit, ...]]:
        """Return the version, which grows with each change, and the list."""
        with self._changed:
            return self._version, self._units

    def wait(self, version: int, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the version differs, or somebody wakes the streams. Returns whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout)

    def wake(self) -> None:
        """Let every `wait` return."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()
