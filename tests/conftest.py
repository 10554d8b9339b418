# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that need a whole node."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.testing.fake_api import FakeApi
from tests.node_process import NodeProcess


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    """A node without a running driver; whatever runs at the end is ended."""
    # pytest's own folders have names too long for unix sockets.
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=("v1",)) as api:
        found = NodeProcess(Path(root), api)
        yield found
        found.close()
