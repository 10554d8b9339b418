# SPDX-License-Identifier: Apache-2.0
"""Where each program of the package begins: `dra-driver`, `kubectl dra` with its completion, and `python -m dra_driver`.

Ctrl-C ends each of them without a traceback, from their first import on.
"""

import sys

from dra_driver.model.exit_codes import INTERRUPTED


def driver() -> int:
    """Run `dra-driver`. Returns the exit code."""
    return _guarded("main")


def kubectl() -> int:
    """Run `kubectl dra`. Returns the exit code."""
    return _guarded("kubectl")


def kubectl_complete() -> int:
    """Complete a command line of `kubectl dra`. Returns the exit code."""
    return _guarded("kubectl_complete")


def _guarded(program: str) -> int:
    try:
        from dra_driver.cli.interrupt import end_at_once  # noqa: PLC0415  an import takes time, too

        end_at_once()
        from dra_driver.cli import main  # noqa: PLC0415

        code: int = getattr(main, program)()
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(driver())
