# SPDX-License-Identifier: Apache-2.0
"""What the mock library measures, through a real hardware process, also while a GPU hangs. Needs a C compiler."""

import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.child import link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.hardware import wire
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.backends.nvidia.usage import AGAIN_SECONDS
from dra_driver.services.sample_usage import SAMPLE_SECONDS
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode
from dra_driver.testing.stage import Stage
from tests.support.stages import a_stage

pytestmark = pytest.mark.real

FACTS = machine.node(boards.H100, 3, mig={2: "1g.10gb 1g.10gb"})
LATE_SECONDS = 22.0
FIRST, SECOND, PART = "gpu-0", "gpu-1", "gpu-2-mig-1g10gb-19-0"


class Node:
    """A backend on a mock node, whose devices were found."""

    def __init__(self, folder: Path) -> None:
        self.control = Control(folder / "control")
        library = build.library(FACTS, control=self.control.path, state=self.control.state)
        files = MockNode(folder / "host", FACTS, library=library)
        options = NvidiaOptions(host_root=str(files.folder))
        self.passed = 0.0
        self.hardware = HardwareProcess(link_of(options), grace=0.5)
        self.backend = NvidiaBackend(
            BackendContext("node-1", options),
            hardware=self.hardware,
            sysfs=files.folder / "sys",
            clock=lambda: time.monotonic() + self.passed,
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
    assert node.backend.usage() == {}  # nobody is asked for a while
    node.passed += AGAIN_SECONDS[0]
    node.control.clear()
    node.control.hang("nvmlDeviceGetUtilizationRates", 1)
    found = node.backend.usage().keys()
    assert found >= {FIRST, PART}  # SECOND is asked last, and hangs again
    assert SECOND not in found


def values(stage: Stage, name: str) -> dict[str, float]:
    """What a scrape has of a metric, by device."""
    (port, *_) = re.findall(r'"event": "http".*?"port": (\d+)', stage.log())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    return {
        device: float(value)
        for device, value in re.findall(
            rf'^{name}{{.*?device="(.*?)".*}} (\S+)$', text, re.MULTILINE
        )
    }


def test_scrapes_go_on_while_the_driver_waits_for_a_gpu_that_hangs() -> None:
    ratio, age = "dra_driver_device_utilization_ratio", "dra_driver_device_sample_age_seconds"
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi() as api:
        control = Control(Path(root, "control"))
        library = build.library(FACTS, control=control.path, state=control.state)
        host = MockNode(Path(root, "host"), FACTS, library=library).folder
        hardware = ("--backend", "nvidia", "--backend-option", f"hostRoot={host}")
        stage = a_stage(Path(root), api, *hardware, "--http-address", "127.0.0.1:0")
        try:
            stage.start_registered()
            stage.wait_for(lambda: values(stage, ratio).keys() >= {FIRST, SECOND}, "samples")
            control.hang("nvmlDeviceGetUtilizationRates", 1)
            ages: set[float] = set()
            while max(ages, default=0.0) < LATE_SECONDS:
                stage.alive()
                shown = values(stage, age)
                assert FIRST in shown
                ages.add(shown[SECOND])
            # The driver waits for the GPU from its 15th second on. If scrapes waited, too, there were none in that time.
            assert len([one for one in ages if one > SAMPLE_SECONDS]) > 2
        finally:
            control.clear()
            stage.close()
