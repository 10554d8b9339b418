# SPDX-License-Identifier: Apache-2.0
"""A folder whose socket paths are short enough for the kernel; pytest's own are not."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
