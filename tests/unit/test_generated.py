# SPDX-License-Identifier: Apache-2.0
"""The generated pages of docs/reference say what the code says; tests/unit/kubelet/test_protos.py asks the same of pb/."""

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).resolve().parents[2] / "hack" / "generate-docs"


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, str(GENERATOR), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "")
