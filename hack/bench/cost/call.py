# SPDX-License-Identifier: Apache-2.0
"""What does the kubelet wait for when a pod with a claim starts, at a real API server?

The measure of one claim is what no driver in Python can do without, in the same loop: an empty call on a bare gRPC server with as many
threads, a GET of the same object by urllib3 with the same credentials on a kept connection, and one small file forced to the disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dra_driver.kubelet.server import THREADS
from hack.bench.cost import claims, installed
from hack.bench.cost.bed import ENDPOINT, HERE, PLUGIN_FOLDER, Context, driver, run_inside
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.node import wait_for
from hack.bench.cost.report import Answer, Target, times_table
from hack.testbed.onenode.cluster import Cluster

LIMIT = 1.5
BARE_SOCKET = PLUGIN_FOLDER / "bare.sock"
NAMES = {
    "empty": f"empty call, bare server with {THREADS} threads",
    "get": "GET of the claim by urllib3, connection kept",
    "write": "2 KB forced to disk",
    "floor": "the three together",
    "prepare": "prepare 1 claim, with its GET",
}


def measure(context: Context) -> Answer:
    """All from one loop on the node."""
    repeats, rounds = (3, 30) if context.quick else (9, 120)
    cluster = context.cluster
    with driver(cluster), _bare(cluster):
        claim = claims.make(cluster, "call", "gpu-0")
        found = run_inside(
            cluster,
            "call_load.py",
            *(str(ENDPOINT), str(BARE_SOCKET), str(cluster.admin_kubeconfig)),
            *(claim.uid, claim.name, str(repeats), str(rounds)),
        )
    times = {what: Times(name, found[what]) for what, name in NAMES.items()}
    floor = "(empty call + bare GET + one 2 KB write with fsync)"
    return Answer(
        (
            Target(
                f"prepare one claim at a real API server ÷ {floor}, p50",
                ratio(times["prepare"], times["floor"]),
                LIMIT,
            ),
        ),
        (
            times_table(
                f"On the test bed's node, {repeats} repeats of {rounds} rounds, everything in turn in each round:",
                list(times.values()),
            ),
        ),
    )


@contextmanager
def _bare(cluster: Cluster) -> Iterator[None]:
    command = [installed.python(), str(HERE / "bare_server.py"), str(BARE_SOCKET), str(THREADS)]
    program = cluster.run_inside(command, log="bench-bare")
    try:
        wait_for(cluster.path_inside(BARE_SOCKET).exists, "the bare server")
        yield
    finally:
        program.stop()
