# SPDX-License-Identifier: Apache-2.0
"""How do NVIDIA GPUs get onto a node that has none?

As files, where the driver, the runtime and NVIDIA's library look for them: a driver root at /run/nvidia/driver, as NVIDIA's GPU
operator makes it, with a mock of the library; real character devices, of majors that no driver of Linux has, in a /dev of the node's
own; sysfs and /proc of the mock machine, which only the driver's pod sees. Everything is in the node's mount namespace and ends
with it.
"""

from pathlib import Path
from typing import Any

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import build
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import OPERATOR, MockNode
from hack.testbed.onenode import hook
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.devices import mount_own_dev, unmount_own_dev

MOCK = Path("/run/nvidia-mock")
HOST = MOCK / "host"  # the mock machine's files
SHARED = MOCK / "shared"  # what befalls the hardware, and what it remembers
HOOK = MOCK / "usr"  # goes over /usr
HOOK_PATH = "/usr/bin/nvidia-cdi-hook"
FOLDERS = ("nvidia", "nvidia-persistenced", "nvidia-fabricmanager")  # below /run


class MockGpus:
    """GPUs on the node of a cluster. `control` is for whoever lets something befall them, or asks what they were told."""

    control: Control

    def __init__(self, cluster: Cluster, facts: Node) -> None:
        self.cluster = cluster
        self.facts = facts

    def install(self) -> None:
        """Put them onto the node."""
        self.cluster.path_inside(HOST).mkdir(parents=True)
        self.control = Control(self.cluster.path_inside(SHARED))
        MockNode(
            self.cluster.path_inside(HOST),
            self.facts,
            layout=OPERATOR,
            library=build.library(
                self.facts, dev="/dev", control=SHARED / "control", state=SHARED / "state"
            ),
            nvidia_smi=build.nvidia_smi(),
            character_devices=True,
        )
        for name in FOLDERS:
            if self.cluster.path_inside(HOST / "run" / name).exists():
                self.cluster.path_inside(Path("/run", name)).mkdir()
                self._mount("--bind", HOST / "run" / name, Path("/run", name))
        mount_own_dev(self.cluster, HOST / "dev")

    def _mount(self, how: str, source: Path, target: Path) -> None:
        self.cluster.output_of(["mount", how, str(source), str(target)])

    def install_hook(self) -> None:
        """Put the program of NVIDIA's container toolkit into the node's /usr/bin."""
        program = self.cluster.path_inside(HOOK / "bin" / Path(HOOK_PATH).name)
        program.parent.mkdir(parents=True)
        program.write_bytes(hook.build().read_bytes())
        program.chmod(0o755)
        layers = f"lowerdir={HOOK}:/usr"
        self.cluster.output_of(["mount", "-t", "overlay", "overlay", "-o", layers, "/usr"])

    def remove(self) -> None:
        """Give the node its own /dev and /usr back."""
        unmount_own_dev(self.cluster)
        if self.cluster.path_inside(HOOK).exists():
            self.cluster.output_of(["umount", "--lazy", "--recursive", "/usr"])

    def values(self) -> dict[str, Any]:
        """What the chart is told: where the driver sees the mock machine instead of its node."""
        places = {"mock-sys": HOST / "sys", "mock-proc": HOST / "proc", "mock": SHARED}
        return {
            "extraVolumes": [
                {"name": name, "hostPath": {"path": str(path), "type": "Directory"}}
                for name, path in places.items()
            ],
            "extraVolumeMounts": [{"name": "mock-sys", "mountPath": "/sys", "readOnly": True}],
            "hardware": {
                "extraVolumeMounts": [
                    {"name": "mock-sys", "mountPath": "/host/sys", "readOnly": True},
                    {"name": "mock-proc", "mountPath": "/host/proc", "readOnly": True},
                    {"name": "mock", "mountPath": str(SHARED)},
                ]
            },
        }
