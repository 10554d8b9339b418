# SPDX-License-Identifier: Apache-2.0
"""What do pods and containers feel of it? Nothing here has a target: most of it is the work of others."""

from hack.bench.cost.bed import CDI_FOLDER, Context, driver, run_inside
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.report import Answer, Target, times_table
from hack.testbed.onenode import node_files

FILES = 500
GROUPS = 3


def measure(context: Context) -> Answer:
    """Containers by the runtime's own interface, pods by the API server."""
    rounds, pods = (6, 2) if context.quick else (60, 15)
    cluster = context.cluster
    with driver(cluster):
        ready = run_inside(
            cluster, "pods_load.py", str(cluster.admin_kubeconfig), node_files.IMAGE, str(pods)
        )
    cluster.stop_kubelet()  # it removes containers that are of none of its pods
    made = run_inside(
        cluster,
        "cri_load.py",
        *(node_files.RUNTIME_SOCKET, node_files.IMAGE, str(CDI_FOLDER), str(FILES), str(rounds)),
    )
    cluster.start_kubelet()
    cases = {
        "plain-0": "container without a claim, no CDI files",
        f"plain-{FILES}": f"container without a claim, {FILES} claims' files",
        "claim-0": "container with a claim, its file the only one",
        f"claim-{FILES}": f"container with a claim, {FILES} other claims' files",
        "known-0": "from the file's rename until the runtime knows the device, the only file",
        f"known-{FILES}": f"the same among {FILES} other files",
    }
    containers = {case: Times(what, made[case]) for case, what in cases.items()}
    without, with_claim = (
        Times("pod without a claim", _repeats(ready["without"])),
        Times("pod with a claim", _repeats(ready["with"])),
    )
    return Answer(
        (
            Target(
                f"container with a claim among {FILES} files ÷ alone, p50",
                ratio(containers[f"claim-{FILES}"], containers["claim-0"]),
                None,
            ),
            Target(
                "pod with a claim ÷ without, created to Ready, p50",
                ratio(with_claim, without),
                None,
            ),
        ),
        (
            times_table(
                "CreateContainer in containerd, in blocks with and without the other files:",
                list(containers.values()),
            ),
            times_table(
                "From the request to Ready, in turn, one pod at a time, the images there:",
                [without, with_claim],
            ),
        ),
    )


def _repeats(times: list[float]) -> list[list[float]]:
    """The pods in groups, one after the other, to see how much noise there is."""
    size = max(1, len(times) // GROUPS)
    return [times[first : first + size] for first in range(0, len(times), size)]
