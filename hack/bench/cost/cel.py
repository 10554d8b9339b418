# SPDX-License-Identifier: Apache-2.0
"""How fast is a selector, compared with Kubernetes' own CEL?

Both are asked in turn, for the same devices: the oracle (conformance/oracle), which calls upstream's DeviceMatches, and
`dra_driver.cel.compile`. Upstream converts a device each time that it is asked about; here a device is converted once and then
asked about by every selector. So two figures count: devices that were looked at before, and the first look, with
everything that it takes: compiling the selector, converting the devices, evaluating.

The selectors are in hack/bench/problems/cel.jsonl, the devices are 10,000 GPUs of several models in four drivers' pools. Nothing is
remembered from one device for another: the program runs for each of them. Loops and format() do more for a device than the other
selectors, there as here, and have targets of their own.
"""

import gc
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.oracle.build import oracle_binary
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.failures import EvaluationError
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from hack.bench.cost.bed import Context
from hack.bench.cost.figures import Ratio, Times, ratio, ratio_of
from hack.bench.cost.report import Answer, Table, Target, times_table

PROBLEMS = Path(__file__).parents[1] / "problems" / "cel.jsonl"
DEVICES = 10_000
PREPARED_LIMIT, FIRST_LIMIT = 0.1, 2.0
SHAPES = {"loop": ("loops", 0.5), "format": ("format()", 1.0)}
MODELS = ("A100-SXM4-40GB", "H100-SXM5-80GB", "H200", "L40S", "B200")
MEMORY = ("40Gi", "80Gi", "141Gi", "48Gi", "192Gi")
VERSIONS = ("550.54.15", "570.86.10", "580.65.6")


class Seen(msgspec.Struct, rename="camel"):
    """A device as both sides are given it."""

    driver: str
    attributes: dict[str, DeviceAttribute]
    capacity: dict[str, DeviceCapacity]


@dataclass(frozen=True, slots=True)
class Problem:
    """One selector, and what was found; `shape` is a key of SHAPES, or nothing."""

    name: str
    expression: str
    upstream: Times
    upstream_first: Times
    prepared: Times
    first: Times
    shape: str = ""

    @classmethod
    def named(cls, name: str, expression: str, shape: str = "") -> "Problem":
        """Nothing found yet."""
        return cls(name, expression, *(Times(f"{name}: {what}") for what in SIDES), shape=shape)


SIDES = ("upstream", "upstream with compiling", "here, devices seen before", "here, first look")


def measure(context: Context) -> Answer:
    """All selectors, in turn with the oracle."""
    repeats = 2 if context.quick else 7
    written = fleet(DEVICES)
    gc.freeze()  # what only this program keeps shall not be looked through by the collector
    problems = _read(PROBLEMS)
    with _oracle() as ask:
        for number in range(repeats + 1):
            for problem in problems:
                _repeat(problem, ask, written)
                if not number:  # memory and caches were cold
                    for times in _sides(problem):
                        times.repeats.clear()
    return Answer(_targets(problems), _tables(problems, repeats, f"{DEVICES:,} devices"))


def _read(path: Path) -> list[Problem]:
    return [Problem.named(**json.loads(line)) for line in path.read_text().splitlines()]


def _repeat(problem: Problem, ask: "Ask", written: list[dict[str, object]]) -> None:
    for times in _sides(problem):
        times.begin_repeat()
    theirs = ask({"name": problem.name, "expression": problem.expression, "devices": written})
    if theirs["compileError"] is not None:
        raise SystemExit(f"{problem.name}: {theirs['compileError']}")
    matching, compiling = theirs["matchNs"][0] / 1e9, theirs["compileNs"][0] / 1e9
    problem.upstream.add(matching)
    problem.upstream_first.add(matching + compiling)
    seen = msgspec.convert(written, list[Seen])
    begun = time.perf_counter()
    selector = compile_selector(problem.expression)
    devices = [
        DeviceValue(device.driver, Device(attributes=device.attributes, capacity=device.capacity))
        for device in seen
    ]
    found = _matches(selector.matches, devices)
    problem.first.add(time.perf_counter() - begun)
    begun = time.perf_counter()
    _matches(selector.matches, devices)
    problem.prepared.add(time.perf_counter() - begun)
    if found != (theirs["matches"], theirs["errors"]):
        raise SystemExit(f"{problem.name}: upstream found {theirs}, here it is {found}")


def _matches(
    matches: Callable[[DeviceValue], bool], devices: Sequence[DeviceValue]
) -> tuple[int, int]:
    matched = failed = 0
    for device in devices:
        try:
            if matches(device):
                matched += 1
        except EvaluationError:
            failed += 1
    return matched, failed


def _sides(problem: Problem) -> tuple[Times, ...]:
    return problem.upstream, problem.upstream_first, problem.prepared, problem.first


def _targets(problems: Sequence[Problem]) -> tuple[Target, ...]:
    """Over all selectors together, and the worst one of each shape."""
    prepared = _prepared(problems, "")
    first = [ratio(problem.first, problem.upstream_first) for problem in problems]
    slowest, latest = max(prepared, key=_value), max(first, key=_value)
    return (
        Target(
            "devices seen before ÷ upstream, median of the simple selectors",
            ratio_of(each.value for each in prepared),
            PREPARED_LIMIT,
        ),
        Target("devices seen before ÷ upstream, slowest of them", slowest, PREPARED_LIMIT),
        *(
            Target(
                f"devices seen before ÷ upstream, {what}, slowest selector",
                max(_prepared(problems, shape), key=_value),
                limit,
            )
            for shape, (what, limit) in SHAPES.items()
        ),
        Target(
            "first look ÷ upstream, median of the selectors",
            ratio_of(each.value for each in first),
            FIRST_LIMIT,
        ),
        Target("first look ÷ upstream, slowest selector", latest, FIRST_LIMIT),
    )


def _prepared(problems: Sequence[Problem], shape: str) -> list[Ratio]:
    return [
        ratio(problem.prepared, problem.upstream) for problem in problems if problem.shape == shape
    ]


def _value(found: Ratio) -> float:
    return found.value


def _tables(problems: Sequence[Problem], repeats: int, what: str) -> tuple[Table, ...]:
    rows = tuple(
        (
            f"`{problem.expression}`".replace("|", "\\|"),
            f"{ratio(problem.prepared, problem.upstream).value:.3f}",
            f"{ratio(problem.first, problem.upstream_first).value:.2f}",
        )
        for problem in problems
    )
    about = f"Time here ÷ time upstream, {repeats} repeats of {what}:"
    return (
        Table(about, ("selector", "devices seen before", "first look"), rows),
        times_table(
            f"For {what}:",
            [times for problem in problems for times in _sides(problem)],
        ),
    )


Ask = Callable[[dict[str, object]], dict[str, Any]]


@contextmanager
def _oracle() -> Iterator[Ask]:
    command = [str(oracle_binary()), "bench-cel"]
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


def fleet(count: int) -> list[dict[str, object]]:
    """Devices as the API writes them; the same ones in each run."""
    return [_device(number) for number in range(count)]


def _device(number: int) -> dict[str, object]:
    model = number % len(MODELS)
    attributes: dict[str, object] = {
        "type": {"string": "gpu" if number % 11 else "mig"},
        "uuid": {"string": f"GPU-{number:032x}"},
        "productName": {"string": f"NVIDIA {MODELS[model]}"},
        "architecture": {
            "string": ("Ampere", "Hopper", "Hopper", "Ada Lovelace", "Blackwell")[model]
        },
        "brand": {"string": "Nvidia"},
        "index": {"int": number % 8},
        "minor": {"int": number % 8},
        "healthy": {"bool": number % 7 != 0},
        "driverVersion": {"version": VERSIONS[number % len(VERSIONS)]},
        "cudaComputeCapability": {"version": ("8.0.0", "9.0.0", "9.0.0", "8.9.0", "10.0.0")[model]},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number % 16:02x}"},
        "links": {"strings": [f"link-{number % 4}", f"link-{number % 9}"]},
    }
    capacity = {"memory": {"value": MEMORY[model]}, "multiprocessors": {"value": "132"}}
    return {
        "driver": f"gpu-{number % 4}.example.com",
        "attributes": attributes,
        "capacity": capacity,
    }
