# SPDX-License-Identifier: Apache-2.0
"""`python -m dra_driver.testing.run`: the real daemon with a failpoint. A daemon can have a failpoint only in this way.

The arguments are the failpoint to die at, a file to report it in, and the arguments of `dra-driver run`:

    python -m dra_driver.testing.run --die-at step.WriteCdiSpec.after --report /tmp/reached -- --node-name n1 …
"""

import argparse
import sys
from pathlib import Path

from dra_driver.cli import main as command_line
from dra_driver.cli import render
from dra_driver.cli import run as run_command
from dra_driver.errors import DriverError
from dra_driver.testing.failpoints import Failpoints, dying


def main() -> int:
    """Run the daemon until it dies at the failpoint, or gets a signal to stop."""
    parser = argparse.ArgumentParser(prog="python -m dra_driver.testing.run", description=__doc__)
    parser.add_argument("--die-at", required=True, metavar="FAILPOINT")
    parser.add_argument("--report", required=True, type=Path, metavar="FILE")
    parser.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT", help="arguments of `dra-driver run`, after --"
    )
    chosen = parser.parse_args()
    points = Failpoints({chosen.die_at: dying(chosen.report, chosen.die_at)})
    settings = command_line.parser("run").parse_args(["run", *chosen.arguments])
    try:
        return run_command.run(settings, point=points)
    except DriverError as error:
        render.error(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
