# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C before a command does anything: while its modules are imported there is nothing to tidy up, so the process ends at once.

KeyboardInterrupt in the middle of an import is no end: importlib drops it in some places, and libraries in C can crash.
"""

import os
import signal

from dra_driver.model.exit_codes import INTERRUPTED

TYPE_CHECKING = False  # see dra_driver.cli.main
if TYPE_CHECKING:
    from types import FrameType


def end_at_once() -> None:
    """Let Ctrl-C end this process, unless whoever started it wants it to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, after `end_at_once`."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: "FrameType | None") -> None:
    os._exit(INTERRUPTED)
