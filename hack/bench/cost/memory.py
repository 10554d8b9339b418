# SPDX-License-Identifier: Apache-2.0
"""How much memory does the idle daemon take, and does it grow with the claims that come and go?

The idle daemon is `dra-driver run` as it ships: registered with a kubelet, its slices published, its watch open, its
HTTP endpoint serving. What it is compared with has imported the packages that pyproject.toml names, each with the modules that the
driver loads of it, and nothing else.

Growth is looked for in a daemon that prepares and unprepares one claim after the other. Its state is on a tmpfs here:
that makes no difference to memory, and 50,000 pairs would wear a disk for nothing.
"""

import json
import subprocess
import time
from dataclasses import dataclass

from hack.bench.cost import installed
from hack.bench.cost.bed import HERE, Context, driver
from hack.bench.cost.figures import ratio_of
from hack.bench.cost.node import BenchNode, a_claim, resident_kib
from hack.bench.cost.report import Answer, Table, Target
from hack.bench.cost.standins import StandIns

# google.protobuf is an empty package: what a generated module imports of it is its builder.
IMPORTS = (
    "grpc, google.protobuf.internal.builder, urllib3, msgspec, structlog, prometheus_client, yaml"
)
IMPORTED = f"import {IMPORTS}; print(flush=True); input()"
IDLE_LIMIT, GROWTH_LIMIT_MIB = 1.3, 1.0
SMALLEST_PART_KIB = 300
SETTLE_SECONDS = 2.0
KIB = 1024
FIELDS = ("VmRSS", "RssAnon", "RssFile")


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What comes before growth counts: calls fill caches, and time brings what happens once (a sweep, a first ping)."""

    pairs: int
    seconds: float


def measure(context: Context) -> Answer:
    """The idle daemon against its libraries, then the growth."""
    pairs = 1_000 if context.quick else 50_000
    repeats = 2 if context.quick else 5
    libraries, daemons = [], []
    for _ in range(repeats):
        libraries.append(_libraries())
        daemons.append(_idle_daemon())
    on_cluster = [] if context.quick else [_on_cluster(context)]
    quotients = [
        daemon["VmRSS"] / library["VmRSS"]
        for daemon, library in zip(daemons, libraries, strict=True)
    ]
    growth, series = _growth(pairs, WarmUp(500, 0.0) if context.quick else WarmUp(2_000, 45.0))
    return Answer(
        (
            Target(
                "idle daemon ÷ its libraries imported, resident", ratio_of(quotients), IDLE_LIMIT
            ),
            Target(
                f"growth over {pairs:,} pairs of prepare and unprepare",
                growth,
                GROWTH_LIMIT_MIB,
                "MiB",
            ),
        ),
        (_sizes(libraries, daemons, on_cluster), _parts(libraries, daemons), series),
    )


def _idle_daemon() -> dict[str, int]:
    with StandIns() as stage:
        pid = stage.start()
        stage.log.wait("published")
        stage.register()
        time.sleep(SETTLE_SECONDS)
        return _sizes_of(pid)


def _sizes_of(pid: int) -> dict[str, int]:
    return {field: resident_kib(pid, field) for field in FIELDS}


def _on_cluster(context: Context) -> dict[str, int]:
    with driver(context.cluster) as program:
        time.sleep(SETTLE_SECONDS)
        return _sizes_of(program.pid)


def _libraries() -> dict[str, int]:
    with subprocess.Popen(
        [installed.python(), "-c", IMPORTED],
        env=installed.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        if process.stdout is None or process.stdin is None or not process.stdout.readline():
            raise SystemExit("a library of the driver cannot be imported")
        found = _sizes_of(process.pid)
        process.stdin.write(b"\n")
    return found


def _parts(libraries: list[dict[str, int]], daemons: list[dict[str, int]]) -> Table:
    """What the idle daemon has beyond its libraries."""
    program = [installed.python(), str(HERE / "imports_load.py"), *IMPORTS.split(", ")]
    ended = subprocess.run(
        program, env=installed.environment(), capture_output=True, text=True, check=True
    )
    imported: dict[str, int] = json.loads(ended.stdout)
    large = {part: kib for part, kib in imported.items() if kib >= SMALLEST_PART_KIB}
    beyond = sum(one["VmRSS"] for one in daemons) - sum(one["VmRSS"] for one in libraries)
    rows = {f"import of {part}": kib for part, kib in sorted(large.items(), key=_by_size)}
    rows["import of the rest"] = sum(imported.values()) - sum(large.values())
    rows["what runs: threads, sockets, TLS, the state file, the devices"] = beyond // len(
        daemons
    ) - sum(imported.values())
    shown = tuple((what, f"{kib / KIB:.1f}") for what, kib in rows.items())
    return Table("What the idle daemon has beyond its libraries, in MiB:", ("", "resident"), shown)


def _by_size(part: tuple[str, int]) -> int:
    return -part[1]


def _growth(pairs: int, warm_up: WarmUp) -> tuple[float, Table]:
    rows = []
    with BenchNode(in_memory=True) as node:

        def settled() -> int:
            time.sleep(SETTLE_SECONDS)
            return node.resident_kib()

        def work(count: int) -> None:
            for number in range(count):
                claims = [a_claim(f"gpu-{number % 8}")]
                node.call.prepare(claims)
                node.call.unprepare(claims)

        begun = time.monotonic()
        rows.append(("idle, nothing prepared yet", settled()))
        work(warm_up.pairs)
        time.sleep(max(0.0, begun + warm_up.seconds - time.monotonic()))
        before = settled()
        rows.append((f"after {warm_up.pairs:,} pairs (from here on growth counts)", before))
        steps = 5
        for step in range(1, steps + 1):
            work(pairs // steps)
            rows.append((f"after {pairs * step // steps:,} more", settled()))
    shown = tuple((what, f"{kib / KIB:.2f}", f"{(kib - before) / KIB:+.2f}") for what, kib in rows)
    about = "Resident memory of a daemon that prepares and unprepares, in MiB:"
    return (rows[-1][1] - before) / KIB, Table(about, ("", "resident", "growth"), shown)


def _sizes(
    libraries: list[dict[str, int]], daemons: list[dict[str, int]], on_cluster: list[dict[str, int]]
) -> Table:
    kinds = {
        "libraries imported": libraries,
        "idle daemon": daemons,
        "idle daemon on the test bed's node": on_cluster,
    }
    rows = tuple(
        (what, *(_range([each[field] / KIB for each in found]) for field in FIELDS))
        for what, found in kinds.items()
        if found
    )
    about = f"MiB over {len(daemons)} processes of each kind, started in turn:"
    return Table(about, ("", "resident", "of it anonymous", "of it files"), rows)


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
