# SPDX-License-Identifier: Apache-2.0
"""A run of tests that hangs ends, and says where it hung."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.testing.stage import wait_for
from hack.suite.deadline import abort, run_within

HANGS = """
import threading
from pathlib import Path

def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        stands_still()

def stands_still():
    Path("there").touch()
    threading.Event().wait(600)
"""


def test_the_exit_code_of_a_run_in_time_is_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit(5)"]
    assert run_within(600, command, cwd=tmp_path, env=os.environ) == 5


def test_a_run_that_does_not_end_in_time_is_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert run_within(0.1, command, cwd=tmp_path, env=os.environ) != 0
    assert "not finished after 0.1 s" in capfd.readouterr().err


def test_workers_that_hang_between_tests_say_where(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HANGS)
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider"]
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as file,
        subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file) as run,
    ):
        try:
            wait_for((tmp_path / "there").exists, "the worker stands still")
        finally:
            code = abort(run)
    assert code != 0
    assert "in stands_still" in errors.read_text()
