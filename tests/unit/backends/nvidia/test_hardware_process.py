# SPDX-License-Identifier: Apache-2.0
"""The whole hardware process, on a library that the system's compiler made: what it costs, and what each fault costs."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread

import pytest

from dra_driver.backends.nvidia import child
from dra_driver.backends.nvidia.child import Child, command
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.facts import HardwareEvent, Node, Process
from dra_driver.backends.nvidia.hardware import wire
from dra_driver.errors import Temporary
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import OPERATOR, MockNode

pytestmark = pytest.mark.real

MOST_MEMORY = 20 * 1024  # KiB
IDLE_SECONDS = 3.0
FACTS = machine.node(boards.H100, 4, mig={3: "3g.40gb 2g.20gb 1g.10gb"})
OLDER, NEWER = machine.R550, machine.R580


class Bed:
    """A node of four GPUs and its hardware process."""

    def __init__(self, folder: Path, facts: Node = FACTS) -> None:
        self.control = Control(folder / "control")
        self.node = MockNode(
            folder / "host",
            facts,
            layout=OPERATOR,
            library=self.library(facts),
            nvidia_smi=build.nvidia_smi(),
        )
        self.child = Child(command(str(self.node.folder), ""))
        self.hardware = HardwareProcess(self.child, grace=1.0)
        self.uuids = [gpu.uuid for gpu in facts.gpus]

    def library(self, facts: Node) -> Path:
        return build.library(facts, control=self.control.path, state=self.control.state)

    @property
    def pid(self) -> int:
        running = self.child._keeper.running()
        assert isinstance(running, child._Process)
        return running.process.pid

    def problems(self) -> set[int]:
        return {gpu.index for gpu in self.hardware.look().gpus if gpu.problem}

    def calls(self, gpu: int) -> int:
        return sum(self.control.calls(gpu=gpu).values())


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.child.close()


class Listening:
    """Listens for events on a thread. An event is caused again and again: only a set that is registered already gets it."""

    def __init__(self, bed: Bed) -> None:
        self.stop = Event()
        self._got: Queue[HardwareEvent | None] = Queue()
        self._thread = Thread(target=self._listen, args=(bed.hardware,), daemon=True)
        self._thread.start()

    def _listen(self, hardware: HardwareProcess) -> None:
        for event in hardware.events(self.stop):
            self._got.put(event)

    def wait_for(self, cause: Callable[[], None]) -> HardwareEvent | None:
        """The next event."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            cause()
            try:
                event = self._got.get(timeout=0.5)
            except Empty:
                continue
            while not self._got.empty():
                self._got.get()
            return event
        raise AssertionError("no event")

    def close(self) -> None:
        self.stop.set()
        self._thread.join(20)


@pytest.fixture
def listening(bed: Bed) -> Iterator[Listening]:
    bed.hardware.look()
    made = Listening(bed)
    yield made
    made.close()


def own_memory(pid: int) -> int:
    """KiB that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = ("Private_Clean:", "Private_Dirty:")
    return sum(int(line.split()[1]) for line in lines if line.startswith(private))


def processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_first_look_and_a_refresh_stay_within_their_calls(bed: Bed) -> None:
    bed.control.count_calls()
    bed.control.delay(1)
    first = bed.hardware.look().gpus
    for gpu in first:
        devices = 0 if gpu.mig is None else len(gpu.mig.devices)
        tables = 18 * 2 if gpu.index in (0, 3) else 0  # read once without MIG, once with it
        links = 2 * len(gpu.nvlinks)
        assert bed.calls(gpu.index) <= 45 + links + 7 * devices + tables
    bed.control.forget_calls()
    begun = time.monotonic()
    bed.hardware.look()
    assert time.monotonic() - begun < 5
    assert all(bed.calls(gpu.index) <= 5 for gpu in first)


def test_the_process_costs_less_than_20_mib_and_no_processor_while_nobody_asks(
    bed: Bed, listening: Listening
) -> None:
    listening.wait_for(lambda: bed.control.xid(0, 31))
    for _ in range(20):
        bed.hardware.look()
    before = processor_ticks(bed.pid)
    time.sleep(IDLE_SECONDS)
    assert processor_ticks(bed.pid) - before <= 1  # 10 ms
    assert own_memory(bed.pid) < MOST_MEMORY


def test_a_hang_that_holds_a_lock_of_the_whole_process_costs_one_gpu(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bed.hardware.look().gpus
    monkeypatch.setitem(wire.DEADLINES, "gpu", 1.0)
    bed.control.hang("nvmlDeviceGetTemperature", 1)
    gpus = bed.hardware.look().gpus
    assert [bool(gpu.problem) for gpu in gpus] == [False, True, False, False]
    assert gpus[1].uuid == before[1].uuid
    begun = time.monotonic()
    assert bed.problems() == {1}  # not asked again for a while
    assert time.monotonic() - begun < 1


def test_a_hang_at_the_start_costs_a_look(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wire.DEADLINES, "node", 1.0)
    bed.control.hang("nvmlInitWithFlags")
    with pytest.raises(Temporary, match="did not answer `node`"):
        bed.hardware.look()
    bed.control.clear()
    monkeypatch.undo()
    assert bed.problems() == set()


@pytest.mark.parametrize("fault", ["lost", "fallen_off_bus"])
def test_a_gpu_that_is_lost_costs_itself_until_it_is_back(fault: str, bed: Bed) -> None:
    bed.hardware.look()
    getattr(bed.control, fault)(2)
    gpus = bed.hardware.look().gpus
    assert [gpu.problem_code for gpu in gpus] == [None, None, 15, None]
    bed.control.restore(fault, 2)
    assert bed.problems() == set()


def test_a_gpu_that_is_not_counted_any_more_is_gone(bed: Bed) -> None:
    bed.hardware.look()
    bed.control.vanished(1)
    os.kill(bed.pid, signal.SIGKILL)
    gpus = bed.hardware.look().gpus
    assert [gpu.uuid for gpu in gpus] == [bed.uuids[0], bed.uuids[2], bed.uuids[3]]


@pytest.mark.parametrize(
    ("fault", "said"), [("mismatch", "different versions"), ("no_permission", "privileged")]
)
def test_a_library_that_does_not_open_is_said_and_opened_when_it_does(
    fault: str, said: str, bed: Bed
) -> None:
    getattr(bed.control, fault)()
    found = bed.hardware.look()
    assert said in found.problem
    assert len(found.pci) == 4
    bed.control.clear()
    assert len(bed.hardware.look().gpus) == 4


def test_the_kernel_driver_is_replaced_under_the_process(bed: Bed) -> None:
    """As an upgrade does: let go, unload, other libraries, another module."""
    assert bed.hardware.look().system.driver_version == NEWER.version
    bed.hardware.let_go()
    bed.node.become(bed.node.facts, module=False)
    found = bed.hardware.look()
    assert "the kernel module nvidia is not loaded" in found.problem
    waiting = bed.pid
    bed.hardware.look()
    assert bed.pid == waiting
    older = machine.node(boards.H100, 4, driver=OLDER)
    bed.node.become(older, library=bed.library(older), module=True)
    assert bed.hardware.look().system.driver_version == OLDER.version
    bed.node.become(bed.node.facts, library=bed.library(FACTS))  # without a word before
    assert bed.problems() == set()


def test_an_old_library_without_symbols_costs_their_facts(tmp_path: Path) -> None:
    made = Bed(tmp_path)
    without = (
        *("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGpuFabricInfoV"),
        *("nvmlDeviceGetModuleId", "nvmlEventSetWait_v2"),
    )
    old = build.library(FACTS, control=made.control.path, without=without)
    made.node.become(FACTS, library=old)
    try:
        gpu = made.hardware.look().gpus[0]
    finally:
        made.child.close()
    assert gpu.memory is not None
    assert gpu.memory.reserved is None
    assert gpu.module_id is None
    assert gpu.uuid == made.uuids[0]
    assert not gpu.problem


def test_modes_are_set_and_put_back(bed: Bed) -> None:
    uuid = bed.uuids[0]
    bed.hardware.look()
    bed.hardware.set_time_slice(uuid, 2)
    bed.hardware.set_compute_mode(uuid, 3)
    assert bed.hardware.look().gpus[0].compute_mode == 3
    bed.hardware.set_time_slice(uuid, 0)
    bed.hardware.set_compute_mode(uuid, 0)
    assert bed.control.journal() == [
        *(f"time-slice {uuid} 2", f"compute-mode {uuid} 3"),
        *(f"time-slice {uuid} 0", f"compute-mode {uuid} 0"),
    ]


def test_processes_are_told_of_a_gpu_and_of_a_mig_device(bed: Bed) -> None:
    mig = FACTS.gpus[3].mig
    assert mig is not None
    device = mig.devices[0]
    bed.hardware.look()
    bed.control.add_process(0, Process(pid=4711, used_memory=3 << 30))
    of_mig = Process(
        pid=4712, used_memory=1 << 30, gpu_instance=device.gpu_instance, compute_instance=0
    )
    bed.control.add_process(3, of_mig)
    assert [one.pid for one in bed.hardware.processes(bed.uuids[0])] == [4711]
    assert [one.pid for one in bed.hardware.processes(device.uuid)] == [4712]
    bed.control.remove_process(4711)
    assert bed.hardware.processes(bed.uuids[0]) == ()


def test_events_go_on_in_the_next_process(bed: Bed, listening: Listening) -> None:
    bed.hardware.look()
    event = listening.wait_for(lambda: bed.control.xid(1, 43))
    assert event is not None
    assert (event.uuid, event.data) == (bed.uuids[1], 43)
    os.kill(bed.pid, signal.SIGKILL)
    bed.hardware.look()
    assert listening.wait_for(lambda: None) is None  # look again
    bed.hardware.look()
    assert listening.wait_for(lambda: None) is None  # what happened in between
    again = listening.wait_for(lambda: bed.control.xid(2, 79))
    assert again is not None
    assert (again.uuid, again.data) == (bed.uuids[2], 79)
