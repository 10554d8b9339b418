# SPDX-License-Identifier: Apache-2.0
"""A node whose driver serves the device plugin API, and pods that ask for extended resources.

The driver is a program of the node here, with a config document of its own for each test. Whether a pod has what it was promised is
asked of its container (its variables, its /dev) and of its cgroup (which device may it open?), never of the driver.
"""

import json
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from hack.testbed.onenode import devices
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.driver import STATE_FILE, Driver
from hack.testbed.onenode.namespaces import Program, wait_until
from hack.testbed.onenode.node_files import CDI_FOLDER, IMAGE, NODE
from tests.e2e.story import FIRST, Story

GPU = "nvidia.com/gpu"
SIMULATED = Path("/dev/dra-simulated")
MAJOR = 120  # of simulated devices
MOST_DEVICES = 8
# The node's status tells the resources every ten seconds; a busy machine needs some more.
OFFER_SECONDS = 90
MOST_TRIES = 20  # the node tells that no device is free within ten seconds, and a refusal takes less than one
REFUSED = "UnexpectedAdmissionError"
OPENED = re.compile(r"^opened (\d+)$", re.MULTILINE)
Object = dict[str, Any]


class PluginNode:
    """The node and its driver. `run` starts the driver, or starts it anew if it was told something else before."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.faults = cluster.root / "faults.yaml"
        self._document: Object = {}
        self._program: Program | None = None

    def make_device_files(self) -> None:
        """Put the files of simulated devices onto the node: a kubelet that passes them on itself looks for them there."""
        own = self.cluster.root / "dev"
        if own.exists():
            return  # another module's tests on the same cluster made them
        own.mkdir()
        devices.mount_own_dev(self.cluster, own)
        names = [f"gpu-{number}" for number in range(MOST_DEVICES)]
        devices.make_device_files(self.cluster, SIMULATED, MAJOR, names)

    def simulated(self, profile: str = "h100x8", **more: Any) -> Object:
        """A config document with this machine."""
        backend = {"profile": profile, "faults": str(self.faults)}
        return {"backends": {"simulated": backend}, **more}

    def run(self, document: Object) -> None:
        """Let a driver run that was told this."""
        if self._program and self._program.running() and document == self._document:
            return
        self.stop()
        self._document = document
        self.set_faults({})
        head = {"apiVersion": "config.dra-driver.dev/v1alpha1", "kind": "DriverConfig"}
        self._file.write_bytes(msgspec.yaml.encode({**head, "logLevel": "debug", **document}))
        self.start()

    @property
    def _file(self) -> Path:
        return self.cluster.root / "driver.yaml"

    def start(self) -> None:
        """Start the driver with what it was told last, and wait until the kubelet knows its resources."""
        told = {
            "--config": self._file,
            "--node-name": NODE,
            "--kubeconfig": self.cluster.admin_kubeconfig,
            "--boot-id-file": self.cluster.boot_id_file,
        }
        words = [str(word) for pair in told.items() for word in pair]
        argv = [sys.executable, "-m", "dra_driver", "run", *words]
        self._program = self.cluster.run_inside(argv, log="driver")
        ready = ["/bin/busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:9410/readyz"]
        log = f"{self.cluster.root}/log/driver.log"
        wait_until(lambda: self.cluster.output_of(ready, check=False), f"the driver ({log})")

    def stop(self) -> None:
        """Kill it, as the kernel does when memory runs out."""
        if self._program:
            self._program.stop()
        self._program = None

    def set_faults(self, faults: Mapping[str, Object]) -> None:
        """What is wrong with which simulated devices."""
        self.faults.write_text(json.dumps({"devices": faults}))

    def said(self, event: str) -> list[Object]:
        """The lines of the driver's log with this event."""
        text = (self.cluster.root / "log" / "driver.log").read_text()
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def offered(self, resource: str = GPU) -> tuple[int, int]:
        """What the node has of a resource, and what of it can be given out."""
        status = self.cluster.get("node", NODE)["status"]
        return int(status["capacity"].get(resource, 0)), int(status["allocatable"].get(resource, 0))

    def wait_offered(
        self, count: int, resource: str = GPU, *, allocatable: int | None = None
    ) -> None:
        """Wait until the node's status says so."""
        wanted = count, count if allocatable is None else allocatable
        what = f"{wanted} of {resource} on the node"
        wait_until(
            lambda: self.offered(resource) == wanted or None, what, timeout_seconds=OFFER_SECONDS
        )

    def rows(self) -> list[str]:
        """The UIDs of everything that the driver's state says is given out."""
        file = self.cluster.path_inside(STATE_FILE)
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as state:
            return [uid for (uid,) in state.execute("SELECT uid FROM claims")]

    def wait_all_free(self) -> None:
        """Wait until nothing is given out, and no file is left of it."""
        folder = self.cluster.path_inside(Path(CDI_FOLDER))
        left = lambda: [*self.rows(), *(file.name for file in folder.glob("*.json"))]  # noqa: E731
        wait_until(lambda: not left(), "all devices to be free", timeout_seconds=60)


class PluginStory(Story):
    """A namespace with pods that ask for extended resources."""

    __slots__ = ()

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(Driver(cluster), namespace)  # for its cluster; it is not installed

    def end(self) -> None:
        """Delete all pods, and wait until they are gone. An old cluster knows no claims."""
        self._kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=1")
        wait_until(lambda: not self.pods(), f"the end of all pods in {self.namespace}")
        self.driver.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def asks(
        self,
        name: str,
        count: int = 0,
        resource: str = GPU,
        *,
        image: str = IMAGE,
        init: bool = False,
        grace_seconds: int = 30,
        restart: str = "Never",
        affinity: Sequence[Mapping[str, object]] = (),
    ) -> None:
        """Create a pod that asks for so many devices; with `init` an init container asks for them as well. `affinity` are the expressions that the
        Node's labels must fulfil.

        Process 1 of a container hears no SIGTERM, so the pod takes its whole grace period.
        """
        limits = {"resources": {"limits": {resource: str(count)}}} if count else {}
        common = {"image": image, "imagePullPolicy": "Never", **limits}
        spec: Object = {
            "containers": [{"name": FIRST, **common}],
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": grace_seconds,
        }
        if init:
            script = "env | grep GPU_DEVICE_ | sort >/dev/termination-log"
            first = {"name": "first", **common, "command": ["sh", "-c", script]}
            spec["initContainers"] = [first]
        if affinity:
            terms = {"nodeSelectorTerms": [{"matchExpressions": list(affinity)}]}
            spec["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            }
        metadata = {"name": name, "namespace": self.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.driver.cluster.apply(pod)

    def runs(self, name: str, count: int = 0, resource: str = GPU, **more: Any) -> None:
        """Create such a pod, and wait until it runs."""
        self.asks(name, count, resource, **more)
        self.wait_ready(name)

    def runs_at_last(self, name: str, count: int, **more: Any) -> str:
        """Create pods, as a Deployment does, until one of them is admitted and runs. Answers its name."""
        for number in range(MOST_TRIES):
            tried = f"{name}-{number}"
            self.asks(tried, count, **more)
            wait_until(
                lambda tried=tried: self._is_ready(tried) or self.phase(tried) == "Failed",
                f"pod {tried}",
                timeout_seconds=120,
            )
            if self.phase(tried) != "Failed":
                return tried
            assert self.refused(tried)
        raise AssertionError(f"{MOST_TRIES} pods were not admitted")

    def phase(self, name: str) -> str:
        """The phase of the pod."""
        return str(self.found(name)["status"]["phase"])

    def found(self, name: str) -> Object:
        """The pod as the API server has it."""
        return self._object("pod", name)

    def refused(self, name: str) -> str:
        """Why the kubelet did not admit the pod, when it has said so."""

        def said() -> str:
            status = self.found(name)["status"]
            return str(status["message"]) if status.get("reason") == REFUSED else ""

        return wait_until(said, f"the refusal of pod {name}")

    def container_id(self, pod: str) -> str:
        """The runtime's name of the pod's container."""
        [status] = self.found(pod)["status"]["containerStatuses"]
        return str(status["containerID"]).partition("://")[2]

    def minors(self, pod: str) -> set[int]:
        """The numbers of the device files that the container has."""
        return {minor for _, minor in self.seen_by(pod).nodes.values()}

    def may_open(self, pod: str) -> set[int]:
        """The simulated devices that the cgroup lets the container open, by files that it makes itself. None of them has a driver."""
        tries = (
            f"for m in $(seq 0 {MOST_DEVICES - 1}); do rm -f /made$m; mknod /made$m c {MAJOR} $m; "
            "( : <> /made$m ) 2>&1 | grep -q 'No such device' && echo opened $m; done"
        )
        return {int(found) for found in OPENED.findall(self.shell(pod, tries))}

    def has(self, pod: str) -> set[int]:
        """The devices of the container; its /dev, its variables and its cgroup say the same."""
        seen = self.seen_by(pod)
        minors = {minor for _, minor in seen.nodes.values()}
        assert self.may_open(pod) == minors
        assert len(set(seen.devices.values())) == len(minors)
        return minors
