# SPDX-License-Identifier: Apache-2.0
"""How fast is an allocation, compared with Kubernetes' own allocator?

Both are asked in turn: the oracle (hack/oracle), which calls upstream's NewAllocator and Allocate, and
`dra_driver.allocator`. What is timed is what a scheduler does for one pod: make the allocator for the cluster as it is,
then ask it for each node. Objects are decoded before; selectors are compiled before, as the scheduler's cache keeps them.

The problems are in cost/allocation_problems.py.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from oracle_build import oracle_binary

from cost import allocation_problems
from cost.allocation_problems import Problem
from cost.bed import Context
from cost.figures import Ratio, Times, ratio, ratio_of
from cost.report import Answer, Table, Target, times_table
from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.state import AllocatedState
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

ORDINARY_LIMIT, BACKTRACKING_LIMIT = 3.0, 1.0
ENOUGH_SECONDS = 0.05  # a repeat of short problems does them several times


class Cluster(msgspec.Struct):
    """A problem as it is decoded."""

    features: frozenset[str]
    classes: list[DeviceClass]
    slices: list[ResourceSlice]
    nodes: list[Node]
    claims: list[ResourceClaim]


@dataclass(frozen=True, slots=True)
class Timed:
    """One problem, and what was found."""

    problem: Problem
    cluster: Cluster
    upstream: Times
    here: Times

    @property
    def ratio(self) -> Ratio:
        """Our time in units of upstream's."""
        return ratio(self.here, self.upstream)


def measure(context: Context) -> Answer:
    """All problems, in turn with the oracle."""
    repeats = 3 if context.quick else 9
    listed = [*allocation_problems.ordinary(), *allocation_problems.backtracking()]
    timed = [
        Timed(
            problem,
            msgspec.convert(problem.asked(), Cluster),
            Times(f"{problem.name}: upstream"),
            Times(f"{problem.name}: here"),
        )
        for problem in listed
    ]
    with _oracle() as ask:
        for number in range(repeats + 1):
            for one in timed:
                _repeat(one, ask)
                if not number:  # memory and caches were cold
                    one.upstream.repeats.clear()
                    one.here.repeats.clear()
    return Answer(_targets(timed), _tables(timed, repeats))


def _repeat(one: Timed, ask: "Ask") -> None:
    one.upstream.begin_repeat()
    one.here.begin_repeat()
    rounds, satisfied = 1, 0
    spent = 0.0
    while spent < ENOUGH_SECONDS:
        theirs = ask(one.problem.asked() | {"repeat": rounds})
        if theirs["error"]:
            raise SystemExit(f"{one.problem.name}: {theirs['error']}")
        for prepare, allocate in zip(theirs["prepareNs"], theirs["allocateNs"], strict=True):
            one.upstream.add((prepare + allocate) / 1e9)
        for _ in range(rounds):
            begun = time.perf_counter()
            satisfied = _allocate(one.cluster)
            one.here.add(time.perf_counter() - begun)
            spent += one.here.repeats[-1][-1]
        if satisfied != theirs["satisfied"]:
            raise SystemExit(
                f"{one.problem.name}: upstream {theirs['satisfied']}, here {satisfied}"
            )
        rounds = 10


def _allocate(cluster: Cluster) -> int:
    """Which share of the nodes has what is asked for."""
    allocator = Allocator(
        cluster.slices,
        cluster.classes,
        AllocatedState(),
        features=cluster.features,
        implementation="incubating",
    )
    return sum(allocator.allocate(node, cluster.claims) is not None for node in cluster.nodes)


def _targets(timed: Sequence[Timed]) -> tuple[Target, ...]:
    ordinary = [one.ratio for one in timed if not one.problem.backtracking]
    back = [one.ratio for one in timed if one.problem.backtracking]
    return (
        Target("ordinary ÷ upstream, median", _median(ordinary), ORDINARY_LIMIT),
        Target("ordinary ÷ upstream, slowest", _slowest(ordinary), ORDINARY_LIMIT),
        Target("going back ÷ upstream, median", _median(back), BACKTRACKING_LIMIT),
        Target("going back ÷ upstream, slowest", _slowest(back), BACKTRACKING_LIMIT),
    )


def _median(found: Sequence[Ratio]) -> Ratio:
    return ratio_of(each.value for each in found)


def _slowest(found: Sequence[Ratio]) -> Ratio:
    return max(found, key=lambda each: each.value)


def _tables(timed: Sequence[Timed], repeats: int) -> tuple[Table, ...]:
    rows = tuple(
        (
            one.problem.name,
            "goes back" if one.problem.backtracking else "ordinary",
            f"{one.ratio.value:.3g}",
            f"{one.here.quantile(0.99) / one.upstream.quantile(0.99):.3g}",
        )
        for one in timed
    )
    return (
        Table(
            f"Time here ÷ time upstream, {repeats} repeats, each for all nodes of the problem:",
            ("problem", "", "p50", "p99"),
            rows,
        ),
        times_table("Both sides:", [times for one in timed for times in (one.upstream, one.here)]),
    )


Ask = Callable[[dict[str, object]], dict[str, Any]]


@contextmanager
def _oracle() -> Iterator[Ask]:
    command = [str(oracle_binary()), "bench-allocate"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise SystemExit("the oracle has no pipes")
        given, answers = process.stdin, process.stdout

        def ask(problem: dict[str, object]) -> dict[str, Any]:
            given.write(json.dumps(problem).encode() + b"\n")
            given.flush()
            return dict(json.loads(answers.readline()))

        yield ask
        given.close()
