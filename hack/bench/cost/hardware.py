# SPDX-License-Identifier: Apache-2.0
"""How much does the hardware process ask of NVIDIA's library, and what does it take itself?

Eight GPUs of the mock library (docs/mock-nvidia.md), each of whose calls takes one millisecond longer. A call on a GPU counts for that
GPU. MIG tables, which are read once per product, and two calls for each active link are on top of the first scan's figure.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_driver.backends.nvidia.child import MODULE, Child, command
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode
from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Times
from hack.bench.cost.node import resident_kib
from hack.bench.cost.report import Answer, Table, Target, times_table

GPUS = 8
SCAN_LIMIT, REFRESH_LIMIT = 45, 5
MEMORY_LIMIT_MIB, IDLE_LIMIT = 20, 0.01
KIB = 1024
FACTS = machine.node(boards.H100, GPUS)
MIG_TABLE = 18 + len(
    boards.H100.profiles
)  # a call for each kind of instance, and for the places of those that exist


def measure(context: Context) -> Answer:
    """Count the calls, then measure time, memory and processor time."""
    scan, refresh = _calls()
    first, again = Times("first look at 8 GPUs"), Times("later look")
    for _ in range(3 if context.quick else 10):
        with _hardware(delay_ms=1) as (process, _):
            first.begin_repeat()
            again.begin_repeat()
            first.add(_timed(process))
            for _ in range(5):
                again.add(_timed(process))
    memory, idle = _idle(5.0 if context.quick else 60.0)
    return Answer(
        (
            Target("calls of a GPU in the first scan", scan, SCAN_LIMIT),
            Target("calls of a GPU in a refresh", refresh, REFRESH_LIMIT),
            Target("memory of its own", memory / KIB, MEMORY_LIMIT_MIB, "MiB"),
            Target("processor time while it waits for events", idle * 100, IDLE_LIMIT * 100, "%"),
        ),
        (
            times_table(
                "With 1 ms in each call of the library, one thread, in turn:", (first, again)
            ),
            Table(
                "Memory of the process in MiB, after the looks:",
                ("of its own", "of it"),
                ((f"{memory / KIB:.1f}", "anonymous pages, Python and pynvml among them"),),
            ),
        ),
    )


def _calls() -> tuple[float, float]:
    """The most calls of one GPU: in the first scan without links and MIG tables, and in a refresh."""
    with _hardware() as (process, control):
        control.count_calls()
        process.look()
        links = {gpu.index: 2 * len(gpu.nvlinks) for gpu in FACTS.gpus}
        found = [control.calls(gpu=index).total() - links[index] for index in range(GPUS)]
        found[0] -= MIG_TABLE
        control.forget_calls()
        process.look()
        return max(found), max(control.calls(gpu=index).total() for index in range(GPUS))


def _idle(seconds: float) -> tuple[int, float]:
    """Its anonymous memory in KiB, and the part of one processor that it uses while a thread waits for events."""
    with _hardware() as (process, _):
        process.look()
        stop = threading.Event()
        thread = threading.Thread(target=lambda: list(process.events(stop)), daemon=True)
        thread.start()
        time.sleep(2.0)
        (pid,) = _children()
        before = _processor_seconds(pid)
        time.sleep(seconds)
        used = _processor_seconds(pid) - before
        memory = resident_kib(pid, "RssAnon")
        stop.set()
        thread.join(timeout=10.0)
        return memory, used / seconds


@contextmanager
def _hardware(delay_ms: int = 0) -> Iterator[tuple[HardwareProcess, Control]]:
    with tempfile.TemporaryDirectory() as folder:
        host = Path(folder, "host")
        control = Control(Path(folder, "control"))
        library = build.library(FACTS, control=control.path, state=control.state, dev=host / "dev")
        MockNode(host, FACTS, library=library)
        if delay_ms:
            control.delay(delay_ms)
        process = HardwareProcess(Child(command(str(host), "")))
        try:
            yield process, control
        finally:
            process.close()


def _timed(process: HardwareProcess) -> float:
    begun = time.perf_counter()
    process.look()
    return time.perf_counter() - begun


def _children() -> list[int]:
    """The hardware processes that this process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid() and MODULE.encode() in words:
            found.append(int(path.name))
    return found


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
