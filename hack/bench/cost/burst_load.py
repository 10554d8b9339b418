# SPDX-License-Identifier: Apache-2.0
"""Runs on the test bed's node: creates many pods at once, in turn without and with claims, and sees when the last is Ready.

    python burst_load.py KUBECONFIG IMAGE PODS REPEATS

Prints one JSON object, for each kind of pod and each repeat the seconds from the first request to the moment at which the last is Ready
(`seconds`), and the CPU seconds of each program of the node meanwhile (`cpu`).
"""

import json
import sys
import time
from pathlib import Path

from dra_driver.kube.auth import connect
from dra_driver.kube.transport import Transport
from hack.bench.cost import programs
from hack.bench.cost.pods_load import NAMESPACE, Ready, delete_pod, make_template, pod, post


def main() -> None:
    """All pods of one kind, then all of the other, each repeat beginning with another kind.

    A kind begins when nothing of the one before is left: the end of pods, and of their claims, takes longer than until they are gone.
    """
    transport = Transport(connect(Path(sys.argv[1])))
    image, pods, repeats = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    make_template(transport)
    ready = Ready(transport)
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    cpu: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for repeat in range(repeats):
        kinds = list(seconds)[:: 1 if repeat % 2 else -1]
        for kind in kinds:
            names = [f"{kind}-{repeat}-{number}" for number in range(pods)]
            programs.wait_for_rest()
            used, begun = programs.seconds(), time.perf_counter()
            for name in names:
                post(transport, f"{NAMESPACE}/pods", pod(name, image, claim=kind == "with"))
            seconds[kind].append(max(ready.wait(name, "ready") for name in names) - begun)
            cpu[kind].append(programs.between(used, programs.seconds()))
            for name in names:
                delete_pod(transport, name)
            for name in names:
                ready.wait(name, "gone")
    print(json.dumps({"seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    main()
