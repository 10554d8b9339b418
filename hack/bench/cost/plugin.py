# SPDX-License-Identifier: Apache-2.0
"""What does the device plugin API cost: an Allocate call, a health change, a list of 1,000 units, and nothing to do?

The daemon is a process of its own. A device manager as in the tests plays the kubelet. The measure of a call is what nobody can do
without: a call that does nothing on a bare gRPC server with as many threads, and one small file forced to the same disk. At rest the kernel
counts how often each thread fell asleep: that is how often it woke up.
"""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from dra_driver.kubelet.plugin.service import THREADS
from hack.bench.cost import installed
from hack.bench.cost.bed import Context
from hack.bench.cost.bench_daemon import EXPECTED, EXPECTS, SCANNED
from hack.bench.cost.figures import Times, in_turn, ratio
from hack.bench.cost.node import Caller, filesystem_of, wait_for
from hack.bench.cost.plugin_node import GPUS, PluginNode
from hack.bench.cost.report import Answer, Table, Target, times_table

SHARES = 125
UNITS = GPUS * SHARES
GIVEN = 1_000
IN_A_ROW = 8
FLOOR_LIMIT, HEALTH_LIMIT_SECONDS, WAKES_LIMIT = 2.5, 0.1, 1.0
SETTLE_SECONDS = 5.0
# Where a call is at each failpoint: the time before it belongs to this part.
PARTS = {
    EXPECTS: "gRPC, the units, the row's lock, what was scanned",
    EXPECTED: "look at the checkpoint and list the pods' cgroups",
    "step.MarkStarted.before": "decide",
    "commit.started.before": "reserve",
    "commit.started.after": "commit Started",
    "step.ConfigureDevice.before": "to the thread that does the work",
    "step.ConfigureDevice.after": "let the backend set the device up, under its lock",
    "commit.prepared.before": "back to the call, make the CDI text",
    "commit.prepared.after": "commit Prepared",
    "step.WriteCdiSpec.after": "write the CDI file",
    "answered": "release the lock, log line, wake the lists, answer, gRPC",
}
# As the kernel shows them: 15 bytes.
PLUGIN_THREADS = ("plugin-", "device-plugin", "path")
BARE = Path(__file__).with_name("bare_server.py")


def measure(context: Context) -> Answer:
    """One loop for the calls; then the parts of a call, health and lists; then rest."""
    repeats, rounds, changes = (3, 10, 5) if context.quick else (7, 12, 15)
    seconds = 5.0 if context.quick else 30.0
    rest_targets, rest = _rest(seconds)
    with PluginNode(SHARES, marks=True) as node:
        health = _Health(node, changes)
        calls = _calls(node, 50 if context.quick else 100)
        lists = _lists(node)
        node.end()
        passed = json.loads((node.marks or node.root).read_text())
    health.look_at(passed)
    with ExitStack() as stack:
        whole, none, some = (stack.enter_context(PluginNode(n)) for n in (1, SHARES, 2 * SHARES))
        some.give_out(GIVEN)
        some.all_units = some.all_units[GIVEN:]
        bare = stack.enter_context(_bare(none.root))
        loop = _Loop(bare, whole, none, some)
        loop.run(repeats, rounds)
        disk = filesystem_of(none.state_dir)
    about = f"State on {disk}, CDI files on tmpfs; {repeats} repeats of {rounds} rounds, everything in turn in each round."
    return Answer(
        (*loop.targets, *health.targets, *rest_targets),
        (
            times_table(about, loop.times),
            _parts(passed, calls),
            times_table("125 of 1,000 units fall ill or get well:", health.times),
            lists,
            rest,
        ),
    )


@contextmanager
def _bare(folder: Path) -> Iterator[Caller]:
    """A bare server with as many threads as the plugin's."""
    path = folder / "bare.sock"
    command = (installed.python(), str(BARE), str(path), str(THREADS))
    with subprocess.Popen(command, env=installed.environment()) as process:
        caller = Caller(path)
        try:
            wait_for(path.exists, "the bare server")
            yield caller
        finally:
            caller.close()
            process.terminate()


class _Loop:
    """What is done in turn. The units of a call are free again before the next thing begins."""

    def __init__(self, bare: Caller, whole: PluginNode, none: PluginNode, some: PluginNode) -> None:
        self._bare = bare
        self._none = none
        self.empty = Times(f"empty call, bare server with {THREADS} threads")
        self.write = Times("2 KB forced to disk")
        self.floor = Times("empty call + 2 KB forced to disk")
        self.whole = Times(f"Allocate, {GPUS} whole GPUs in the list")
        self.none = Times(f"Allocate, {UNITS:,} units in the list, none given out")
        self.some = Times(f"Allocate, {2 * UNITS:,} units, {GIVEN:,} given out to as many pods")
        self.row = Times(f"one of {IN_A_ROW} calls in a row, {UNITS:,} units")
        self._actions: Sequence[Callable[[], None]] = (
            self._do_floor,
            lambda: _give_and_free(whole, self.whole),
            lambda: _give_and_free(none, self.none),
            lambda: _give_and_free(some, self.some),
            self._do_row,
        )

    @property
    def times(self) -> Sequence[Times]:
        """Everything that is timed."""
        return (
            *(self.empty, self.write, self.floor),
            *(self.whole, self.none, self.row, self.some),
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """The promise, and what is reported beside it."""
        floor = "(empty call + one 2 KB write with fsync)"
        return (
            Target(
                f"Allocate, {UNITS:,} units in the list ÷ {floor}, p50",
                ratio(self.none, self.floor),
                FLOOR_LIMIT,
            ),
            Target(f"the same with {GPUS} whole GPUs, p50", ratio(self.whole, self.floor), None),
            Target(f"the same, {IN_A_ROW} calls in a row, p50", ratio(self.row, self.floor), None),
            Target(
                f"with {GIVEN:,} given out of {2 * UNITS:,} ÷ with none of {UNITS:,}, p50",
                ratio(self.some, self.none),
                None,
            ),
        )

    def run(self, repeats: int, rounds: int) -> None:
        """One repeat more than is kept: the first is for caches and the processor's clock."""
        for repeat in range(repeats + 1):
            for times in self.times:
                if repeat == 1:
                    times.repeats.clear()
                times.begin_repeat()
            in_turn(self._actions, rounds)

    def _do_floor(self) -> None:
        call, write = self._bare.empty(), self._bare.write()
        self.empty.add(call)
        self.write.add(write)
        self.floor.add(call + write)

    def _do_row(self) -> None:
        made = [self._none.allocate() for _ in range(IN_A_ROW)]
        for seconds, _ in made:
            self.row.add(seconds)
        pods = [pod for _, pod in made]
        self._none.identify(pods)
        self._none.free(pods)


def _give_and_free(node: PluginNode, times: Times) -> None:
    seconds, pod = node.allocate()
    times.add(seconds)
    node.identify([pod])
    node.free([pod])


Passed = Sequence[tuple[str, float]]


def _calls(node: PluginNode, rounds: int) -> list[tuple[float, float]]:
    """When calls began and ended."""
    calls = []
    for _ in range(rounds):
        seconds, pod = node.allocate()
        ended = time.perf_counter()
        calls.append((ended - seconds, ended))
        node.identify([pod])
        node.free([pod])
    return calls


def _parts(passed: Passed, calls: Sequence[tuple[float, float]]) -> Table:
    spent: dict[str, list[float]] = {name: [] for name in PARTS}
    for begun, ended in calls:
        known = [(name, at) for name, at in passed if begun <= at <= ended and name in PARTS]
        for (_, before), (name, at) in pairwise([("", begun), *known, ("answered", ended)]):
            spent[name].append(at - before)
    whole = [ended - begun for begun, ended in calls]
    parts = [(PARTS[name], found) for name, found in spent.items() if found]
    rows = tuple(
        (
            what,
            f"{statistics.median(found) * 1000:.2f}",
            f"{statistics.fmean(found) * 1000:.2f}",
            f"{100 * sum(found) / sum(whole):.0f} %",
        )
        for what, found in (*parts, ("**together**", whole))
    )
    about = (
        f"Where the time of one Allocate goes, {UNITS:,} units in the list (shares are of the sum):"
    )
    return Table(about, ("part, in order", "p50 ms", "mean ms", "share"), rows)


class _Health:
    """GPUs that fall ill and get well."""

    def __init__(self, node: PluginNode, changes: int) -> None:
        self.total = Times("fault file written to list at the kubelet")
        self.driver = Times("of it after the scan")
        self._moments: list[tuple[float, float]] = []
        for number in range(changes):
            for fault, healthy in (
                (f"{{gpu-{number % GPUS}: {{unhealthy: hot}}}}", UNITS - SHARES),
                ("{}", UNITS),
            ):
                time.sleep(0.2 + 0.037 * (number % 7))  # at any moment between two looks
                begun = time.perf_counter()
                node.set_faults(fault)
                wait_for(lambda healthy=healthy: node.manager.healthy() == healthy, "the list")
                self._moments.append((begun, node.manager.arrived))

    def look_at(self, passed: Passed) -> None:
        """Take the times from what the daemon wrote down."""
        scans = [at for name, at in passed if name == SCANNED]
        for times in self.times:
            times.begin_repeat()
        for begun, arrived in self._moments:
            self.total.add(arrived - begun)
            self.driver.add(arrived - max(at for at in scans if at <= arrived))

    @property
    def times(self) -> tuple[Times, ...]:
        """Both."""
        return self.total, self.driver

    @property
    def targets(self) -> tuple[Target, ...]:
        """The driver's part has the target; the rest is the backend's own look at its file."""
        return (
            Target(
                "new list at the kubelet after the scan saw an ill device, p50",
                self.driver.quantile(0.5),
                HEALTH_LIMIT_SECONDS,
                "s",
            ),
            Target("the same, p99", self.driver.quantile(0.99), None, "s"),
            Target("from the change of the hardware on, p50", self.total.quantile(0.5), None, "s"),
        )


def _lists(node: PluginNode) -> Table:
    times = Times("list")
    times.begin_repeat()
    for _ in range(30):
        seconds, size = node.list_once()
        times.add(seconds)
    rows = (
        ("bytes of the message", f"{size:,}"),
        ("asked for, encoded and received, p50", f"{times.quantile(0.5) * 1000:.1f} ms"),
        ("the same, p99", f"{times.quantile(0.99) * 1000:.1f} ms"),
        (
            "start of the process to the first list at the kubelet",
            f"{node.listed_after:.2f} s",
        ),
    )
    return Table(f"A list of {UNITS:,} units:", ("", "found"), rows)


def _rest(seconds: float) -> tuple[tuple[Target, ...], Table]:
    """How often each thread wakes up, and for how long, while nothing happens: with nothing given out, and with eight units."""
    with PluginNode(SHARES) as node:
        time.sleep(SETTLE_SECONDS)
        idle = _watched(node.process.pid, seconds)
        node.give_out(GPUS)
        time.sleep(SETTLE_SECONDS)
        busy = _watched(node.process.pid, seconds)
    names = sorted({*idle, *busy})
    rows = tuple(
        (name, *(cell for found in (idle, busy) for cell in _cells(found.get(name))))
        for name in names
    )
    whole = 2 * seconds
    targets = []
    for what, found, limit in (
        ("none given out", idle, WAKES_LIMIT),
        (f"{GPUS} given out", busy, None),
    ):
        own = {name: one for name, one in found.items() if name.startswith(PLUGIN_THREADS)}
        most = max(own, key=lambda name: own[name][0])
        targets.append(
            Target(
                f"wake-ups a second of a thread of this API, most ({most}), {what}",
                own[most][0],
                limit,
            )
        )
        targets.append(
            Target(
                f"processor time of these threads in {whole:.0f} s, {what}",
                sum(one[1] for one in own.values()),
                None,
                "ms",
            )
        )
    table = Table(
        f"Threads at rest, {whole:.0f} s: wake-ups a second and processor time. The simulated backend reads its file ten times a second.",
        (
            "thread",
            "wake-ups/s, none given out",
            "ms",
            f"wake-ups/s, {GPUS} given out",
            "ms",
        ),
        rows,
    )
    return tuple(targets), table


def _cells(found: tuple[float, float] | None) -> tuple[str, str]:
    return ("", "") if found is None else (f"{found[0]:.2f}", f"{found[1]:.1f}")


def _watched(pid: int, seconds: float) -> dict[str, tuple[float, float]]:
    """For each thread wake-ups a second, over `seconds`, and milliseconds of the processor, over twice as long. Of threads with one name the
    busiest counts.
    """
    at = []
    for _ in range(2):
        at.append(_threads(pid))
        time.sleep(seconds)
    at.append(_threads(pid))
    found: dict[str, tuple[float, float]] = {}
    for thread, (name, _, spent) in at[2].items():
        if thread not in at[0]:
            continue
        rate = (at[1][thread][1] - at[0][thread][1]) / seconds
        milliseconds = (spent - at[0][thread][2]) / 1e6
        found[name] = max(found.get(name, (0.0, 0.0)), (rate, milliseconds))
    return found


def _threads(pid: int) -> dict[int, tuple[str, int, int]]:
    """Each thread's name, voluntary context switches, and nanoseconds on a processor."""
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        spent = int((folder / "schedstat").read_text().split()[0])
        switches = int(lines["voluntary_ctxt_switches"])
        found[int(folder.name)] = (lines["Name"].strip(), switches, spent)
    return found
