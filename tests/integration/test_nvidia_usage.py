# SPDX-License-Identifier: Apache-2.0
"""What the mock library measures, through a real hardware process, also while a GPU hangs. Needs a C compiler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.child import link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.hardware import wire
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode

pytestmark = pytest.mark.real

FACTS = machine.node(boards.H100, 3, mig={2: "1g.10gb 1g.10gb"})
FIRST, SECOND, PART = "gpu-0", "gpu-1", "gpu-2-mig-1g10gb-19-0"


class Node:
    """A backend on a mock node, whose devices were found."""

    def __init__(self, folder: Path) -> None:
        self.control = Control(folder / "control")
        library = build.library(FACTS, control=self.control.path, state=self.control.state)
        files = MockNode(folder / "host", FACTS, library=library)
        options = NvidiaOptions(host_root=str(files.folder))
        self.hardware = HardwareProcess(link_of(options), grace=0.5)
        self.backend = NvidiaBackend(
            BackendContext("node-1", options),
            hardware=self.hardware,
            sysfs=files.folder / "sys",
        )
        self.backend.scan()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.control.clear()
    made.hardware.close()


def test_the_values_of_gpus_and_partitions_arrive(node: Node) -> None:
    load = {"utilization": 75, "memory_utilization": 40, "power_mw": 512_300, "sm_clock_mhz": 1980}
    node.control.set(0, **load, temperature=68, clock_reasons=0x24, ecc_corrected=2)
    found = node.backend.usage()
    whole = found[FIRST]
    assert (whole.utilization_ratio, whole.memory_utilization_ratio) == (0.75, 0.4)
    assert (whole.power_watts, whole.temperature_celsius) == (512.3, 68)
    assert whole.clocks_hertz["sm"] == 1980e6
    assert {name for name, on in whole.throttled.items() if on} == {
        "sw_power_cap",
        "sw_thermal_slowdown",
    }
    assert whole.ecc_errors == {"corrected": 2, "uncorrected": 0}
    assert found[SECOND].utilization_ratio == 0.0
    part = found[PART]
    assert part.memory_total_bytes
    assert (part.utilization_ratio, part.power_watts, dict(part.ecc_errors)) == (None, None, {})


def test_a_gpu_that_hangs_costs_its_own_values_and_one_deadline(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wire.DEADLINES, "usage", 5.0)  # the process itself waits longer
    node.control.hang("nvmlDeviceGetUtilizationRates", 1)
    assert node.backend.usage().keys() == {FIRST}
    assert node.backend.usage().keys() >= {FIRST, PART}
    assert SECOND not in node.backend.usage()
