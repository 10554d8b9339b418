# SPDX-License-Identifier: Apache-2.0
"""The library that the hardware process opens is that of the installation."""

from pathlib import Path

from dra_driver.backends.nvidia.hardware.find import Finder
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml.node import OPERATOR, MockNode


def test_the_library_of_the_driver_root_is_found(tmp_path: Path) -> None:
    facts = machine.node(boards.A100_40)
    node = MockNode(tmp_path, facts, layout=OPERATOR)
    find = Finder(str(tmp_path), "")
    assert find().installation == node.installation
    assert find().library == str(node.library.resolve())
    node.become(facts, libraries=False)
    assert find().library == ""
