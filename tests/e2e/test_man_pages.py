# SPDX-License-Identifier: Apache-2.0
"""The man pages are troff that groff reads without a warning. tests/packaging compares their text with the command line."""

import subprocess
from pathlib import Path

import pytest

from hack.testbed.onenode import preflight

pytestmark = pytest.mark.real
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "man"
SECONDS = 60


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_groff_finds_nothing_wrong(path: Path) -> None:
    preflight.require()
    command = ["groff", "-man", "-ww", "-z", "-Tutf8", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
