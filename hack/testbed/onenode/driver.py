# SPDX-License-Identifier: Apache-2.0
"""How does the driver run on the node?

As a program of the host, with the interpreter that runs this file. Its sockets, state and CDI files
lie where a kubelet and a container runtime expect them, inside the node's mount namespace.
"""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from onenode import init, node_files
from onenode.cluster import Cluster
from onenode.namespaces import Program, wait_until

DRIVER_NAME = "gpu.dra-driver.dev"
HTTP_PORT = 9410
STATE_FILE = init.KUBELET_FOLDER / "plugins" / DRIVER_NAME / "state.db"
READY_TIMEOUT_SECONDS = 30
# The port is one of the node's network, so something on the node has to ask.
FETCH = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=2)"


def command(cluster: Cluster, *, profile: str) -> list[str]:
    """The driver's command line. This is the only place that knows its flags."""
    return [
        *(sys.executable, "-m", "dra_driver", "run"),
        *("--kubeconfig", str(cluster.driver_kubeconfig)),
        *("--node-name", node_files.NODE),
        *("--backend", "simulated"),
        *("--simulated-profile", profile),
        *("--boot-id-file", str(cluster.boot_id_file)),
        *("--http-address", f":{HTTP_PORT}"),
        *("--log-level", "debug"),
    ]


class Driver:
    """The driver process of one cluster, which tests kill and start again."""

    def __init__(self, cluster: Cluster, *, profile: str = "h100x8") -> None:
        self.cluster = cluster
        self.profile = profile
        self._program: Program | None = None

    def start(self, extra: Sequence[str] = ()) -> None:
        """Start it and wait until it says that it is ready."""
        line = [*command(self.cluster, profile=self.profile), *extra]
        self._program = self.cluster.run_inside(line, log="driver")
        wait_until(
            self._is_ready,
            f"the driver ({self.cluster.root}/log/driver.log)",
            timeout_seconds=READY_TIMEOUT_SECONDS,
        )

    def play(self, profile: str) -> None:
        """Stand on another machine from now on; nothing may be prepared."""
        if profile == self.profile:
            return
        if self.running:
            self.stop()
        self.profile = profile
        self.start()

    @property
    def running(self) -> bool:
        """Is there a process?"""
        return self._program is not None and self._program.running()

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait for its end; answers the exit status."""
        if self._program is None:
            raise ProcessLookupError("the driver was never started")
        return self._program.stop(sent)

    def ensure_running(self) -> None:
        """Start it unless it runs."""
        if not self.running:
            self.start()

    @property
    def state_file(self) -> Path:
        """Its state, by a path of the outside."""
        return self.cluster.path_inside(STATE_FILE)

    def _is_ready(self) -> bool:
        if not self.running:
            raise ProcessLookupError(f"the driver ended; see {self.cluster.root}/log/driver.log")
        url = f"http://127.0.0.1:{HTTP_PORT}/readyz"
        environment = self.cluster.environment
        ended = self.cluster.namespaces.run([sys.executable, "-c", FETCH, url], env=environment)
        return ended.returncode == 0
