# SPDX-License-Identifier: Apache-2.0
"""How does a command over files end, and how long may its parts take? `dra-driver check` and `convert` are such commands."""

import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from msgspec import Struct

from dra_driver.cli import render
from dra_driver.cli.limits import TookTooLong, at_most
from dra_driver.cli.question import only_driver_errors
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.exit_codes import COULD_NOT_TELL, INTERRUPTED

WALL = 10
"""How many times as long as its work a command may take on a busy machine, or wait for its input."""
_NAMED = 3
_Result = TypeVar("_Result")


class OutOfTime(Permanent):
    """The time of --timeout is over."""

    def __init__(self, seconds: float) -> None:
        self.what = f"gave up after {seconds:g} s of work (--timeout), or {seconds * WALL:g} s with what it waited for"
        super().__init__(f"{self.what}: give more time, or fewer files")


class Limit(Struct, frozen=True):
    """The time of --timeout: when it is over on the clock of this process's work, and when on the one of the wall."""

    seconds: float
    end_of_work: float
    end: float

    @classmethod
    def of(cls, seconds: float) -> Self:
        """Return the limit of a command that begins now."""
        return cls(seconds, time.process_time() + seconds, time.monotonic() + seconds * WALL)

    def part(self, share: float) -> "Limit":
        """Return a limit that leaves something of the time that is left, for what comes after."""
        work, wall = self._left()
        return Limit(
            self.seconds, time.process_time() + work * share, time.monotonic() + wall * share
        )

    def run(self, work: Callable[[], _Result]) -> _Result:
        """Do a part of the command's work, and return its result. Raises OutOfTime."""
        of_work, wall = self._left()
        if min(of_work, wall) <= 0:
            raise OutOfTime(
                self.seconds
            )  # many small parts would go on, each in the least time of a timer
        try:
            with at_most(wall, of_work=of_work):
                return work()
        except TookTooLong as error:
            raise OutOfTime(self.seconds) from error

    def _left(self) -> tuple[float, float]:
        return self.end_of_work - time.process_time(), self.end - time.monotonic()


def named(files: Sequence[str]) -> str:
    """Return the first names, and how many others there are."""
    more = len(files) - _NAMED
    return ", ".join(files[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def exit_code(work: Callable[[], int]) -> int:
    """Run `work`. Returns its exit code; a failure is written to standard error, and is COULD_NOT_TELL."""
    try:
        return only_driver_errors(work)
    except DriverError as error:
        render.error(str(error))
        return COULD_NOT_TELL
    except KeyboardInterrupt:
        return INTERRUPTED
