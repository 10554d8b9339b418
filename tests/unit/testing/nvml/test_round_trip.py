# SPDX-License-Identifier: Apache-2.0
"""The hardware process finds on a mock node exactly the facts that the node was made of. Needs a C compiler."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends import recording
from dra_driver.backends.nvidia.child import Child, command
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.facts import HardwareEvent, Node, Process
from dra_driver.errors import DriverError
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
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
NODES |= {
    f"recording-{path.stem}": msgspec.convert(recording.read(path).facts, type=Node)
    for path in (Path(recording.__file__).parent / "recordings").glob("*.json")
    if recording.read(path).backend == "nvidia"
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


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path / "control")


@pytest.fixture
def process(tmp_path: Path, control: Control) -> Iterator[HardwareProcess]:
    paths = {"control": control.path, "state": control.state, "dev": tmp_path / "host/dev"}
    MockNode(
        tmp_path / "host",
        H100S,
        library=build.library(H100S, **paths),
        nvidia_smi=build.nvidia_smi(),
    )
    with hardware(tmp_path / "host") as one:
        yield one


H100S = machine.node(boards.H100, 3, mig={2: "3g.40gb 1g.10gb"})
UUIDS = [gpu.uuid for gpu in H100S.gpus]


def test_a_scan_and_a_refresh_cost_few_calls_of_each_gpu(
    process: HardwareProcess, control: Control
) -> None:
    control.count_calls()
    process.look()
    for index, gpu in enumerate(H100S.gpus):
        devices = gpu.mig.devices if gpu.mig else ()
        tables = 36 if index == 0 else 0  # the MIG profiles, once per product
        allowed = 45 + 2 * len(gpu.nvlinks) + 7 * len(devices) + tables
        assert 0 < control.calls(gpu=index).total() <= allowed
    control.forget_calls()
    process.look()
    assert [control.calls(gpu=index).total() for index in range(3)] == [5, 5, 5]


def test_modes_are_set_by_the_library_and_by_nvidia_smi(
    process: HardwareProcess, control: Control
) -> None:
    process.look()
    process.set_compute_mode(UUIDS[0], 3)
    process.set_time_slice(UUIDS[1], 2)
    assert control.compute_mode(UUIDS[0]) == 3
    assert control.time_slice(UUIDS[1]) == 2
    control.fail("mockSetTimeSlice", error=4)
    with pytest.raises(DriverError, match=r"exit code 4: .*Insufficient Permissions"):
        process.set_time_slice(UUIDS[1], 1)
    assert control.time_slice(UUIDS[1]) == 2


def test_processes_are_those_of_the_gpu_or_of_the_mig_device(
    process: HardwareProcess, control: Control
) -> None:
    process.look()
    one = Process(pid=4711, used_memory=1 << 30)
    other = Process(pid=12, used_memory=1 << 20, gpu_instance=1, compute_instance=0)
    control.add_process(0, one)
    control.add_process(2, other)
    assert H100S.gpus[2].mig
    migs = [device.uuid for device in H100S.gpus[2].mig.devices]
    assert process.processes(UUIDS[0]) == (one,)
    assert process.processes(UUIDS[1]) == ()
    assert [process.processes(uuid) for uuid in migs] == [(other,), ()]


def test_a_lost_gpu_costs_itself_and_comes_back(process: HardwareProcess, control: Control) -> None:
    assert not any(gpu.problem for gpu in process.look().gpus)
    control.lost(1)
    gpus = process.look().gpus
    assert [bool(gpu.problem) for gpu in gpus] == [False, True, False]
    assert gpus[1].problem_code == 15
    control.restore("lost")
    assert process.look().gpus == H100S.gpus


def test_a_driver_that_is_unloaded_and_comes_back_is_found_again(
    process: HardwareProcess, control: Control
) -> None:
    process.look()
    control.unloaded()
    assert not process.look().gpus
    assert process.look().problem
    control.restore("unloaded")
    assert process.look().gpus == H100S.gpus


def test_an_event_reaches_the_driver(process: HardwareProcess, control: Control) -> None:
    process.look()
    stop = threading.Event()
    events: queue.Queue[object] = queue.Queue()

    def follow() -> None:
        for event in process.events(stop):
            events.put(event)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while events.empty() and time.monotonic() < deadline:
            control.xid(1, 79)  # those before the process listens are nobody's
            time.sleep(0.2)
        assert events.get(timeout=1) == HardwareEvent(uuid=UUIDS[1], type=8, data=79)
    finally:
        stop.set()
        thread.join(timeout=20)


def test_a_gpu_that_hangs_costs_itself_and_the_process_is_replaced(
    process: HardwareProcess, control: Control
) -> None:
    process.look()
    control.hang("nvmlDeviceGetTemperature", 1)
    gpus = process.look().gpus
    assert [bool(gpu.problem) for gpu in gpus] == [False, True, False]
    assert gpus[1].problem_code is None
    assert gpus[0] == H100S.gpus[0]
    assert process.processes(UUIDS[0]) == ()
