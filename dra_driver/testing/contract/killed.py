# SPDX-License-Identifier: Apache-2.0
"""Kill a process before a line of a backend's code: what a crash of the driver leaves in the hardware."""

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from dra_driver.testing.contract.bench import BrokenPromise, raised

_LOOK_SECONDS = 0.001
_FAILED = 3

Act = Callable[[], object]
AtLine = Callable[[int, str], None]


def packages_of(backend: object) -> tuple[str, ...]:
    """Where the code of a backend is: the package of its module, or the module itself."""
    module = type(backend).__module__
    return (module.rpartition(".")[0] or module,)


def lines_of(act: Act, code: Sequence[str], report: Path, patience: float) -> list[str]:
    """Let a child process act, and return the lines of this code that it ran, in order: "acme_dra.py:58"."""
    places: list[str] = []

    def work() -> None:
        try:
            _traced(act, code, lambda _number, place: places.append(place))
        except Exception as error:
            report.write_text(raised(error))
            raise
        report.write_text(json.dumps(places))

    report.write_text("the process died")
    if _ended(work, patience) != 0:
        raise BrokenPromise(
            "a call in a child process",
            report.read_text(),
            "make the backend work in a process without the threads of its parent",
        )
    found: list[str] = json.loads(report.read_text())
    return found


def die_before(line: int, act: Act, code: Sequence[str], patience: float) -> bool:
    """Let a child process act, and kill it before this line, counted from 0. False if it ended before."""

    def at_line(number: int, _place: str) -> None:
        if number == line:
            os.kill(os.getpid(), signal.SIGKILL)

    return _ended(lambda: _traced(act, code, at_line), patience) == -signal.SIGKILL


def _traced(act: Act, code: Sequence[str], at_line: AtLine) -> None:
    number = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal number
        name = str(frame.f_globals.get("__name__", ""))
        if not any(name == one or name.startswith(f"{one}.") for one in code):
            return None
        if event == "line":
            at_line(number, f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            number += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)


def _ended(work: Callable[[], None], patience: float) -> int:
    """Do the work in a child process, and return how it ended. The child does nothing else, also at its end."""
    with warnings.catch_warnings():
        # Python warns that threads of the parent do not exist in the child. The child needs none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = _FAILED
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    until = time.monotonic() + patience
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise BrokenPromise(
                "a call in a child process",
                f"it has not ended after {patience} s",
                "make the backend work in a process without the threads of its parent, or allow more patience",
            )
        time.sleep(_LOOK_SECONDS)
