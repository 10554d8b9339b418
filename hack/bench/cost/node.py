# SPDX-License-Identifier: Apache-2.0
"""A driver of its own folder, and a caller in the kubelet's place that sends bytes and takes the time.

State, locks and sockets lie on a disk, CDI files on a tmpfs, as on a real node: what a commit costs is what a disk's
flush costs, so a folder that is no disk is refused.
"""

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import grpc

from dra_driver.kubelet import dra
from dra_driver.kubelet.pb import dra_v1_pb2 as pb
from dra_driver.testing.fake_cgroups import FakeCgroups
from hack.bench.cost import installed
from hack.bench.cost import machine as many
from hack.bench.cost.bench_daemon import EMPTY_METHOD, EMPTY_SERVICE, POD

DAEMON = Path(__file__).with_name("bench_daemon.py").relative_to(installed.REPOSITORY)
DRIVER = "gpu.dra-driver.dev"
NODE = "node1"
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  a tmpfs is what is wanted
DEADLINE_SECONDS = 60
WRITTEN = b"x" * 2048
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"""


def filesystem_of(path: Path) -> str:
    """The type of the filesystem that a path lies on."""
    found = subprocess.run(
        ["stat", "--file-system", "--format=%T", path], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def disk_folder() -> Path:
    """A new folder on a disk: below TMPDIR, else below the home folder."""
    for base in (tempfile.gettempdir(), str(Path.home())):
        if filesystem_of(Path(base)) not in ("tmpfs", "ramfs", "overlayfs"):
            return Path(tempfile.mkdtemp(prefix="dra-bench-", dir=base))
    raise SystemExit(
        "neither the temporary nor the home folder is on a disk: set TMPDIR to one that is"
    )


def wait_for(look: Callable[[], object], what: str, pause_seconds: float = 0.001) -> None:
    """Look until it is true."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not look():
        if time.monotonic() > end:
            raise SystemExit(f"waited {DEADLINE_SECONDS} s for {what}")
        time.sleep(pause_seconds)


class Caller:
    """Calls a driver as the kubelet does, with bytes, and takes the time."""

    def __init__(self, endpoint: Path) -> None:
        self.folder = endpoint.parent
        self._channel = grpc.insecure_channel(
            f"unix:{endpoint}", options=(("grpc.enable_http_proxy", 0),)
        )
        self._prepare = self._method(dra.SERVICE, "NodePrepareResources")
        self._unprepare = self._method(dra.SERVICE, "NodeUnprepareResources")
        self._nothing = self._method(EMPTY_SERVICE, EMPTY_METHOD)
        self._written = 0

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def _method(self, service: str, method: str) -> Callable[[bytes], bytes]:
        call: Callable[..., bytes] = self._channel.unary_unary(f"/{service}/{method}")
        return lambda request: call(request, timeout=DEADLINE_SECONDS)

    def empty(self) -> float:
        """Seconds of a call that does nothing."""
        return _timed(self._nothing, b"")[0]

    def write(self) -> float:
        """Seconds of a small file, made and forced to the disk beside the state."""
        self._written += 1
        path = self.folder / f"bench-{self._written}"
        begun = time.perf_counter()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(handle, WRITTEN)
        os.fsync(handle)
        os.close(handle)
        return (
            time.perf_counter() - begun
        )  # not removed before the end: the next commit would pay for that

    def prepare(self, claims: Sequence[pb.Claim]) -> float:
        """Seconds of one call for all of these claims; all of them must succeed."""
        request = pb.NodePrepareResourcesRequest(claims=claims).SerializeToString()
        seconds, answer = _timed(self._prepare, request)
        found = pb.NodePrepareResourcesResponse.FromString(answer).claims
        for claim in claims:
            if not found[claim.uid].devices:
                raise SystemExit(f"prepare failed: {found[claim.uid].error}")
        return seconds

    def unprepare(self, claims: Sequence[pb.Claim]) -> float:
        """The same backwards."""
        request = pb.NodeUnprepareResourcesRequest(claims=claims).SerializeToString()
        seconds, answer = _timed(self._unprepare, request)
        found = pb.NodeUnprepareResourcesResponse.FromString(answer).claims
        for claim in claims:
            if found[claim.uid].error:
                raise SystemExit(f"unprepare failed: {found[claim.uid].error}")
        return seconds

    def fill(self, count: int, name: str = "shared.gpu-7") -> None:
        """Prepare so many claims, each of which has a share of the last device (or of another); the others can be had whole."""
        batch = 100
        for first in range(0, count, batch):
            size = min(batch, count - first)
            self.prepare([a_claim(name) for _ in range(size)])


class BenchNode:
    """One daemon between `__enter__` and `__exit__`. `in_memory` puts the state on the tmpfs too. `tree` has the driver, if it is not
    the one of this tree. With `machine` it has the devices of `hack.bench.cost.machine`.
    """

    def __init__(
        self,
        *,
        marks: bool = False,
        in_memory: bool = False,
        tree: Path = installed.REPOSITORY,
        machine: bool = False,
    ) -> None:
        self._command = (installed.python(tree), str(tree / DAEMON))
        self.memory = Path(tempfile.mkdtemp(prefix="dra-bench-", dir=MEMORY_FOLDER))
        self.root = self.memory if in_memory else disk_folder()
        self.marks = self.root / "marks.json" if marks else None
        self.state_dir = self.root / "plugins" / DRIVER
        self._environment = installed.environment()
        self._backend = "simulated"
        if machine:
            self._environment |= {"PYTHONPATH": many.installed_in(self.root)}
            self._backend = many.NAME
        FakeCgroups(self.root / "cgroup").make(POD)

    def arguments(self) -> list[str]:
        """What `dra-driver run` is told."""
        flags = {
            "node-name": NODE,
            "backend": self._backend,
            "kubeconfig": self.root / "kubeconfig",
            "plugins-dir": self.root / "plugins",
            "registry-dir": self.root / "registry",
            "pod-resources-socket": self.root / "pod-resources.sock",
            "cgroup-root": self.root / "cgroup",
            "cdi-dir": self.memory / "cdi",
            "nfd-features-dir": self.root / "features.d",
            "http-address": "127.0.0.1:0",
            # Nobody registers this driver. Without the flag it would offer the devices as a device plugin after 30 seconds, and
            # load what it needs for that.
            "path": "dra",
        }
        return [f"--{name}={value}" for name, value in flags.items()]

    def __enter__(self) -> Self:
        (self.root / "kubeconfig").write_text(_KUBECONFIG)
        marks = ("--marks", str(self.marks)) if self.marks else ()
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self._command, *marks, "--", *self.arguments()],
                cwd=self.root,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
            )
        try:
            wait_for(self._listens, f"the daemon; see {self.root}/log")
        except BaseException:
            self.end()
            self._remove()
            raise
        self.call = Caller(self.state_dir / "dra.sock")
        return self

    def __exit__(self, *_reason: object) -> None:
        self.call.close()
        self.end()
        self._remove()

    def end(self) -> None:
        """Stop the daemon."""
        self.process.terminate()
        self.process.wait(DEADLINE_SECONDS)

    def _remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)

    def _listens(self) -> bool:
        if self.process.poll() is not None:
            raise SystemExit(f"the daemon ended: {(self.root / 'log').read_text()}")
        return (self.root / "registry" / f"{DRIVER}-reg.sock").exists()

    def resident_kib(self) -> int:
        """The daemon's resident memory."""
        return resident_kib(self.process.pid)


def a_claim(name: str) -> pb.Claim:
    """A claim that nobody prepared yet; its name says its devices."""
    return pb.Claim(namespace="default", name=name, uid=str(uuid.uuid4()))


def resident_kib(pid: int, field: str = "VmRSS") -> int:
    """A process's resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise SystemExit(f"process {pid} has no {field}")


def _timed(call: Callable[[bytes], bytes], request: bytes) -> tuple[float, bytes]:
    begun = time.perf_counter()
    answer = call(request)
    return time.perf_counter() - begun, answer
