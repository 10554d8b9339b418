# SPDX-License-Identifier: Apache-2.0
"""How fast is an allocation, compared with Kubernetes' own allocator?

Both are asked in turn: the oracle (conformance/oracle), which calls upstream's NewAllocator and Allocate, and
`dra_driver.allocator`. What is timed is what a scheduler does for one pod: take note of what is allocated by now, then ask for
each node. Objects are decoded and selectors compiled before, on both sides. Upstream converts slices and asks selectors
again for each pod; here an Allocator is made for the slices once and goes from pod to pod (`Allocator.after`), with the
answers of the selectors it has met. What the first pod has to wait for is reported as well.

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

from conformance.oracle.build import oracle_binary
from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.state import AllocatedState
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from hack.bench.cost import allocation_problems
from hack.bench.cost.allocation_problems import Problem
from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Ratio, Times, ratio, ratio_of
from hack.bench.cost.report import Answer, Table, Target, times_table

ORDINARY_LIMIT, BACKTRACKING_LIMIT = 3.0, 1.0
SIDES = ("upstream", "here", "here, first pod")
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
    allocator: Allocator
    upstream: Times
    here: Times
    first: Times

    @classmethod
    def of(cls, problem: Problem) -> "Timed":
        """Nothing found yet."""
        cluster = msgspec.convert(problem.asked(), Cluster)
        sides = (Times(f"{problem.name}: {what}") for what in SIDES)
        return cls(problem, cluster, _made(cluster), *sides)

    @property
    def times(self) -> tuple[Times, ...]:
        """All sides."""
        return self.upstream, self.here, self.first

    @property
    def ratio(self) -> Ratio:
        """Our time in units of upstream's."""
        return ratio(self.here, self.upstream)


def measure(context: Context) -> Answer:
    """All problems, in turn with the oracle."""
    repeats = 3 if context.quick else 9
    listed = [*allocation_problems.ordinary(), *allocation_problems.backtracking()]
    timed = [Timed.of(problem) for problem in listed]
    with _oracle() as ask:
        for number in range(repeats + 1):
            for one in timed:
                _repeat(one, ask)
                if not number:  # memory and caches were cold
                    for times in one.times:
                        times.repeats.clear()
    return Answer(_targets(timed), _tables(timed, repeats))


def _repeat(one: Timed, ask: "Ask") -> None:
    for times in one.times:
        times.begin_repeat()
    rounds, begun = 1, time.perf_counter()
    while time.perf_counter() - begun < ENOUGH_SECONDS:
        theirs = ask(one.problem.asked() | {"repeat": rounds})
        if theirs["error"]:
            raise SystemExit(f"{one.problem.name}: {theirs['error']}")
        for prepare, allocate in zip(theirs["prepareNs"], theirs["allocateNs"], strict=True):
            one.upstream.add((prepare + allocate) / 1e9)
        # In a row, as upstream's are: what the one leaves in the processor's caches is not the other's burden.
        found = {_here(one) for _ in range(rounds)} | {_first(one) for _ in range(rounds)}
        if found != {theirs["satisfied"]}:
            raise SystemExit(f"{one.problem.name}: upstream {theirs['satisfied']}, here {found}")
        rounds = 10


def _here(one: Timed) -> int:
    """Time a pod among others; answers how many nodes have what is asked for."""
    claims = msgspec.convert(one.problem.claims, list[ResourceClaim])  # each pod has its own
    begun = time.perf_counter()
    satisfied = _allocate(one.allocator.after(AllocatedState()), one.cluster.nodes, claims)
    one.here.add(time.perf_counter() - begun)
    return satisfied


def _first(one: Timed) -> int:
    """Time the first pod of all; answers as `_here`."""
    claims = msgspec.convert(one.problem.claims, list[ResourceClaim])
    begun = time.perf_counter()
    satisfied = _allocate(_made(one.cluster), one.cluster.nodes, claims)
    one.first.add(time.perf_counter() - begun)
    return satisfied


def _made(cluster: Cluster) -> Allocator:
    return Allocator(
        cluster.slices,
        cluster.classes,
        AllocatedState(),
        features=cluster.features,
        implementation="incubating",
    )


def _allocate(allocator: Allocator, nodes: Sequence[Node], claims: Sequence[ResourceClaim]) -> int:
    satisfied = 0
    for node in nodes:
        satisfied += allocator.allocate(node, claims) is not None
    return satisfied


def _targets(timed: Sequence[Timed]) -> tuple[Target, ...]:
    ordinary = [one.ratio for one in timed if not one.problem.backtracking]
    back = [one.ratio for one in timed if one.problem.backtracking]
    first = [ratio(one.first, one.upstream) for one in timed if not one.problem.backtracking]
    return (
        Target("ordinary ÷ upstream, median", _median(ordinary), ORDINARY_LIMIT),
        Target("ordinary ÷ upstream, slowest", _slowest(ordinary), ORDINARY_LIMIT),
        Target("ordinary, first pod ÷ upstream, median", _median(first), None),
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
            f"{ratio(one.first, one.upstream).value:.3g}",
        )
        for one in timed
    )
    return (
        Table(
            f"Time here ÷ time upstream, {repeats} repeats, each for all nodes of the problem:",
            ("problem", "", "p50", "p99", "first pod, p50"),
            rows,
        ),
        times_table("Both sides:", [times for one in timed for times in one.times]),
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
