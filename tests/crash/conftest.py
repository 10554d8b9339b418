# SPDX-License-Identifier: Apache-2.0
"""A node whose driver writes every file that it can write."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import Stage
from tests.support.stages import a_stage


@pytest.fixture
def node() -> Iterator[Stage]:
    """A node without a running driver; claims get metadata files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=("v1",)) as api:
        found = a_stage(Path(root), api, "--device-metadata", "files")
        yield found
        found.close()
