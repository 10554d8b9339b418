# SPDX-License-Identifier: Apache-2.0
"""When a node gets 64 pods at once, does it matter to the last one that each has a claim?"""

from hack.bench.cost.bed import Context, driver, run_inside
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.report import Answer, Target, times_table
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
    repeats = 1 if context.quick else 4
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
        Times(f"{PODS} pods {kind} claims", [[seconds] for seconds in found[kind]])
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
        ),
    )
