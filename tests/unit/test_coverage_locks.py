# SPDX-License-Identifier: Apache-2.0
"""Coverage goes on after a signal handler that raises, wherever the signal came."""

import os
import subprocess
import sys
from pathlib import Path

INTERRUPTED = """
import signal

class Over(BaseException): pass

def over(*_):
    raise Over

def measured(): pass

signal.signal(signal.SIGALRM, over)
for number in range(1000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + number * 1e-7)
        while True:
            measured()
    except Over:
        pass
print("done")
"""
RULES = """
[run]
data_file = {folder}/data
include = {folder}/*
plugins = hack.suite.coverage_locks

"""


def test_a_handler_that_raises_leaves_no_lock_taken(tmp_path: Path) -> None:
    script, rules = tmp_path / "interrupted.py", tmp_path / "rules"
    script.write_text(INTERRUPTED)
    rules.write_text(RULES.format(folder=tmp_path))
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={rules}", str(script)]
    outside = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    done = subprocess.run(
        command, env=outside, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
