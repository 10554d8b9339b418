# SPDX-License-Identifier: Apache-2.0
"""The hardware process finds on a mock node exactly the facts that the node was made of. Needs a C compiler."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.nvidia.child import Child, command
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.node import UBUNTU, MockNode

pytestmark = pytest.mark.real

MIGS = {
    "a30": "2g.12gb 1g.6gb",
    "a100-40": "3g.20gb:1c+2c 2g.10gb 1g.5gb",
    "h100": "3g.40gb 1g.20gb 1g.10gb+me",
    "rtx-pro-6000": "2g.48gb 1g.24gb+gfx",
}
NODES = {name: machine.node(board, 2) for name, board in boards.BOARDS.items()} | {
    f"{name}-mig": machine.node(boards.BOARDS[name], 2, mig={1: layout})
    for name, layout in MIGS.items()
}
NODES |= {
    "h100-old": machine.node(boards.H100, driver=machine.R550),
    "t4-old": machine.node(boards.T4, driver=machine.R470),
    "h100-cc": machine.node(boards.H100, cc=True),
    "none": Node(),
}


@contextmanager
def hardware(folder: Path) -> Iterator[HardwareProcess]:
    process = HardwareProcess(Child(command(str(folder), "")))
    try:
        yield process
    finally:
        process.close()


@pytest.mark.parametrize("facts", NODES.values(), ids=NODES)
def test_a_look_at_a_mock_node_gives_the_facts_that_it_was_made_of(
    tmp_path: Path, facts: Node
) -> None:
    node = MockNode(
        tmp_path, facts, layout=UBUNTU, library=build.library(facts, dev=tmp_path / "dev")
    )
    with hardware(tmp_path) as process:
        look = process.look()
        for found, gpu in zip(look.gpus, facts.gpus, strict=True):
            assert found == gpu
        system = msgspec.structs.replace(look.system, memory_total=facts.system.memory_total)
        assert system == facts.system
        assert look.mig_profiles == node.facts.mig_profiles
        assert look.pci == facts.pci
        assert process.look() == look
