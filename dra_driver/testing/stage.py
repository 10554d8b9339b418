# SPDX-License-Identifier: Apache-2.0
"""A cluster of one node on this machine: fakes around the real driver, with all files below one directory.

    with temporary_stage("--backend", "simulated", "--simulated-profile", "h100x8") as stage:
        stage.start_registered()
        stage.wait_for(stage.published, "the slices are published")
        claim = stage.claim("one", ["gpu-0"])
        stage.kubelet.prepare(DRIVER, [claim])

The API server, the scheduler and the kubelet are the fakes of this package, over HTTP on 127.0.0.1 and unix sockets. The driver is
`dra-driver run` as a child process. A test can start, stop and kill it several times; the state file, the kubelet and the API server
stay. The end of the block ends the child process and removes the directory, also after an exception.
"""

import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from dra_driver.config.options import DEFAULT_DRIVER_NAME, OPTIONS
from dra_driver.errors import Permanent
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.testing.fake_api import FakeApi, Refused
from dra_driver.testing.fake_kubelet import FakeKubelet, KubeletError
from dra_driver.testing.fake_scheduler import FakeScheduler
from dra_driver.testing.plain_client import Object, PlainClient

NODE = "node1"
KUBERNETES = "1.37"
DRIVER = str(DEFAULT_DRIVER_NAME)
DEADLINE_SECONDS = 300.0  # against hanging: ten times as long as the slowest of these waits
SHORT_DEADLINE_SECONDS = 30.0  # for the demo, where a person waits
POLL_SECONDS = 0.01
LOG_TAIL_LINES = 8

Found = TypeVar("Found")


class StageFailed(Permanent, AssertionError):
    """An expected change did not happen in time, or the driver ended. The message has the end of the driver's log."""


class Child(Protocol):
    """The parts of `subprocess.Popen` that the stage uses; tests also have a child that is a fork."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The return code that the last `poll` or `wait` found; None if the process still ran."""

    def poll(self) -> int | None:
        """Return the return code; None if the process still runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the return code."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""

    def kill(self) -> None:
        """Send SIGKILL."""


StartChild = Callable[[str, Sequence[str], Mapping[str, str], IO[bytes]], Child]
"""A function that starts a Python module with these arguments and this environment, with its output in the file."""


def start_program(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
) -> Child:
    """Start a module as a program. It gets its own session, so that Ctrl-C in the terminal does not reach it."""
    return subprocess.Popen(  # noqa: S603 - the driver itself
        (sys.executable, "-m", module, *arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def wait_for(
    condition: Callable[[], Found],
    what: str,
    *,
    log: Callable[[], str] = str,
    seconds: float = DEADLINE_SECONDS,
) -> Found:
    """Wait until the condition is true, and return its answer. Raises StageFailed with the log if that takes too long."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > end:
            raise StageFailed(f"waited {seconds:.0f} s until {what}\n{log()}")
        time.sleep(POLL_SECONDS)
    return answer


def listener(path: Path) -> int:
    """Return the ID of the process that listens on a socket; 0 if there is none."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except OSError:
            return 0
        packed = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process: int = struct.unpack("3i", packed)[0]
    return process


class Stage:
    """The running fakes below `root`. The driver runs after `start`.

    Every start of the driver uses `flags`, followed by the flags of `start`.
    """

    def __init__(
        self,
        root: Path,
        api: FakeApi,
        *flags: str,
        node: str = NODE,
        kubernetes: str = KUBERNETES,
        start_child: StartChild = start_program,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.root = root
        self.api = api
        self.node = node
        self.kubernetes = kubernetes
        self.start_child = start_child
        self.deadline_seconds = deadline_seconds
        self.client = PlainClient(api.url)
        self.scheduler = FakeScheduler(self.client)
        self.kubelet = FakeKubelet(root, version=kubernetes, reserve=self.reserve)
        self.boot_id_file = root / "boot_id"
        self.boot_id_file.write_text("boot-1\n")
        self.cdi_dir = root / "cdi"
        self.features_dir = root / "features.d"  # made by a test that wants labels
        self.state_file = root / "state" / "state.db"
        self.kubeconfig = root / "kubeconfig"
        self.log_file = root / "driver.log"
        self.process: Child | None = None
        self._flags = flags
        api.kubeconfig(self.kubeconfig)
        status = {
            "nodeInfo": {"kubeletVersion": f"v{kubernetes}.1"},
            "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
        }
        api.put("nodes", {"metadata": {"name": node}, "status": status})

    def close(self) -> None:
        """End the driver and the kubelet. The caller ends the API server."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(self.deadline_seconds)
        self.kubelet.close()
        self.client.__exit__()

    # The driver.

    def arguments(self) -> list[str]:
        """Return the arguments of `dra-driver run`; all paths are below `root`."""
        options = {
            "node-name": self.node,
            "kubeconfig": self.kubeconfig,
            "backend": "simulated",
            "plugins-dir": self.kubelet.plugins_dir,
            "device-plugins-dir": self.kubelet.device_manager.folder,
            "registry-dir": self.kubelet.registry_dir,
            "pod-resources-socket": self.kubelet.pod_resources_socket,
            "cgroup-root": self.kubelet.cgroup_root,
            "cdi-dir": self.cdi_dir,
            "state-dir": self.state_file.parent,
            "boot-id-file": self.boot_id_file,
            "nfd-features-dir": self.features_dir,
            "http-address": "",
        }
        told = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [*told, *self._flags]

    def start(self, *extra: str, die_at: str = "", report: Path | None = None) -> int:
        """Start the driver; returns its process ID. With `die_at` the driver writes the failpoint to `report` and kills itself there."""
        module, first = "dra_driver", ["run"]
        if die_at:
            module, first = (
                "dra_driver.testing.run",
                ["--die-at", die_at, "--report", str(report), "--"],
            )
        if "--pod-uid" in extra:  # then the driver runs in a pod of this node
            self.kubelet.cgroups.run(PodUid(extra[extra.index("--pod-uid") + 1]))
        known = {option.variable for option in OPTIONS}
        environment = {key: value for key, value in os.environ.items() if key not in known}
        with self.log_file.open("ab") as log:
            self.process = self.start_child(
                module, [*first, *self.arguments(), *extra], environment, log
            )
        return self.process.pid

    def start_registered(self, *extra: str, die_at: str = "", report: Path | None = None) -> None:
        """Start the driver and let the kubelet register it."""
        self.start(*extra, die_at=die_at, report=report)
        self.register()

    def register(self) -> None:
        """Wait until the kubelet has registered this process. The sockets of a killed process exist until the next start removes them."""
        self.wait_for(self._is_called, "the kubelet finds the driver's registration socket")

    def _is_called(self) -> bool:
        plugin = self.kubelet.register(DRIVER)
        return plugin is not None and all(
            listener(Path(path)) == self._child.pid for path in (plugin.socket, plugin.endpoint)
        )

    @property
    def _child(self) -> Child:
        assert self.process is not None, "start the driver first"
        return self.process

    def alive(self) -> bool:
        """Return True if the process runs. Raises StageFailed with its log if it does not, so that no caller waits for it."""
        if self._child.poll() is not None:
            raise StageFailed(f"the driver ended with {self._child.returncode}.{self._tail()}")
        return True

    def kill(self) -> None:
        """Kill the driver with SIGKILL, as the kernel's out-of-memory killer does: it cannot clean up."""
        self.stop(signal.SIGKILL)

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if self._child.poll() is None:
            self._child.send_signal(sent)
        return self._child.wait(self.deadline_seconds)

    def wait_for(self, condition: Callable[[], Found], what: str) -> Found:
        """Wait until the condition is true, and return its answer. Raises StageFailed with the log if that takes too long."""

        def look() -> Found:
            self.alive()
            return condition()

        return wait_for(look, what, log=self._tail, seconds=self.deadline_seconds)

    def log(self) -> str:
        """Return the driver's log so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _tail(self) -> str:
        lines = self.log().splitlines()[-LOG_TAIL_LINES:]
        return "".join(("\nThe end of its log:", *(f"\n  {line}" for line in lines)))

    # Files of the node and the driver.

    def reboot(self) -> None:
        """Reboot the node: a new boot ID, an empty /var/run, and a kubelet that knows its claims but not which are prepared."""
        self.boot_id_file.write_text(self.boot_id_file.read_text().strip() + "+\n")
        for file in self.cdi_dir.iterdir():
            file.unlink()
        self.kubelet.reboot()

    def cdi_files(self) -> dict[str, str]:
        """Return all files in the CDI directory, including hidden files. One that goes meanwhile is gone."""
        texts: dict[str, str] = {}
        for path in sorted(self.cdi_dir.iterdir()):
            with suppress(FileNotFoundError):
                texts[path.name] = path.read_text()
        return texts

    def rows(self) -> dict[str, tuple[str, str]]:
        """Return phase and boot ID by claim UID, from the state file."""
        return {
            uid: (phase, boot)
            for uid, phase, boot in self._query("SELECT uid, phase, boot_id FROM claims")
        }

    def owners(self) -> dict[str, str]:
        """Return the UID of the owning claim by device, from the state file."""
        return dict(self._query("SELECT device, claim_uid FROM owners"))

    def _query(self, statement: str) -> list[Any]:
        if not self.state_file.exists():
            return []
        connection = sqlite3.connect(self.state_file)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def slices(self) -> list[Object]:
        """Return the slices at the API server."""
        found: list[Object] = self.api.objects("resourceslices")
        return found

    def published(self) -> list[Object]:
        """Return the driver's slices; empty until all slices of the pool exist."""
        found = self.slices()
        return (
            found if found and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"] else []
        )

    # Claims, as the control plane makes them.

    def claim(self, name: str, devices: Sequence[str], **config: Any) -> ClaimRef:
        """Create a ResourceClaim to which these devices are allocated; `config` has further fields of `status.allocation.devices`."""
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": self.node, "device": device}
            for device in devices
        ]
        status = {"allocation": {"devices": {"results": results, **config}}}
        stored = self.api.put(
            "resourceclaims",
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {}},
                "status": status,
            },
        )
        return ClaimRef("default", name, ClaimUid(stored["metadata"]["uid"]))

    def reserve(self, ref: ClaimRef, pod: PodUid) -> None:
        """Add the pod to `status.reservedFor`, as the scheduler does. Does nothing if the API server does not have the claim."""
        try:
            claim = self.api.object("resourceclaims", ref.name, namespace=ref.namespace)
        except Refused:
            return
        users = claim["status"].get("reservedFor", [])
        if claim["metadata"]["uid"] == ref.uid and pod not in [user["uid"] for user in users]:
            user = {"resource": "pods", "name": "pod", "uid": pod}
            status = {**claim["status"], "reservedFor": [*users, user]}
            self.api.put("resourceclaims", {**claim, "status": status})

    # Pods, as the scheduler placed them.

    def claims_of(self, pod_name: str) -> list[ClaimRef]:
        """Return the claims that the status and the spec of a pod name."""
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
        """Prepare the claims of a pod, as the kubelet does; returns the CDI names for the runtime."""
        refs = self.claims_of(pod_name)
        pod = self.client.get("pods", pod_name) or {"metadata": {}}
        uid = PodUid(pod["metadata"].get("uid", ""))
        try:
            self.kubelet.prepare(DRIVER, refs, pod=f"default/{pod_name}", uid=uid or None)
        except KubeletError as error:
            raise StageFailed(
                f"the pod {pod_name} does not start: {error}{self._tail()}"
            ) from error
        return tuple(name for ref in refs for name in self.kubelet.cdi_ids(ref.uid))

    def end_pod(self, pod_name: str) -> None:
        """Delete the pod: the kubelet unprepares its claims, and the control plane deallocates them."""
        refs = self.claims_of(pod_name)
        self.client.delete({"kind": "Pod", "metadata": {"name": pod_name, "namespace": "default"}})
        try:
            self.kubelet.unprepare(DRIVER, refs, pod=f"default/{pod_name}")
        except KubeletError as error:
            raise StageFailed(f"the pod {pod_name} does not end: {error}{self._tail()}") from error
        self.scheduler.collect()


@contextmanager
def temporary_stage(
    *flags: str,
    node: str = NODE,
    start_child: StartChild = start_program,
    prefix: str = "dra-stage-",
) -> Iterator[Stage]:
    """Return a stage in a new directory, which is removed at the end."""
    # Below /tmp if possible: the path of a unix socket has at most 107 bytes.
    base = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 - a fresh private directory is made there
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=base, ignore_cleanup_errors=True) as root,
        FakeApi(versions=("v1",)) as api,
    ):
        api.tell_gates({})  # every gate has the default of its release
        stage = Stage(
            Path(root),
            api,
            *flags,
            node=node,
            start_child=start_child,
            deadline_seconds=SHORT_DEADLINE_SECONDS,
        )
        try:
            yield stage
        finally:
            # Ctrl-C is ignored during the clean-up, which takes a few seconds. Otherwise a process and a directory would be left.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            stage.close()
