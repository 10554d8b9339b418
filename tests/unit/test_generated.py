# SPDX-License-Identifier: Apache-2.0
"""What is generated and kept in the tree is what its sources say."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("generator", ["generate-protos", "generate-docs"])
def test_generated_files_are_fresh(generator: str) -> None:
    answer = subprocess.run(
        [sys.executable, str(ROOT / "hack" / generator), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (0, "")
