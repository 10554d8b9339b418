# SPDX-License-Identifier: Apache-2.0
"""Does preparing take longer than with the driver of another tree? For a change that could make every claim slower.

Both drivers run at the same time, each in a folder of its own on one disk, and are called in turn. `--against TREE` names the other
tree, with its own wheel, its own locked libraries and its own bench daemon.
"""

from contextlib import ExitStack

from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.node import BenchNode, Caller, a_claim
from hack.bench.cost.prepare import DEVICES
from hack.bench.cost.report import Answer, Target, times_table

SIDES = ("there", "here")
ONE, EIGHT, BACK = "prepare 1 claim", "prepare 8 claims in one call", "unprepare 1 claim"


def measure(context: Context) -> Answer:
    """Both in one loop."""
    if context.against is None:
        raise SystemExit("name the other tree with --against TREE")
    repeats, rounds = (5, 40) if context.quick else (11, 120)
    with ExitStack() as stack:
        there = stack.enter_context(BenchNode(tree=context.against)).call
        here = stack.enter_context(BenchNode()).call
        loop = _Loop(there, here)
        loop.run(repeats, rounds)
    about = f"Two daemons, {repeats} repeats of {rounds} rounds, everything in turn in each round."
    return Answer(loop.targets, (times_table(about, loop.times),))


class _Loop:
    """What is done with both drivers. The floor is the same for both: what a call and a commit cost at least on this machine."""

    def __init__(self, there: Caller, here: Caller) -> None:
        self._calls = dict(zip(SIDES, (there, here), strict=True))
        self._floor = Times("empty call + 2 KB forced to disk, of both")
        self._times = {
            (what, side): Times(f"{what}, {side}") for what in (ONE, EIGHT, BACK) for side in SIDES
        }

    @property
    def times(self) -> tuple[Times, ...]:
        """Everything that is timed."""
        return (self._floor, *self._times.values())

    @property
    def targets(self) -> tuple[Target, ...]:
        """Here in units of there, and each in units of the floor."""
        times = self._times
        sides = [
            Target(
                f"{what}: here ÷ there, p50", ratio(times[what, "here"], times[what, "there"]), None
            )
            for what in (ONE, EIGHT, BACK)
        ]
        for side in SIDES:
            one = times[ONE, side]
            sides.append(Target(f"{ONE} ÷ the floor, {side}", ratio(one, self._floor), None))
            sides.append(Target(f"{EIGHT} ÷ {ONE}, {side}", ratio(times[EIGHT, side], one), None))
        return tuple(sides)

    def run(self, repeats: int, rounds: int) -> None:
        """One repeat more than is kept, for caches. What was done just before costs a call something, so the sides change places."""
        for repeat in range(repeats + 1):
            for times in self.times:
                if repeat == 1:
                    times.repeats.clear()
                times.begin_repeat()
            for at in range(rounds):
                order = SIDES[:: 1 if at % 2 else -1]
                for do in (self._do_one, self._do_eight):
                    for side in order:
                        do(side)

    def _do_one(self, side: str) -> None:
        call = self._calls[side]
        wanted = [a_claim("gpu-0")]
        self._floor.add(call.empty() + call.write())
        self._times[ONE, side].add(call.prepare(wanted))
        self._times[BACK, side].add(call.unprepare(wanted))

    def _do_eight(self, side: str) -> None:
        call = self._calls[side]
        wanted = [a_claim(f"gpu-{number}") for number in range(DEVICES)]
        self._times[EIGHT, side].add(call.prepare(wanted))
        call.unprepare(wanted)
