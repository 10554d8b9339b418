# SPDX-License-Identifier: Apache-2.0
"""When a node gets 64 pods at once, does it matter to the last one that each has a claim? And whose work is it then?"""

import statistics
from collections.abc import Mapping, Sequence

from hack.bench.cost import programs
from hack.bench.cost.bed import Context, driver, run_inside
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.report import Answer, Table, Target, times_table
from hack.testbed.onenode import node_files

PODS = 64
LIMIT = 1.05
MACHINE = f"""\
apiVersion: config.dra-driver.dev/v1alpha1
kind: DriverConfig
backends:
  simulated: {{profile: example, example: {{devices: {PODS}}}}}
"""


def measure(context: Context) -> Answer:
    """Pods on the test bed's kubelet, with a device for each."""
    repeats = 1 if context.quick else 6
    cluster = context.cluster
    config = cluster.root / "burst.yaml"
    config.write_text(MACHINE)
    with driver(cluster, "--config", str(config)):
        found = run_inside(
            cluster,
            "burst_load.py",
            *(str(cluster.admin_kubeconfig), node_files.IMAGE, str(PODS), str(repeats)),
            seconds=3600,
        )
    without, with_claims = (
        Times(f"{PODS} pods {kind} claims", [[seconds] for seconds in found["seconds"][kind]])
        for kind in ("without", "with")
    )
    return Answer(
        (
            Target(
                f"last of {PODS} pods Ready, each with a claim ÷ without, p50",
                ratio(with_claims, without),
                LIMIT,
            ),
        ),
        (
            times_table(
                "From the first request until the last pod is Ready, in turn, the images there:",
                [without, with_claims],
            ),
            _cpu_table(found["cpu"]),
        ),
    )


def _cpu_table(used: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    """CPU seconds of each program, the median over the repeats, the largest difference first."""
    without, with_claims = (
        {
            name: statistics.median(each.get(name, 0.0) for each in used[kind])
            for name in _names(used)
        }
        for kind in ("without", "with")
    )
    rows = [(name, without[name], with_claims[name]) for name in without if name != programs.ALL]
    rows.sort(key=lambda row: row[1] - row[2])
    rows.append((programs.ALL, without[programs.ALL], with_claims[programs.ALL]))
    return Table(
        "CPU seconds until the last pod is Ready, by program, medians:",
        ("", "without claims", "with claims", "more"),
        tuple(
            (name, f"{less:.2f}", f"{more:.2f}", f"{more - less:.2f}") for name, less, more in rows
        ),
    )


def _names(used: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    return list({name: None for repeats in used.values() for each in repeats for name in each})
