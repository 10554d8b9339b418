# SPDX-License-Identifier: Apache-2.0
"""The real daemon, with failpoints that a test arms and disarms while it runs: `python -m tests.faults.armed CONTROL -- …`.

At each failpoint the process looks for the file CONTROL, `{"point": NAME, "skip": N, "do": ACTION}`. At the point of that
name, after N passings, it takes the file away, which tells the test that it was reached, and

* `die`: kills itself;
* `full`: gets no more bytes onto any disk, as if all were full, until the test lifts the limit (RLIMIT_FSIZE, so the writes
  really fail, in the kernel and in SQLite alike).
"""

import json
import os
import resource
import secrets
import signal
import sys
from pathlib import Path

from dra_driver.cli import main as command_line
from dra_driver.cli import run as run_command
from dra_driver.errors import DriverError
from dra_driver.node import files
from tests.faults.machines import offer


class Control:
    """A `point` that obeys the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed = 0

    def __call__(self, name: str) -> None:
        try:
            order = json.loads(self._path.read_text())
        except (OSError, ValueError):
            self._passed = 0
            return
        if order["point"] not in (name, "*"):
            return
        self._passed += 1
        if self._passed <= order["skip"]:
            return
        self._path.unlink()
        if order["do"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        fill_disks(os.getpid())


def fill_disks(process: int) -> None:
    """Let no write to a regular file succeed in that process."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (0, hard))


def empty_disks(process: int) -> None:
    """Lift the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (hard, hard))


def main() -> int:
    """Run the daemon until it is told to stop."""
    control, arguments = Path(sys.argv[1]), sys.argv[3:]
    offer()
    # This process may be a fork of one that has imported everything; as a program it would have a token of its own.
    files._OURS = secrets.token_hex(4)
    settings = command_line.parser("run").parse_args(["run", *arguments])
    try:
        return run_command.run(settings, point=Control(control))
    except DriverError as error:
        print(f"dra-driver: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
