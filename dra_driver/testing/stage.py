# SPDX-License-Identifier: Apache-2.0
"""A cluster of one node on this machine: stand-ins around the real driver, below one temporary directory.

    with Stage(profile="h100x8") as stage:
        stage.start_driver()
        stage.wait_for("the slices are published", stage.slices)
        ...

The API server, scheduler and kubelet are this package's, over HTTP on 127.0.0.1 and unix sockets; the driver is
`dra-driver run` as a child process. Leaving the block ends the child and removes the directory, also when a signal
that raised an exception ends it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol, Self, TypeVar

from dra_driver.config import DEFAULT_DRIVER_NAME, OPTIONS
from dra_driver.errors import Permanent
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import FakeKubelet, KubeletError
from dra_driver.testing.fake_scheduler import FakeScheduler
from dra_driver.testing.plain_client import Object, PlainClient

NODE = "demo-node"
KUBERNETES = "1.37"
DRIVER = str(DEFAULT_DRIVER_NAME)
DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.02
GRACE_SECONDS = 8.0
LOG_TAIL_LINES = 8

Found = TypeVar("Found")


class Child(Protocol):
    """What the stage needs of `subprocess.Popen`."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """What the last `poll` or `wait` found."""

    def poll(self) -> int | None:
        """The return code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The return code, once it ended."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


Spawn = Callable[[Sequence[str], Mapping[str, str], IO[bytes]], Child]
"""Start `dra-driver` with these arguments and this environment; it writes to the file."""


def spawn_program(
    arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
) -> Child:
    """The driver as a program. A session of its own keeps the terminal's Ctrl-C from it."""
    return subprocess.Popen(  # noqa: S603 - the driver itself
        (sys.executable, "-m", "dra_driver", *arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


class Stage:
    """The stand-ins, running; the driver only after `start_driver`."""

    def __init__(self, profile: str, *, spawn: Spawn = spawn_program) -> None:
        self._profile = profile
        self._spawn = spawn
        # Below /tmp where that can be: a unix socket's path has 107 bytes at most.
        base = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 - a fresh private directory is made there
        self.root = Path(tempfile.mkdtemp(prefix="dra-demo-", dir=base))
        self.cdi_dir = self.root / "cdi"
        self.driver: Child | None = None
        self._log = self.root / "driver.log"

    def __enter__(self) -> Self:
        self.api = FakeApi(versions=("v1",)).__enter__()
        self.api.tell_gates({})  # everything is as in its release
        self.client = PlainClient(self.api.url)
        self.scheduler = FakeScheduler(self.client)
        self.kubelet = FakeKubelet(self.root, version=KUBERNETES)
        status = {
            "nodeInfo": {"kubeletVersion": f"v{KUBERNETES}.0"},
            "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
        }
        self.api.put("nodes", {"metadata": {"name": NODE}, "status": status})
        self.api.kubeconfig(self.root / "kubeconfig")
        return self

    def __exit__(self, *_reason: object) -> None:
        # Whoever is impatient now waits a few seconds rather than leave a process and a directory behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.stop_driver()
        self.kubelet.close()
        self.client.__exit__()
        self.api.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # The driver.

    def start_driver(self) -> int:
        """Start `dra-driver run`; answers its process id."""
        known = {option.variable for option in OPTIONS}
        environment = {key: value for key, value in os.environ.items() if key not in known}
        with self._log.open("ab") as log:
            self.driver = self._spawn(("run", *self.driver_flags()), environment, log)
        return self.driver.pid

    def driver_flags(self) -> tuple[str, ...]:
        """What the driver is told."""
        flags = {
            "node-name": NODE,
            "kubeconfig": self.root / "kubeconfig",
            "backend": "simulated",
            "simulated-profile": self._profile,
            "plugins-dir": self.kubelet.plugins_dir,
            "registry-dir": self.kubelet.registry_dir,
            "pod-resources-socket": self.kubelet.pod_resources_socket,
            "cdi-dir": self.cdi_dir,
            "cgroup-root": self.kubelet.cgroup_root,
            "http-address": "",
        }
        return tuple(f"--{name}={value}" for name, value in flags.items())

    def stop_driver(self) -> int | None:
        """Ask the driver to end and wait; answers its exit code, None when none runs."""
        if self.driver is None:
            return None
        if self.driver.poll() is None:
            self.driver.terminate()
        try:
            code = self.driver.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return self.kill_driver()
        self.driver = None
        return code

    def kill_driver(self) -> int | None:
        """SIGKILL: no farewell, no clean-up."""
        if self.driver is None:
            return None
        self.driver.kill()
        code = self.driver.wait()
        self.driver = None
        return code

    def wait_for(self, what: str, look: Callable[[], Found]) -> Found:
        """The first true answer of `look`; Permanent with the end of the driver's log when it ends or takes too long."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (found := look()):
            if self.driver is not None and self.driver.poll() is not None:
                raise Permanent(
                    f"waiting until {what}: the driver ended with {self.driver.returncode}.{self._tail()}"
                )
            if time.monotonic() > deadline:
                raise Permanent(
                    f"waiting until {what}: not within {DEADLINE_SECONDS:.0f} s.{self._tail()}"
                )
            time.sleep(POLL_SECONDS)
        return found

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "".join(("\nThe end of its log:", *(f"\n  {line}" for line in lines)))

    # What the kubelet does.

    def slices(self) -> list[Object]:
        """The driver's slices, empty until all of the pool are there."""
        found = self.client.list("resourceslices")
        return (
            found if found and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"] else []
        )

    def register(self) -> bool:
        """Let the kubelet look for the driver once."""
        return self.kubelet.register(DRIVER) is not None

    def claims_of(self, pod_name: str) -> list[ClaimRef]:
        """The claims of a pod, as its status and spec name them."""
        pod = self.client.get("pods", pod_name) or {"spec": {}}
        names = [
            entry["resourceClaimName"]
            for entry in (
                *pod.get("status", {}).get("resourceClaimStatuses", ()),
                *pod["spec"].get("resourceClaims", ()),
            )
            if "resourceClaimName" in entry
        ]
        claims = [self.client.get("resourceclaims", name) for name in names]
        return [
            ClaimRef("default", claim["metadata"]["name"], ClaimUid(claim["metadata"]["uid"]))
            for claim in claims
            if claim is not None
        ]

    def prepare(self, pod_name: str) -> tuple[str, ...]:
        """What the kubelet does before the pod's containers: the CDI names for the runtime."""
        refs = self.claims_of(pod_name)
        pod = self.client.get("pods", pod_name) or {"metadata": {}}
        uid = PodUid(pod["metadata"].get("uid", ""))
        try:
            self.kubelet.prepare(DRIVER, refs, pod=f"default/{pod_name}", uid=uid or None)
        except KubeletError as error:
            raise Permanent(f"the pod {pod_name} does not start: {error}{self._tail()}") from error
        return tuple(name for ref in refs for name in self.kubelet.cdi_ids(ref.uid))

    def end_pod(self, pod_name: str) -> None:
        """Delete the pod: the kubelet unprepares its claims, the control plane releases them."""
        refs = self.claims_of(pod_name)
        self.client.delete({"kind": "Pod", "metadata": {"name": pod_name, "namespace": "default"}})
        try:
            self.kubelet.unprepare(DRIVER, refs, pod=f"default/{pod_name}")
        except KubeletError as error:
            raise Permanent(f"the pod {pod_name} does not end: {error}{self._tail()}") from error
        self.scheduler.collect()
