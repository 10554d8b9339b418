# SPDX-License-Identifier: Apache-2.0
"""`dra-driver run` as it ships, between an API server and a kubelet that this project plays: no cluster is needed."""

import shutil
import subprocess
from pathlib import Path
from typing import Self

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import FakeKubelet
from hack.bench.cost import installed, machine
from hack.bench.cost.log import Log
from hack.bench.cost.node import DEADLINE_SECONDS, DRIVER, NODE, disk_folder, wait_for


class StandIns:
    """Both, and the driver from `start` to the end of the block. State and sockets lie on a disk."""

    def __enter__(self) -> Self:
        self.root = disk_folder()
        self.api = FakeApi(versions=("v1",)).__enter__()
        self.kubelet = FakeKubelet(self.root)
        status = {"nodeInfo": {"kubeletVersion": "v1.37.1"}}
        self.api.put("nodes", {"metadata": {"name": NODE}, "status": status})
        self.api.kubeconfig(self.root / "kubeconfig")
        self.log = Log(self.root / "log")
        self.process: subprocess.Popen[bytes] | None = None
        return self

    def __exit__(self, *_reason: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(DEADLINE_SECONDS)
        self.kubelet.close()
        self.api.close()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def faults(self) -> Path:
        """A file for faults, which exists if the caller writes it."""
        return self.root / "faults.yaml"

    def start(self, *, backend: str = "simulated", **more: str) -> int:
        """Start the driver with further flags, by their names; answers its process number."""
        flags = {
            "node-name": NODE,
            "backend": backend,
            "kubeconfig": self.root / "kubeconfig",
            "plugins-dir": self.kubelet.plugins_dir,
            "registry-dir": self.kubelet.registry_dir,
            "pod-resources-socket": self.kubelet.pod_resources_socket,
            "cgroup-root": self.kubelet.cgroup_root,
            "cdi-dir": self.root / "cdi",
            "nfd-features-dir": self.root / "features.d",
            "http-address": "127.0.0.1:0",
            **more,
        }
        environment = installed.environment()
        if backend == machine.NAME:
            environment |= {"PYTHONPATH": machine.installed_in(self.root)}
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(installed.python(), "-m", "dra_driver", "run"),
                    *(f"--{name}={value}" for name, value in flags.items()),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self.process.pid

    @property
    def sockets(self) -> tuple[Path, Path]:
        """The socket that the kubelet calls, and the one by which it finds that."""
        return (
            self.kubelet.plugins_dir / DRIVER / "dra.sock",
            self.kubelet.registry_dir / f"{DRIVER}-reg.sock",
        )

    def register(self) -> None:
        """Let the kubelet look until it has found the driver."""
        wait_for(lambda: self.kubelet.register(DRIVER), f"registration; see {self.root}/log")
