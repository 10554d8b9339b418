# SPDX-License-Identifier: Apache-2.0
"""What does the hardware process cost: calls of NVIDIA's library, memory, and processor time while nobody asks?

The library is the one of dra_driver/testing/nvml, made by the system's compiler (`cc`), with 1 ms in each call. It counts the calls; that is
exact, and the same on each machine. Memory is what there would not be without the hardware process: of the child, and of the two
processes of the container together.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from dra_driver.backends.nvidia.child import Child, command
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.facts import Gpu
from dra_driver.backends.nvidia.link import Link, Socket
from dra_driver.errors import Temporary
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode
from hack.bench.cost import installed
from hack.bench.cost.bed import Context
from hack.bench.cost.report import Answer, Table, Target

FIRST_LIMIT, REFRESH_LIMIT, MEMORY_LIMIT_MIB, IDLE_LIMIT_MS = 45, 5, 20.0, 10.0
DELAY_MS = 1
LOOKS = 200
PER_LINK, PER_MIG_DEVICE, PER_TABLE = 2, 7, 2 * 18
FACTS = machine.node(boards.H100, 8, mig={7: "3g.40gb 2g.20gb 1g.10gb 1g.10gb"})
TICK_MS = 10.0


@dataclass(frozen=True, slots=True)
class Bed:
    """A mock node, its library's control, and a way to ask the hardware process."""

    node: MockNode
    control: Control
    hardware: HardwareProcess
    processes: Callable[[], list[int]]


def measure(context: Context) -> Answer:
    """Calls of the child; memory and idleness of both kinds of process."""
    with _bed(_child) as bed:
        calls, rows = _calls(bed)
    seconds = 5.0 if context.quick else 60.0
    with _bed(_child) as bed:
        child = _idle(bed, seconds)
    with _bed(_container) as bed:
        container = _idle(bed, seconds)
    return Answer(
        (
            *calls,
            Target("own memory of the child after looks", child[0], MEMORY_LIMIT_MIB, "MiB"),
            Target(
                "own memory of the container's two processes", container[0], MEMORY_LIMIT_MIB, "MiB"
            ),
            Target(
                f"processor time in {seconds:.0f} s without a question, child",
                child[1],
                IDLE_LIMIT_MS,
                "ms",
            ),
            Target(
                f"processor time in {seconds:.0f} s without a question, container",
                container[1],
                IDLE_LIMIT_MS,
                "ms",
            ),
        ),
        (
            Table(
                f"Calls of the library for each GPU, eight H100, with {DELAY_MS} ms in each call:",
                ("look", "calls", "seconds of the whole look"),
                rows,
            ),
        ),
    )


def _calls(bed: Bed) -> tuple[tuple[Target, ...], tuple[tuple[str, ...], ...]]:
    bed.control.count_calls()
    bed.control.delay(DELAY_MS)
    first, first_seconds = _look(bed)
    counted = {gpu.index: sum(bed.control.calls(gpu=gpu.index).values()) for gpu in first}
    tables = {0, 7}  # the first GPU without MIG, and the first one with it
    net = max(
        counted[gpu.index] - _on_top(gpu) - PER_TABLE * (gpu.index in tables) for gpu in first
    )
    bed.control.forget_calls()
    _, refresh_seconds = _look(bed)
    refresh = max(sum(bed.control.calls(gpu=gpu.index).values()) for gpu in first)
    return (
        Target("calls for a GPU in a first look, without links and MIG", net, FIRST_LIMIT),
        Target("calls for a GPU in a refresh", refresh, REFRESH_LIMIT),
    ), (
        ("first, with links, MIG devices and tables", _range(counted), f"{first_seconds:.2f}"),
        ("refresh", str(refresh), f"{refresh_seconds:.2f}"),
    )


def _range(counted: dict[int, int]) -> str:
    return f"{min(counted.values())} to {max(counted.values())}"


def _on_top(gpu: Gpu) -> int:
    devices = () if gpu.mig is None else gpu.mig.devices
    return PER_LINK * len(gpu.nvlinks) + PER_MIG_DEVICE * len(devices)


def _look(bed: Bed) -> tuple[tuple[Gpu, ...], float]:
    begun = time.perf_counter()
    gpus = bed.hardware.look().gpus
    return gpus, time.perf_counter() - begun


def _idle(bed: Bed, seconds: float) -> tuple[float, float]:
    """MiB and milliseconds: after many looks, with somebody who listens to events."""
    bed.hardware.look()
    stop = Event()
    listening = Thread(target=lambda: list(bed.hardware.events(stop)), daemon=True)
    listening.start()
    for _ in range(LOOKS):
        bed.hardware.look()
    before = _ticks(bed.processes())
    time.sleep(seconds)
    idle = (_ticks(bed.processes()) - before) * TICK_MS
    memory = sum(map(_own_kib, bed.processes())) / 1024
    stop.set()
    listening.join()
    return memory, idle


@contextmanager
def _bed(
    start: Callable[[Path, Path], Iterator[tuple[Link, Callable[[], list[int]]]]],
) -> Iterator[Bed]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        control = Control(folder / "control")
        library = build.library(FACTS, control=control.path, state=control.state)
        node = MockNode(folder / "host", FACTS, library=library)
        with contextmanager(start)(folder, node.folder) as (link, processes):
            yield Bed(node, control, HardwareProcess(link), processes)


def _child(_: Path, host: Path) -> Iterator[tuple[Link, Callable[[], list[int]]]]:
    child = Child(command(str(host), ""))
    try:
        yield child, lambda: _children_of("self")
    finally:
        child.close()


def _container(folder: Path, host: Path) -> Iterator[tuple[Link, Callable[[], list[int]]]]:
    path = str(folder / "socket")
    program = (str(Path(sys.executable).with_name("dra-driver")), "hardware")
    command_line = (*program, "--socket", path, "--host-root", str(host))
    with subprocess.Popen(command_line, env=installed.environment()) as first:
        try:
            link = Socket(path)
            _wait_for(link)
            yield link, lambda: [first.pid, *_children_of(first.pid)]
        finally:
            first.send_signal(signal.SIGTERM)


def _wait_for(link: Socket) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            link.connect().socket.close()
        except Temporary:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _children_of(pid: int | str) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _own_kib(pid: int) -> int:
    """Memory that no program file has; what the two processes of the container share counts half for each. And pages of files that
    nobody else reads.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = ("Pss_Anon:", "Private_Clean:")
    return sum(int(line.split()[1]) for line in lines if line.startswith(own))


def _ticks(pids: list[int]) -> int:
    """User and system time, in ticks of 10 ms."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields)
