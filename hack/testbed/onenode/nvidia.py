# SPDX-License-Identifier: Apache-2.0
"""How do NVIDIA GPUs get onto a node that has none?

As files, where the driver, the runtime and NVIDIA's library look for them: a driver root at /run/nvidia/driver, as NVIDIA's GPU
operator makes it, with a mock of the library; real character devices in a /dev of the node's own, of majors that no driver of
Linux has; sysfs and /proc of the mock machine, which only the driver's pod sees. Everything lies in the node's mount namespace and ends
with it.
"""

from pathlib import Path
from typing import Any

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml.node import OPERATOR, MockNode
from hack.testbed.onenode import hook
from hack.testbed.onenode.cluster import Cluster

HOST = Path("/run/nvidia-mock/host")  # of the mock machine, on the node
STATE = Path("/run/nvidia-mock/state")  # what the mock's library remembers
CONTROL = STATE / "control"  # what befalls the hardware
HOOK = Path("/run/nvidia-mock/usr")  # goes over /usr
# Mounts of the node's own below /dev, which a copy does not bring along.
KEPT = ("pts", "shm", "mqueue")


class MockGpus:
    """GPUs on the node of a cluster, and what its checker may ask of them."""

    def __init__(self, cluster: Cluster, facts: Node, *, library: Path, smi: Path) -> None:
        self.cluster = cluster
        self.facts = facts
        self._library, self._smi = library, smi

    def install(self) -> None:
        """Put them onto the node."""
        folder = self.cluster.path_inside(HOST)
        folder.mkdir(parents=True)
        self.state.mkdir()
        self.node = MockNode(
            folder,
            self.facts,
            layout=OPERATOR,
            library=self._library,
            nvidia_smi=self._smi,
            character_devices=True,
        )
        self._mount("--bind", STATE, STATE)  # stays writable where /run is mounted read-only
        for name in ("nvidia", "nvidia-persistenced", "nvidia-fabricmanager"):
            if (folder / "run" / name).exists():
                self.cluster.path_inside(Path("/run") / name).mkdir()
                self._mount("--bind", HOST / "run" / name, Path("/run") / name)
        self._own_dev()

    def _own_dev(self) -> None:
        """A /dev of the node's own: the machine's device files, and the GPUs'."""
        dev = HOST / "dev"
        self.cluster.output_of(["cp", "--archive", "--no-clobber", "/dev/.", str(dev)], check=False)
        for name in KEPT:
            if Path("/dev", name).is_dir():
                self._mount("--rbind", Path("/dev", name), dev / name)
        self._mount("--rbind", dev, Path("/dev"))

    def _mount(self, how: str, source: Path, target: Path) -> None:
        self.cluster.output_of(["mount", how, str(source), str(target)])

    def install_hook(self) -> None:
        """Put nvidia-cdi-hook into the node's /usr/bin."""
        folder = self.cluster.path_inside(HOOK) / "bin"
        folder.mkdir(parents=True)
        (folder / "nvidia-cdi-hook").write_bytes(hook.build().read_bytes())
        (folder / "nvidia-cdi-hook").chmod(0o755)
        layers = f"lowerdir={HOOK}:/usr"
        self.cluster.output_of(["mount", "-t", "overlay", "overlay", "-o", layers, "/usr"])

    @property
    def state(self) -> Path:
        """The folder of the mock's library, by a path of the outside."""
        return self.cluster.path_inside(STATE)

    def remove(self) -> None:
        """Give the node its own /dev back, and /usr."""
        self.cluster.output_of(["umount", "--lazy", "--recursive", "/dev"])

    def values(self) -> dict[str, Any]:
        """What the chart is told of this machine."""
        places = {"mock-sys": HOST / "sys", "mock-proc": HOST / "proc"}
        return {
            "hardware": {
                "extraVolumeMounts": [
                    {"name": "mock-sys", "mountPath": "/host/sys", "readOnly": True},
                    {"name": "mock-proc", "mountPath": "/host/proc", "readOnly": True},
                ],
            },
            "extraVolumes": [
                {"name": name, "hostPath": {"path": str(path), "type": "Directory"}}
                for name, path in places.items()
            ],
        }
