# SPDX-License-Identifier: Apache-2.0
"""Failpoints: named moments at which a test makes the driver raise an error, die, or wait.

The driver calls the function `point(name)` before and after each step of the executor, each commit and each rename. Normally this
function does nothing. Only tests and `python -m dra_driver.testing.run` pass a function that acts. The crash tests use every name in
`FAILPOINTS`.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from dra_driver.node import files, metadata_dir, state
from dra_driver.services import execute

FAILPOINTS: tuple[str, ...] = (
    *execute.FAILPOINTS,
    *state.FAILPOINTS,
    *files.FAILPOINTS,
    *metadata_dir.FAILPOINTS,
)

Action = Callable[[], None]


class Failpoints:
    """A `point` that acts at the names in `armed`, and records each name that it is called with."""

    def __init__(self, armed: Mapping[str, Action] | None = None) -> None:
        self._mutex = threading.Lock()
        self._armed = dict(armed or {})
        self._passed: list[str] = []
        unknown = sorted(self._armed.keys() - set(FAILPOINTS))
        if unknown:
            raise ValueError(
                f"no failpoints: {', '.join(unknown)}; there are: {', '.join(FAILPOINTS)}"
            )

    def __call__(self, name: str) -> None:
        with self._mutex:
            self._passed.append(name)
            action = self._armed.get(name)
        if action is not None:
            action()

    @property
    def passed(self) -> tuple[str, ...]:
        """The names passed so far, in order."""
        with self._mutex:
            return tuple(self._passed)

    def disarm(self) -> None:
        """Do nothing at any name from now on."""
        with self._mutex:
            self._armed.clear()


def raising(error: Exception) -> Action:
    """Return an action that raises this error."""

    def act() -> None:
        raise error

    return act


def waiting(event: threading.Event) -> Action:
    """Return an action that waits until the event is set."""

    def act() -> None:
        event.wait()

    return act


def dying(report: Path, name: str) -> Action:
    """Return an action that writes the failpoint's name to `report`, as a sign that it was reached, and kills the process."""

    def act() -> None:
        report.write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)

    return act
