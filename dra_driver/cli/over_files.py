# SPDX-License-Identifier: Apache-2.0
"""How does a command over files end? `dra-driver check` and `convert` are such commands."""

from collections.abc import Callable

from dra_driver.cli import render
from dra_driver.cli.limits import TookTooLong, at_most
from dra_driver.cli.question import only_driver_errors
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.exit_codes import COULD_NOT_TELL, INTERRUPTED

WALL = 10
"""How many times as long as its work a command may take on a busy machine, or wait for its input."""


def exit_code(work: Callable[[], int], seconds: float) -> int:
    """Run `work` for at most `seconds` of work (--timeout). Returns its exit code; a failure is written to standard error, and is COULD_NOT_TELL."""
    try:
        return only_driver_errors(lambda: _in_time(work, seconds))
    except DriverError as error:
        render.error(str(error))
        return COULD_NOT_TELL
    except KeyboardInterrupt:
        return INTERRUPTED


def _in_time(work: Callable[[], int], seconds: float) -> int:
    wall = seconds * WALL
    try:
        with at_most(wall, of_work=seconds):
            return work()
    except TookTooLong as error:
        raise Permanent(
            f"gave up after {seconds:g} s of work (--timeout), or {wall:g} s with what it waited for: give more time, or fewer files"
        ) from error
