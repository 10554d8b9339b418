# SPDX-License-Identifier: Apache-2.0
"""Does preparing take longer than with the driver of another tree? For a change that could make every claim slower.

Both drivers run at the same time, each in a folder of its own on one disk, and are called in turn. `--against TREE` names the other
tree, with its own wheel, its own locked libraries and its own bench daemon.
"""

from contextlib import ExitStack

from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Times, in_turn, ratio
from hack.bench.cost.node import BenchNode, Caller, a_claim
from hack.bench.cost.prepare import DEVICES
from hack.bench.cost.report import Answer, Target, times_table

SIDES = ("there", "here")
ONE, EIGHT, BACK = "prepare 1 claim", "prepare 8 claims in one call", "unprepare 1 claim"
FLOOR = "empty call + 2 KB forced to disk"


def measure(context: Context) -> Answer:
    """Both in one loop."""
    if context.against is None:
        raise SystemExit("name the other tree with --against TREE")
    repeats, rounds = (5, 40) if context.quick else (11, 120)
    times = {
        (what, side): Times(f"{what}, {side}")
        for what in (ONE, EIGHT, BACK, FLOOR)
        for side in SIDES
    }
    with ExitStack() as stack:
        nodes = {
            "there": stack.enter_context(BenchNode(tree=context.against)),
            "here": stack.enter_context(BenchNode()),
        }

        def one(side: str) -> None:
            _one(nodes[side].call, *(times[what, side] for what in (ONE, BACK, FLOOR)))

        def eight(side: str) -> None:
            wanted = [a_claim(f"gpu-{number}") for number in range(DEVICES)]
            times[EIGHT, side].add(nodes[side].call.prepare(wanted))
            nodes[side].call.unprepare(wanted)

        actions = [lambda act=act, side=side: act(side) for act in (one, eight) for side in SIDES]
        for number in range(repeats + 1):
            for each in times.values():
                if number == 1:  # the first repeat is for caches
                    each.repeats.clear()
                each.begin_repeat()
            in_turn(actions, rounds)
    targets = [
        Target(f"{what}: here ÷ there, p50", ratio(times[what, "here"], times[what, "there"]), None)
        for what in (ONE, EIGHT, BACK, FLOOR)
    ]
    for side in SIDES:
        alone = times[ONE, side]
        targets.append(Target(f"{ONE} ÷ {FLOOR}, {side}", ratio(alone, times[FLOOR, side]), None))
        targets.append(Target(f"{EIGHT} ÷ {ONE}, {side}", ratio(times[EIGHT, side], alone), None))
    about = f"Two daemons, {repeats} repeats of {rounds} rounds, everything in turn in each round."
    return Answer(tuple(targets), (times_table(about, tuple(times.values())),))


def _one(call: Caller, prepared: Times, back: Times, floor: Times) -> None:
    wanted = [a_claim("gpu-0")]
    floor.add(call.empty() + call.write())
    prepared.add(call.prepare(wanted))
    back.add(call.unprepare(wanted))
