# SPDX-License-Identifier: Apache-2.0
"""The test bed's cluster for questions that need a real API server, kubelet or container runtime.

It is started when the first question asks for it, and serves them all. The driver runs as a program of the node here,
not from its image: what is measured is the driver, and not how long a kubelet takes to start a container.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.bench.cost import installed
from hack.bench.cost.log import Log
from hack.bench.cost.node import DRIVER
from hack.testbed.onenode import build, init, node_files, preflight
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import Program

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
PLUGIN_FOLDER = init.KUBELET_FOLDER / "plugins" / DRIVER
ENDPOINT = PLUGIN_FOLDER / "dra.sock"
REGISTRATION = init.KUBELET_FOLDER / "plugins_registry" / f"{DRIVER}-reg.sock"
CDI_FOLDER = Path("/var/run/cdi")
NODE = node_files.NODE


@dataclass(slots=True)
class Context:
    """What a question is given: how much to do, another tree to compare with, and the cluster."""

    quick: bool
    against: Path | None = None
    _cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, started on first use."""
        if self._cluster is None:
            preflight.require()
            self._cluster = Cluster(build.build())
            self._cluster.start()
            self._cluster.kubectl("apply", "-f", str(REPOSITORY / "deviceclasses"))
        return self._cluster

    def close(self) -> None:
        """Stop what was started."""
        if self._cluster is not None:
            self._cluster.stop()


def driver_command(cluster: Cluster, *more: str) -> list[str]:
    """The driver's command line on the node, with more arguments."""
    return [
        *(installed.python(), "-m", "dra_driver", "run"),
        *("--backend", "simulated"),
        *("--kubeconfig", str(cluster.admin_kubeconfig), "--node-name", NODE),
        *("--boot-id-file", str(cluster.boot_id_file)),
        *more,
    ]


@contextmanager
def driver(cluster: Cluster, *more: str) -> Iterator[Program]:
    """The driver on the node with these arguments, ready to prepare claims."""
    logged = Log(cluster.root / "log" / "bench-driver.log")
    program = cluster.run_inside(driver_command(cluster, *more), log="bench-driver")
    try:
        logged.wait("published")
        logged.wait("registered")
        yield program
    finally:
        program.stop(signal.SIGTERM)


def run_inside(cluster: Cluster, script: str, *arguments: str, seconds: float = 600) -> Any:
    """Run one of this package's scripts on the node; answers the JSON that it prints last."""
    command = [installed.python(), str(HERE / script), *arguments]
    ended = subprocess.run(
        cluster.namespaces.enter_command(command),
        env={**cluster.environment, "PYTHONPATH": str(REPOSITORY)},  # for what scripts share
        cwd=cluster.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=seconds,
    )
    if ended.returncode:
        raise SystemExit(f"{script} ended with {ended.returncode}: {ended.stdout[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])
