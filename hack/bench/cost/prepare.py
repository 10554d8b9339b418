# SPDX-License-Identifier: Apache-2.0
"""What does it cost to prepare a claim, alone, among many, and eight at once? And where does the time go?

The daemon is a process of its own and called over its socket; its API server answers at once. The measure is what
nobody can do without: one call that does nothing on the same server, and one small file forced to the same disk.
"""

import json
import statistics
import time
from contextlib import ExitStack
from itertools import pairwise

from cost.bed import Context
from cost.figures import Times, in_turn, ratio
from cost.node import BenchNode, a_claim, filesystem_of
from cost.report import Answer, Table, Target, times_table

DEVICES = 8
FLOOR_LIMIT, FULL_LIMIT, EIGHT_LIMIT = 2.5, 1.2, 3.0
# Where a call is at each failpoint: the time before it belongs to this part.
PARTS = {
    "get_claim": "gRPC, the claim's lock, a look into the state",
    "commit.started.before": "decide, reserve",
    "commit.started.after": "commit Started",
    "step.WriteCdiSpec.before": "let the backend set the device up, under its lock",
    "step.WriteCdiSpec.after": "write the CDI file",
    "commit.prepared.before": "back to the call",
    "commit.prepared.after": "commit Prepared",
    "answered": "release the lock, log line, answer, gRPC",
}


def measure(context: Context) -> Answer:
    """All ratios from one loop, then the parts from a daemon that keeps a diary."""
    repeats, rounds, many = (3, 25, 2_000) if context.quick else (9, 120, 10_000)
    with ExitStack() as stack:
        nodes = [stack.enter_context(BenchNode()) for _ in range(3)]
        answer = _compare(nodes, repeats=repeats, rounds=rounds, many=many)
    return Answer(answer.targets, (*answer.tables, _parts(100 if context.quick else 500)))


def _compare(nodes: list[BenchNode], *, repeats: int, rounds: int, many: int) -> Answer:
    none, some, most = nodes
    some.fill(1_000)
    most.fill(many)
    floor = Times("empty call + 2 KB forced to disk")
    empty, write = Times("empty call"), Times("2 KB forced to disk")
    one, eight = Times("prepare 1 claim, none prepared"), Times("prepare 8 claims in one call")
    among_some = Times("prepare 1 claim, 1,000 prepared")
    among_most = Times(f"prepare 1 claim, {many:,} prepared")
    back, again = Times("unprepare 1 claim"), Times("prepare 1 claim again (answered from state)")

    def do_floor() -> None:
        empty.add(none.empty())
        write.add(none.write())
        floor.add(empty.repeats[-1][-1] + write.repeats[-1][-1])

    def do_one(node: BenchNode, times: Times) -> None:
        claims = [a_claim("gpu-0")]
        times.add(node.prepare(claims))
        if times is one:
            again.add(node.prepare(claims))
            back.add(node.unprepare(claims))
        else:
            node.unprepare(claims)

    def do_eight() -> None:
        claims = [a_claim(f"gpu-{number}") for number in range(DEVICES)]
        eight.add(none.prepare(claims))
        none.unprepare(claims)

    actions = (
        do_floor,
        lambda: do_one(none, one),
        lambda: do_one(some, among_some),
        lambda: do_one(most, among_most),
        do_eight,
    )
    everything = (empty, write, floor, one, among_some, among_most, eight, again, back)
    for repeat in range(repeats + 1):
        for times in everything:
            times.begin_repeat()
        in_turn(actions, rounds)
        if not repeat:  # the first was for caches and the processor's clock
            for times in everything:
                times.repeats.clear()
    disk = filesystem_of(none.state_dir)
    return Answer(
        (
            Target(
                "prepare one claim ÷ (empty call + one 2 KB write with fsync), p50",
                ratio(one, floor),
                FLOOR_LIMIT,
            ),
            Target(
                "the same with 1,000 prepared ÷ with none, p50", ratio(among_some, one), FULL_LIMIT
            ),
            Target(f"with {many:,} prepared ÷ with none, p50", ratio(among_most, one), None),
            Target("8 claims in one call ÷ 1 claim, p50", ratio(eight, one), EIGHT_LIMIT),
        ),
        (
            times_table(
                f"State on {disk}, CDI files on tmpfs; {repeats} repeats of {rounds} rounds, everything in turn in each round.",
                everything,
            ),
        ),
    )


def _parts(rounds: int) -> Table:
    """Where the time of a prepare goes."""
    calls: list[tuple[float, float]] = []
    with BenchNode(marks=True) as node:
        for _ in range(rounds):
            claims = [a_claim("gpu-0")]
            begun = time.perf_counter()
            node.prepare(claims)
            calls.append((begun, time.perf_counter()))
            node.unprepare(claims)
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
    return Table(
        "Where the time of one prepare goes (shares are of the sum):",
        ("part, in order", "p50 ms", "mean ms", "share"),
        rows,
    )
