# SPDX-License-Identifier: Apache-2.0
"""A deadline for a whole run of tests. pytest has one for each test; this one also ends a run in which no test runs any more."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

DUMPING_SECONDS = 30


def run_within(seconds: float, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a command and return its exit code. When the time is over, its processes say where they stand, and end.

    On SIGABRT pytest writes the stack of every thread (faulthandler): in its own process, and in the workers of
    pytest-xdist, which are its children.
    """
    with subprocess.Popen(command, cwd=cwd, env=env) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"not finished after {seconds:g} s: {' '.join(command)}", file=sys.stderr)
            return abort(process)


def abort(process: subprocess.Popen[bytes]) -> int:
    """End the children of a process and then the process with SIGABRT, and return its exit code.

    One after the other: they write to the same file, and their lines would be mixed.
    """
    for pid in _children(process.pid):
        _abort_child(pid)
    process.send_signal(signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(DUMPING_SECONDS)
    process.kill()
    return process.wait()


def _abort_child(pid: int) -> None:
    """End a process that somebody else waits for, and wait until it has written what it has to say."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGABRT)
            select.select([handle], [], [], DUMPING_SECONDS)
        finally:
            os.close(handle)


def _children(pid: int) -> list[int]:
    """Return the processes that `pid` started and that still run. Without /proc (not Linux) there are none."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, children.read_text().split())
    return found
