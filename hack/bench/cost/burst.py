# SPDX-License-Identifier: Apache-2.0
"""When a node gets 64 pods at once, does it matter to the last one that each has a claim? And whose work is it then?"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hack.bench.cost import installed, programs
from hack.bench.cost.bed import (
    ENDPOINT,
    HERE,
    NODE,
    REGISTRATION,
    Context,
    driver,
    run_inside,
)
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.log import Log
from hack.bench.cost.node import DRIVER
from hack.bench.cost.report import Answer, Table, Target, times_table
from hack.testbed.onenode import node_files
from hack.testbed.onenode.cluster import Cluster

Cpu = Mapping[str, Sequence[Mapping[str, float]]]
Found = Mapping[str, Any]

PODS = 64
LIMIT = 1.05
MACHINE = f"""\
apiVersion: config.dra-driver.dev/v1alpha1
kind: DriverConfig
backends:
  simulated: {{profile: example, example: {{devices: {PODS}}}}}
"""


def measure(context: Context) -> Answer:
    """Pods on the test bed's kubelet, with a device for each: with the driver, then with one that does nothing."""
    repeats = 1 if context.quick else 6
    cluster = context.cluster
    config = cluster.root / "burst.yaml"
    config.write_text(MACHINE)
    with driver(cluster, "--config", str(config)):
        found = _pods(cluster, repeats)
    with _empty_driver(cluster):  # the slices of the driver stay while another one is registered
        empty = _pods(cluster, repeats)
    without, with_claims = _times(found, "")
    without_too, with_nothing = _times(empty, ", and a driver that does nothing")
    return Answer(
        (
            Target(
                f"last of {PODS} pods Ready, each with a claim ÷ without, p50",
                ratio(with_claims, without),
                LIMIT,
            ),
            Target(
                "the same with a driver that does nothing", ratio(with_nothing, without_too), None
            ),
        ),
        (
            times_table(
                "From the first request until the last pod is Ready, in turn, the images there:",
                [without, with_claims, without_too, with_nothing],
            ),
            _cpu_table(found["cpu"], empty["cpu"]),
        ),
    )


def _pods(cluster: Cluster, repeats: int) -> Found:
    try:
        found: Found = run_inside(
            cluster,
            "burst_load.py",
            *(str(cluster.admin_kubeconfig), node_files.IMAGE, str(PODS), str(repeats)),
            seconds=3600,
        )
    finally:
        cluster.kubectl("delete", "resourceclaimtemplate", "one-gpu", "--namespace", "default")
    return found


@contextmanager
def _empty_driver(cluster: Cluster) -> Iterator[None]:
    logged = Log(cluster.root / "log" / "bench-empty.log")
    script = [installed.python(), str(HERE / "empty_driver.py")]
    program = cluster.run_inside(
        [*script, str(ENDPOINT), str(REGISTRATION), DRIVER, NODE], log="bench-empty"
    )
    try:
        logged.wait("registered")
        yield
    finally:
        program.stop()


def _times(found: Found, beside: str) -> tuple[Times, Times]:
    without, with_claims = (
        Times(f"{PODS} pods {kind} claims{beside}", [[each] for each in found["seconds"][kind]])
        for kind in ("without", "with")
    )
    return without, with_claims


def _cpu_table(used: Cpu, empty: Cpu) -> Table:
    """CPU seconds of each program, the median over the repeats, the largest difference first."""
    names = list({name: None for each in used["with"] for name in each})

    def more(cpu: Cpu, name: str) -> float:
        return _median(cpu["with"], name) - _median(cpu["without"], name)

    names.sort(key=lambda name: (name == programs.ALL, -more(used, name)))
    return Table(
        "CPU seconds until the last pod is Ready, by program, medians:",
        ("", "without claims", "with claims", "more", "more with a driver that does nothing"),
        tuple(
            (
                name,
                *(f"{_median(used[kind], name):.2f}" for kind in ("without", "with")),
                f"{more(used, name):.2f}",
                f"{more(empty, name):.2f}",
            )
            for name in names
        ),
    )


def _median(repeats: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(each.get(name, 0.0) for each in repeats)
