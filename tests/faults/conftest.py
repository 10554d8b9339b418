# SPDX-License-Identifier: Apache-2.0
"""The node on which everything can be broken."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.testing.fake_api import FakeApi
from tests.faults.bed import Bed


@pytest.fixture
def bed(program: bool) -> Iterator[Bed]:
    """A node without a running driver. At the end every promise must hold, as far as the driver still runs."""
    # pytest's own folders have names too long for unix sockets.
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        found = Bed(Path(root), FakeApi(versions=("v1",)).__enter__(), program=program)
        try:
            yield found
            if found.is_running():
                found.settles()
        finally:
            found.close()
