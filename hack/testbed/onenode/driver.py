# SPDX-License-Identifier: Apache-2.0
"""How does the driver run on the node?

As on a real one: a DaemonSet, from the project's image and chart. A DaemonSet brings a dead driver
back at once, which is not what every test wants to look at; a driver that is to stay away is kept
from the node by a nodeSelector that no node has.
"""

import json
import os
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hack.testbed.onenode import init
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.release import NAME, NAMESPACE, Release, build_image

DRIVER_NAME = "gpu.dra-driver.dev"
STATE_FILE = init.KUBELET_FOLDER / "plugins" / DRIVER_NAME / "state.db"
READY_SECONDS = 120  # the kubelet may be waiting before it starts a container again
ELSEWHERE = {"dra-driver.testbed/no-node": "true"}
HELD = "dra-driver.testbed/held"  # a finalizer: the pod's last words can be read while it is there
TAG = "testbed"


class Driver:
    """The driver of one cluster, which tests stop, kill and start again."""

    def __init__(self, cluster: Cluster, *, profile: str = "h100x8") -> None:
        self.cluster = cluster
        self.profile = profile
        self.release = Release(cluster)
        self.installed = False

    def start(self) -> None:
        """Bring it to the node, and wait until it is ready and leads."""
        if self.installed:
            self._choose_nodes({})
        else:
            self.install()
        self.wait_leading()

    def install(self, tag: str = TAG) -> None:
        """Give the node the image and install the chart."""
        archive = build_image(self.cluster.root / "driver.tar", version=tag)
        self.cluster.import_image(archive)
        self.release.install(self.values(tag))
        self.installed = True

    def values(self, tag: str = TAG) -> dict[str, Any]:
        """What the chart is told."""
        return {"image": {"tag": tag}, "backends": {"simulated": {"profile": self.profile}}}

    def play(self, profile: str) -> None:
        """Stand on another machine from now on; nothing may be prepared."""
        if profile == self.profile:
            return
        self.profile = profile
        self.release.upgrade(self.values())
        self.wait_leading()

    @property
    def running(self) -> bool:
        """Is there a driver on the node?"""
        return self.installed and bool(self.processes())

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal and keep it away from the node; answers the exit status of the container."""
        [pod] = self.release.pods()
        name = pod["metadata"]["name"]
        self._hold(name, {"finalizers": [HELD]})
        processes = self.processes()
        if sent == signal.SIGKILL:
            # Frozen, it cannot heed the SIGTERM that comes with the end of its pod.
            for process in processes:
                os.kill(process, signal.SIGSTOP)
        self._choose_nodes(ELSEWHERE)
        if sent == signal.SIGKILL:
            # A kubelet that has not heard of the end yet would start the container once more.
            wait_until(lambda: self._is_ending(name), f"the kubelet to end pod {name}")
            for process in processes:
                os.kill(process, signal.SIGKILL)
        code = wait_until(lambda: self._exit_code(name), f"the end of pod {name}")
        self._hold(name, {"finalizers": None})
        wait_until(lambda: not self.release.pods(), f"the removal of pod {name}")
        return code[0]

    def ensure_running(self) -> None:
        """Start it unless it runs."""
        if not self.running:
            self.start()

    @property
    def state_file(self) -> Path:
        """Its state, by a path of the outside."""
        return self.cluster.path_inside(STATE_FILE)

    def _choose_nodes(self, selector: dict[str, str]) -> None:
        change = {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": selector}
        self._kubectl("patch", "daemonset", NAME, "--type=json", "--patch", json.dumps([change]))

    def _hold(self, pod: str, metadata: dict[str, Any]) -> None:
        patch = json.dumps({"metadata": metadata})
        self._kubectl("patch", "pod", pod, "--type=merge", "--patch", patch)

    def _kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *arguments)

    def _is_ending(self, name: str) -> bool:
        [known] = [pod for pod in self.cluster.pods_of_kubelet() if pod["metadata"]["name"] == name]
        return "deletionTimestamp" in known["metadata"]

    def _exit_code(self, name: str) -> tuple[int, ...]:
        for pod in self.release.pods():
            for status in pod["status"].get("containerStatuses", []):
                ended = status["state"].get("terminated")
                if pod["metadata"]["name"] == name and ended:
                    return (int(ended["exitCode"]),)
        return ()

    def processes(self) -> list[int]:
        """The driver's processes, by their numbers outside."""
        return [pid for pid in self.cluster.namespaces.processes() if _is_driver(pid)]

    def listens(self) -> bool:
        """Does somebody answer on its sockets? Asks nobody but the node."""
        with ExitStack() as opened:
            folder = os.open(self.state_file.parent, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            asking = opened.enter_context(socket.socket(socket.AF_UNIX))
            # dra.sock where the chart does not surge, else dra-<pod's UID>.sock.
            names = [path.name for path in self.state_file.parent.glob("dra*.sock")]
            # By the folder's handle: the path itself is too long for a socket's.
            return any(asking.connect_ex(f"/proc/self/fd/{folder}/{name}") == 0 for name in names)

    def wait_leading(self) -> None:
        """Wait until its one pod is ready and has published."""
        wait_until(
            self._leads, "the driver's pod to be ready and to lead", timeout_seconds=READY_SECONDS
        )

    def _leads(self) -> bool:
        pods = self.release.pods()
        if len(pods) != 1 or not is_ready(pods[0]):
            return False
        return any(line.get("event") == "published" for line in self.release.log_of(pods[0]))


def _is_driver(process: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return b"run" in words and any(
            b"dra-driver" in word or b"dra_driver" in word for word in words
        )
    return False


def is_ready(pod: dict[str, Any]) -> bool:
    """Is the pod ready, and not about to go?"""
    conditions = pod["status"].get("conditions", [])
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
