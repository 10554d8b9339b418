# SPDX-License-Identifier: Apache-2.0
"""Does the container that the chart renders find the GPUs of a node, run from the image by runc?

Its arguments, mounts and privileges are those that helm renders. The node is a folder with a mock of NVIDIA's library, so no cluster and no
GPU are needed: Debian's packages, the locked wheels, a C compiler, runc and root.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from driverimage import archive, image

from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.facts import Node
from dra_driver.backends.nvidia.link import Socket
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.node import (
    BOTTLEROCKET,
    FEDORA,
    GKE,
    OPERATOR,
    TALOS,
    UBUNTU,
    Layout,
    MockNode,
)
from hack.testbed.onenode import helm
from hack.testbed.onenode.namespaces import wait_until
from tests.e2e.rendering import container, render

pytestmark = pytest.mark.real
FACTS = machine.node(boards.A100_40, count=2, mig={1: "3g.20gb 2g.10gb 1g.5gb 1g.5gb"})
BESIDE = ("null", "zero", "full", "random", "urandom", "tty")  # device files of every node
CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_MKNOD", "CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE")
SECONDS = 20.0
OPENSHIFT = ("--api-versions", "security.openshift.io/v1")
PLATFORMS: dict[str, Layout] = {
    "generic": UBUNTU,
    "gke": GKE,
    "eks": FEDORA,
    "aks": UBUNTU,
    "openshift": OPERATOR,
    "talos": TALOS,
    "bottlerocket": BOTTLEROCKET,
    "gpu-operator": OPERATOR,
}
Object = dict[str, Any]


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the image."""
    folder = tmp_path_factory.mktemp("image")
    built = image.build(folder / "driver.tar")
    with tarfile.open(built.path) as packed:
        packed.extractall(folder / "image", filter="fully_trusted")
    (manifest,) = json.loads((folder / "image" / "manifest.json").read_text())
    for layer in manifest["Layers"]:
        with tarfile.open(folder / "image" / layer) as content:
            content.extractall(folder / "rootfs", filter="fully_trusted")
    return folder / "rootfs"


@dataclass
class Running:
    """A running container, what it is told, and the folders that stand for its volumes."""

    rendered: Object
    node: MockNode
    folder: Path
    rootfs: Path

    @property
    def socket(self) -> Path:
        return self.folder / "hardware" / "hardware.sock"

    def source(self, volume: str) -> Path:
        """What stands for a volume of the chart."""
        known = {"host": self.node.folder, "dev": self.node.dev, "hardware": self.socket.parent}
        return known[volume]

    def specification(self) -> Object:
        """What a container runtime makes of the container."""
        context = self.rendered["securityContext"]
        assert context["privileged"]
        program = "/usr/local/bin/dra-driver"
        variables = [f"{one['name']}={one['value']}" for one in self.rendered["env"]]
        mounts: list[Object] = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        for mount in self.rendered["volumeMounts"]:
            how = ["rbind", "ro" if mount.get("readOnly") else "rw"]
            how.append("rslave" if "mountPropagation" in mount else "rprivate")
            place = {"destination": mount["mountPath"], "type": "bind", "options": how}
            mounts.append({**place, "source": str(self.source(mount["name"]))})
        kinds = ("bounding", "effective", "permitted")
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": context["runAsUser"], "gid": context["runAsGroup"]},
                "args": [program, *self.rendered["args"]],
                "env": [*archive.ENVIRONMENT, *variables],
                "cwd": "/",
                "capabilities": dict.fromkeys(kinds, CAPABILITIES),
            },
            "root": {"path": str(self.rootfs), "readonly": context["readOnlyRootFilesystem"]},
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
                "resources": {"devices": [{"allow": True, "access": "rwm"}]},
            },
        }

    @contextmanager
    def running(self) -> Iterator[HardwareProcess]:
        """The container, for as long as the `with` block."""
        (self.folder / "config.json").write_text(json.dumps(self.specification()))
        command = ["runc", "--root", str(self.folder / "runc"), "run", "--bundle", str(self.folder)]
        name = f"hardware-{os.getpid()}-{self.folder.name}"
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen([*command, name], stdout=log, stderr=log)
        try:
            wait_until(self.socket.exists, "the container to listen", timeout_seconds=SECONDS)
            yield HardwareProcess(Socket(str(self.socket)))
        finally:
            process.send_signal(signal.SIGTERM)  # runc passes it on
            assert process.wait(SECONDS) == 0, (self.folder / "log").read_text()


Start = Callable[..., Running]


@pytest.fixture
def start(rootfs: Path, tmp_path: Path) -> Start:
    """The container of the chart on a node with this layout."""

    def made(platform: str, facts: Node = FACTS) -> Running:
        objects = render(tmp_path, *OPENSHIFT, values=f"platform: {platform}")
        rendered = container(objects, "hardware")
        state = "/run/dra-hardware/mock"
        (tmp_path / "hardware" / "mock").mkdir(parents=True)
        node = MockNode(
            tmp_path / "host",
            facts,
            layout=PLATFORMS[platform],
            library=build.library(facts, dev="/dev", state=state),
            nvidia_smi=build.nvidia_smi(),
            character_devices=True,
        )
        for name in BESIDE:
            found = Path("/dev", name).stat()
            os.mknod(node.dev / name, stat.S_IFCHR | 0o666, found.st_rdev)
        return Running(rendered, node, tmp_path, rootfs)

    return made


def test_each_platform_has_a_layout_of_its_nodes() -> None:
    text = (helm.CHART / "platforms.yaml").read_text()
    assert PLATFORMS.keys() == yaml.safe_load(text).keys()


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_container_of_the_chart_finds_the_gpus_of_the_node(start: Start, platform: str) -> None:
    chart = start(platform)
    with chart.running() as hardware:
        found = hardware.look()
    assert found.problem == ""
    assert [gpu.uuid for gpu in found.gpus] == [gpu.uuid for gpu in FACTS.gpus]
    assert [gpu.problem for gpu in found.gpus] == ["", ""]
    whole, cut = found.gpus
    assert whole.mig is None or whole.mig.devices == ()
    assert cut.mig is not None
    assert len(cut.mig.devices) == 4
    assert found.installation.driver_root == PLATFORMS[platform].driver_root
    assert found.installation.problems == ()
    assert {"/dev/nvidia0", "/dev/nvidia1"} <= {one.path for one in found.installation.device_files}


def test_a_node_without_the_library_is_told_of_and_keeps_the_container(start: Start) -> None:
    chart = start("gke")
    shutil.rmtree(chart.node.folder / chart.node.installation.driver_root.lstrip("/"))
    with chart.running() as hardware:
        found = hardware.look()
        again = hardware.look()
    assert found.gpus == ()
    assert found.problem != ""
    assert len(found.pci) == 2
    assert again.problem == found.problem


def test_the_container_sets_a_compute_mode_on_the_gpu_that_is_named(start: Start) -> None:
    chart = start("gpu-operator")
    uuid = FACTS.gpus[0].uuid
    with chart.running() as hardware:
        hardware.look()
        hardware.set_compute_mode(uuid, 3)
        modes = {gpu.uuid: gpu.compute_mode for gpu in hardware.look().gpus}
    assert modes[uuid] == 3
    assert modes[FACTS.gpus[1].uuid] == 0
