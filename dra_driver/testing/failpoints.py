# SPDX-License-Identifier: Apache-2.0
"""Make the driver fail at a named moment: raise, kill the process, or wait.

The driver calls a `point(name)` that it is given, before and after each step of the executor, each commit and each
rename; by default that does nothing. Only `python -m dra_driver.testing.run` and tests hand in an armed one.
`FAILPOINTS` is the registry that the crash tests walk through.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from dra_driver.node import files, state
from dra_driver.services import execute

FAILPOINTS: tuple[str, ...] = (*execute.FAILPOINTS, *state.FAILPOINTS, *files.FAILPOINTS)

Action = Callable[[], None]


class Failpoints:
    """A `point` that acts at the armed names and records every name that it passed."""

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
        """Let everything pass from now on."""
        with self._mutex:
            self._armed.clear()


def raising(error: Exception) -> Action:
    """Fail with this error."""

    def act() -> None:
        raise error

    return act


def waiting(event: threading.Event) -> Action:
    """Stand still until the event is set."""

    def act() -> None:
        event.wait()

    return act


def dying(report: Path, name: str) -> Action:
    """Write the failpoint's name to `report`, so that a test knows it was reached, and die without any farewell."""

    def act() -> None:
        report.write_text(name)
        os.kill(os.getpid(), signal.SIGKILL)

    return act
