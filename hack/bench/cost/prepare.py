# SPDX-License-Identifier: Apache-2.0
"""What does it cost to prepare a claim, alone, among many, and eight at once? And where does the time go?

The daemon is a process of its own and called over its socket; its API server answers at once. The measure is what
nobody can do without: one call that does nothing on the same server, and one small file forced to the same disk.
A real API server is asked by one more driver, on the test bed's node, in a loop of its own.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise

from hack.bench.cost import claims
from hack.bench.cost.bed import ENDPOINT, Context, driver
from hack.bench.cost.figures import Times, in_turn, ratio
from hack.bench.cost.node import BenchNode, Caller, a_claim, filesystem_of
from hack.bench.cost.report import Answer, Table, Target, times_table

DEVICES = 8
SOME = 1_000
FLOOR_LIMIT, FULL_LIMIT, EIGHT_LIMIT = 2.5, 1.2, 3.0
# Where a call is at each failpoint: the time before it belongs to this part.
PARTS = {
    "get_claim": "gRPC, the claim's lock, a look into the state",
    "commit.started.before": "decide, reserve",
    "commit.started.after": "commit Started",
    "step.ConfigureDevice.before": "to the thread that does the work",
    "step.ConfigureDevice.after": "let the backend set the device up, under its lock",
    "commit.prepared.before": "back to the call, make the CDI text",
    "commit.prepared.after": "commit Prepared",
    "step.WriteCdiSpec.after": "write the CDI file",
    "answered": "release the lock, log line, answer, gRPC",
}


def measure(context: Context) -> Answer:
    """All ratios from one loop, then the parts from a daemon that keeps a diary, then a real API server."""
    repeats, rounds, many = (3, 25, 2_000) if context.quick else (9, 120, 10_000)
    with ExitStack() as stack:
        none, some, most = (stack.enter_context(BenchNode()) for _ in range(3))
        some.call.fill(SOME)
        most.call.fill(many)
        loop = _Loop(none.call, some.call, most.call, many=many)
        loop.run(repeats, rounds)
        disk = filesystem_of(none.state_dir)
    tables = [
        times_table(
            f"State on {disk}, CDI files on tmpfs; {repeats} repeats of {rounds} rounds, everything in turn in each round.",
            loop.times,
        ),
        _parts(100 if context.quick else 500),
    ]
    if not context.quick:
        tables.append(_on_cluster(context, repeats=repeats, rounds=rounds))
    return Answer(loop.targets, tuple(tables))


class _Loop:
    """What is done in turn: the measure, then one claim on each of three drivers, then eight claims."""

    def __init__(self, none: Caller, some: Caller, most: Caller, *, many: int) -> None:
        self._none = none
        self._many = many
        self.empty, self.write = Times("empty call"), Times("2 KB forced to disk")
        self.floor = Times("empty call + 2 KB forced to disk")
        self.one = Times("prepare 1 claim, none prepared")
        self.among_some = Times(f"prepare 1 claim, {SOME:,} prepared")
        self.among_most = Times(f"prepare 1 claim, {many:,} prepared")
        self.eight = Times("prepare 8 claims in one call")
        self.again = Times("prepare 1 claim again (answered from the state)")
        self.back = Times("unprepare 1 claim")
        self._actions: Sequence[Callable[[], None]] = (
            self._do_floor,
            self._do_one,
            lambda: _prepare_and_back(some, self.among_some),
            lambda: _prepare_and_back(most, self.among_most),
            self._do_eight,
        )

    @property
    def times(self) -> Sequence[Times]:
        """Everything that is timed."""
        measure = (self.empty, self.write, self.floor)
        return (
            *measure,
            self.one,
            self.among_some,
            self.among_most,
            self.eight,
            self.again,
            self.back,
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """The promises."""
        floor = "(empty call + one 2 KB write with fsync)"
        return (
            Target(f"prepare one claim ÷ {floor}, p50", ratio(self.one, self.floor), FLOOR_LIMIT),
            Target(
                f"the same with {SOME:,} prepared ÷ with none, p50",
                ratio(self.among_some, self.one),
                FULL_LIMIT,
            ),
            Target(
                f"with {self._many:,} prepared ÷ with none, p50",
                ratio(self.among_most, self.one),
                None,
            ),
            Target("8 claims in one call ÷ 1 claim, p50", ratio(self.eight, self.one), EIGHT_LIMIT),
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
        call, write = self._none.empty(), self._none.write()
        self.empty.add(call)
        self.write.add(write)
        self.floor.add(call + write)

    def _do_one(self) -> None:
        wanted = [a_claim("gpu-0")]
        self.one.add(self._none.prepare(wanted))
        self.again.add(self._none.prepare(wanted))
        self.back.add(self._none.unprepare(wanted))

    def _do_eight(self) -> None:
        wanted = [a_claim(f"gpu-{number}") for number in range(DEVICES)]
        self.eight.add(self._none.prepare(wanted))
        self._none.unprepare(wanted)


def _prepare_and_back(call: Caller, times: Times) -> None:
    wanted = [a_claim("gpu-0")]
    times.add(call.prepare(wanted))
    call.unprepare(wanted)


def _parts(rounds: int) -> Table:
    """Where the time of a prepare goes."""
    calls: list[tuple[float, float]] = []
    with BenchNode(marks=True) as node:
        for _ in range(rounds):
            wanted = [a_claim("gpu-0")]
            begun = time.perf_counter()
            node.call.prepare(wanted)
            calls.append((begun, time.perf_counter()))
            node.call.unprepare(wanted)
        node.end()
        passed = json.loads((node.marks or node.root).read_text())
    spent: dict[str, list[float]] = {name: [] for name in PARTS}
    for begun, ended in calls:
        known = [(name, at) for name, at in passed if begun <= at <= ended and name in PARTS]
        for (_, before), (name, at) in pairwise([("", begun), *known, ("answered", ended)]):
            spent[name].append(at - before)
    parts = [(PARTS[name], found) for name, found in spent.items()]
    whole = [ended - begun for begun, ended in calls]
    rows = tuple(
        (
            what,
            f"{statistics.median(found) * 1000:.2f}",
            f"{statistics.fmean(found) * 1000:.2f}",
            f"{100 * sum(found) / sum(whole):.0f} %",
        )
        for what, found in (*parts, ("**together**", whole))
    )
    about = "Where the time of one prepare goes (shares are of the sum):"
    return Table(about, ("part, in order", "p50 ms", "mean ms", "share"), rows)


def _on_cluster(context: Context, *, repeats: int, rounds: int) -> Table:
    """The same call, answered after a GET at a real API server, in turn with one that needs none."""
    cluster = context.cluster
    asked = Times("prepare 1 claim, with its GET at a real API server")
    instant = Times("prepare 1 claim, API server in the process")
    with ExitStack() as stack:
        stack.enter_context(driver(cluster))
        real = Caller(cluster.path_inside(ENDPOINT))
        stack.callback(real.close)
        here = stack.enter_context(BenchNode()).call
        claim = claims.make(cluster, "cost", "gpu-0")

        def do_real() -> None:
            asked.add(real.prepare([claim]))
            real.unprepare([claim])

        for repeat in range(repeats + 1):
            for times in (asked, instant):
                if repeat == 1:
                    times.repeats.clear()
                times.begin_repeat()
            in_turn((do_real, lambda: _prepare_and_back(here, instant)), rounds)
    return times_table(
        "The claim asked for at the test bed's API server, over TLS:", (asked, instant)
    )
