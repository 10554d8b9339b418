# SPDX-License-Identifier: Apache-2.0
"""A node for tests: the real driver as a child process, a kubelet's side of it, and an API server, in one folder."""

import signal
import socket
import sqlite3
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.testing.fake_api import FakeApi, Refused
from dra_driver.testing.fake_kubelet import FakeKubelet
from tests.support import starting

DRIVER = "gpu.dra-driver.dev"
NODE = "node1"
DEADLINE_SECONDS = 300  # against hanging: ten times what the slowest of these waits takes


def wait_for(condition: Callable[[], Any], what: str, *, log: Callable[[], str] = str) -> Any:
    """The condition's first true answer; only a deadline against hanging, which shows the log as it is then."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < end, f"never came: {what}\n{log()}"
        time.sleep(0.01)
    return answer


def listener(path: Path) -> int:
    """The number of the process that listens on a socket; 0 for none."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except OSError:
            return 0
        packed = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process: int = struct.unpack("3i", packed)[0]
    return process


class NodeProcess:
    """Start and stop the driver as often as a test likes; state, kubelet and API server live on."""

    def __init__(self, root: Path, api: FakeApi, *, program: bool = False) -> None:
        self.root = root
        self.api = api
        self.program = (
            program  # the installed program itself is started, not a fork of what it imports
        )
        self.kubelet = FakeKubelet(root, reserve=self.reserve)
        self.boot_id_file = root / "boot_id"
        self.boot_id_file.write_text("boot-1\n")
        self.cdi_dir = root / "cdi"
        self.state_file = root / "state" / "state.db"
        self.kubeconfig = root / "kubeconfig"
        self.log_file = root / "driver.log"
        self.process: starting.Process | None = None
        api.kubeconfig(self.kubeconfig)
        api.put(
            "nodes",
            {"metadata": {"name": NODE}, "status": {"nodeInfo": {"kubeletVersion": "v1.37.1"}}},
        )

    def arguments(self) -> list[str]:
        """What `run` is told; everything lies below the folder."""
        return [
            *("--node-name", NODE, "--kubeconfig", str(self.kubeconfig)),
            *("--backend", "simulated"),
            *(
                "--plugins-dir",
                str(self.kubelet.plugins_dir),
                "--registry-dir",
                str(self.kubelet.registry_dir),
            ),
            *("--pod-resources-socket", str(self.kubelet.pod_resources_socket)),
            *("--cgroup-root", str(self.kubelet.cgroup_root)),
            *("--cdi-dir", str(self.cdi_dir), "--state-dir", str(self.state_file.parent)),
            *(
                "--boot-id-file",
                str(self.boot_id_file),
                "--http-address",
                "",
                "--log-level",
                "debug",
            ),
        ]

    def start(self, *extra: str, die_at: str = "", report: Path | None = None) -> None:
        """Start the driver; with `die_at` it kills itself at that failpoint and says so in `report`."""
        module, first = "dra_driver", ["run"]
        if die_at:
            module, first = (
                "dra_driver.testing.run",
                ["--die-at", die_at, "--report", str(report), "--"],
            )
        if "--pod-uid" in extra:  # the driver is in a pod of this node then
            self.kubelet.cgroups.run(PodUid(extra[extra.index("--pod-uid") + 1]))
        with self.log_file.open("ab") as log:
            self.process = starting.start(
                module,
                [*first, *self.arguments(), *extra],
                stdout=log,
                stderr=log,
                program=self.program,
            )

    def start_registered(self, *extra: str, die_at: str = "", report: Path | None = None) -> None:
        """Start the driver and let the kubelet register it."""
        self.start(*extra, die_at=die_at, report=report)
        self.register()

    def register(self) -> None:
        """Wait until the kubelet found this process: the sockets of a killed one are there until it starts again."""
        wait_for(lambda: self.alive() and self._is_called(), "registration", log=self.log)

    def _is_called(self) -> bool:
        plugin = self.kubelet.register(DRIVER)
        assert self.process is not None
        return plugin is not None and all(
            listener(Path(path)) == self.process.pid for path in (plugin.socket, plugin.endpoint)
        )

    def alive(self) -> bool:
        """Whether the process runs; a test that waits for it fails at once with the log when it does not."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return True

    def kill(self) -> None:
        """SIGKILL, as the kernel's out-of-memory killer does."""
        self.stop(signal.SIGKILL)

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(sent)
        return self.process.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        """End everything that runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_SECONDS)
        self.kubelet.close()

    def log(self) -> str:
        """What the driver wrote."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def reboot(self) -> None:
        """The node boots again: another boot id, /var/run is empty, the kubelet knows its claims, not what is prepared."""
        self.boot_id_file.write_text(self.boot_id_file.read_text().strip() + "+\n")
        for file in self.cdi_dir.iterdir():
            file.unlink()
        self.kubelet.reboot()

    def claim(self, name: str, devices: Sequence[str], **config: Any) -> ClaimRef:
        """A ResourceClaim that is allocated these devices."""
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
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
        """What the scheduler did before the kubelet heard of the pod; nothing for a claim that the API server does not know."""
        try:
            claim = self.api.object("resourceclaims", ref.name, namespace=ref.namespace)
        except Refused:
            return
        users = claim["status"].get("reservedFor", [])
        if claim["metadata"]["uid"] == ref.uid and pod not in [user["uid"] for user in users]:
            user = {"resource": "pods", "name": "pod", "uid": pod}
            status = {**claim["status"], "reservedFor": [*users, user]}
            self.api.put("resourceclaims", {**claim, "status": status})

    def slices(self) -> list[dict[str, Any]]:
        """The driver's slices at the API server."""
        found: list[dict[str, Any]] = self.api.objects("resourceslices")
        return found

    def cdi_files(self) -> dict[str, str]:
        """Everything in the CDI directory, hidden files too."""
        return {path.name: path.read_text() for path in sorted(self.cdi_dir.iterdir())}

    def rows(self) -> dict[str, tuple[str, str]]:
        """The state: phase and boot id by claim UID."""
        return {
            uid: (phase, boot)
            for uid, phase, boot in self._query("SELECT uid, phase, boot_id FROM claims")
        }

    def owners(self) -> dict[str, str]:
        """The state: owner's claim UID by device."""
        return dict(self._query("SELECT device, claim_uid FROM owners"))

    def _query(self, statement: str) -> list[Any]:
        if not self.state_file.exists():
            return []
        connection = sqlite3.connect(self.state_file)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()
