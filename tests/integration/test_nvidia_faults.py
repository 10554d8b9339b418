# SPDX-License-Identifier: Apache-2.0
"""Faults of the mock library, through a real hardware process, become taints of the right devices, and go. Needs a C compiler."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.child import link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.health import MAX_HOLD_SECONDS
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode
from dra_driver.testing.stage import wait_for

pytestmark = pytest.mark.real

FACTS = machine.node(boards.H100, 2, mig={1: "1g.10gb 1g.10gb"})
FIRST_PART = FACTS.gpus[1].mig.devices[0] if FACTS.gpus[1].mig else None
WHOLE, PART, OTHER_PART = "gpu-0", "gpu-1-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-1"

Fault = Callable[[Control], None]


class Node:
    """A backend on a mock node. Its clock stands still until a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.control = Control(folder / "control")
        library = build.library(FACTS, control=self.control.path, state=self.control.state)
        files = MockNode(folder / "host", FACTS, library=library)
        self.now = 1e6
        options = NvidiaOptions(host_root=str(files.folder))
        self.hardware = HardwareProcess(link_of(options))
        self.backend = NvidiaBackend(
            BackendContext("node-1", options),
            hardware=self.hardware,
            sysfs=files.folder / "sys",
            clock=lambda: self.now,
        )
        self.stop = Event()
        self.thread = Thread(target=lambda: list(self.backend.watch(self.stop)))
        self.thread.start()

    def taints(self) -> dict[str, list[str]]:
        """The taints of the devices that have some."""
        return {
            device.name: [f"{one.key.partition('/')[2]}={one.value}" for one in device.api.taints]
            for device in self.backend.scan().devices
            if device.api.taints
        }

    def errors(self) -> set[str]:
        """The names of the errors that devices reported until now."""
        return {name for device in self.backend.scan().devices for name in device.errors}

    def gets_well(self) -> None:
        """Wait until a long time, in which nothing was wrong, has taken all taints away."""

        def is_well() -> bool:
            self.now += MAX_HOLD_SECONDS
            return not self.taints()

        wait_for(is_well, "the recovery")

    def close(self) -> None:
        self.stop.set()
        self.hardware.close()
        self.thread.join(10)
        self.hardware.close()  # the thread may have started it anew


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lambda control: control.recovery_action(0, 2), {WHOLE: ["recovery-action=node-reboot"]}),
        (lambda control: control.recovery_action(0, 9), {WHOLE: ["recovery-action=9"]}),
        (lambda control: control.set(0, temperature=95), {WHOLE: ["temperature=over-limit"]}),
        (lambda control: control.set(0, rows_failed=1), {WHOLE: ["memory=row-remap-failed"]}),
        (lambda control: control.set(0, rows_pending=1), {WHOLE: ["memory=row-remap-pending"]}),
        (
            lambda control: control.fabric(0, state=3, summary=3),
            {WHOLE: ["fabric=limited-capacity"]},
        ),
        (lambda control: control.lost(0), {WHOLE: ["lost=no-answer"]}),
        (
            lambda control: control.fail("nvmlDeviceGetMemoryInfo*", 0, error=999),
            {WHOLE: ["memory=query-failed"]},
        ),
        (
            lambda control: control.lost(1),
            {PART: ["lost=no-answer"], OTHER_PART: ["lost=no-answer"]},
        ),
    ],
)
def test_what_a_look_finds_is_a_taint_of_its_device_and_goes(node: Node, fault: Fault, expected):
    assert node.taints() == {}
    fault(node.control)
    assert node.taints() == expected
    node.control.clear()
    node.gets_well()


@pytest.mark.parametrize(
    ("gpu", "code", "part", "expected"),
    [
        (0, 48, None, {WHOLE: ["xid=48"]}),
        (0, 4711, None, {WHOLE: ["xid=4711"]}),
        (0, 31, None, {}),
        (1, 46, FIRST_PART, {PART: ["xid=46"]}),
        (1, 95, None, {PART: ["xid=95"], OTHER_PART: ["xid=95"]}),
    ],
)
def test_what_an_event_tells_is_a_taint_of_its_device_and_goes(
    node: Node, gpu, code, part, expected
):
    def reported() -> bool:
        node.control.xid(gpu, code, mig=part)  # again: an event before the stream began is lost
        return f"xid-{code}" in node.errors()

    wait_for(reported, "the event")
    assert node.taints() == expected
    node.gets_well()
