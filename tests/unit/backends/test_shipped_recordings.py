# SPDX-License-Identifier: Apache-2.0
"""The recordings that the driver brings are what hack/generate-recordings writes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_recordings_are_fresh() -> None:
    command = (sys.executable, str(ROOT / "hack" / "generate-recordings"), "--check")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
