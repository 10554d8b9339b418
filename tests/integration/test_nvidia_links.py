# SPDX-License-Identifier: Apache-2.0
"""A claim for GPUs that NVLink joins, allocated from what the driver finds while links come up and go down. Needs a C compiler."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dra_driver.allocator.allocate import Allocator
from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.child import link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.model.api import core
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.planning.slices import plan_pool
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode

pytestmark = pytest.mark.real

DRIVER = "gpu.dra-driver.dev"
FACTS = machine.node(boards.H100_PCIE, 8, links="pairs")
NODE = msgspec.convert({"metadata": {"name": "node-1"}}, core.Node)
CLASS = msgspec.convert({"metadata": {"name": "gpu"}}, DeviceClass)
TWO_JOINED = msgspec.convert(
    {
        "metadata": {"name": "joined", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpus",
                        "exactly": {
                            "deviceClassName": "gpu",
                            "allocationMode": "ExactCount",
                            "count": 2,
                        },
                    }
                ],
                "constraints": [{"matchAttribute": f"{DRIVER}/linkIsland"}],
            }
        },
    },
    ResourceClaim,
)


class Gpus:
    """The eight GPUs of a mock node, in four pairs, and the hardware process that looks at them all the time."""

    def __init__(self, folder: Path) -> None:
        self.control = Control(folder / "control")
        library = build.library(FACTS, control=self.control.path, state=self.control.state)
        files = MockNode(folder / "host", FACTS, library=library)
        options = NvidiaOptions(host_root=str(files.folder))
        self.hardware = HardwareProcess(link_of(options))
        self.backend = NvidiaBackend(
            BackendContext("node-1", options), hardware=self.hardware, sysfs=files.folder / "sys"
        )

    def islands(self) -> list[str]:
        """The island of each GPU, empty for one without."""
        found = []
        for device in self.backend.scan().devices:
            value = (device.api.attributes or {}).get("linkIsland")
            found.append("" if value is None else str(value.string_value)[5:7])
        return found

    def allocated(self) -> list[str]:
        """The devices that a claim for two joined GPUs gets; none if it stays pending."""
        (content,) = plan_pool(self.backend.scan(), kept=()).slices
        spec = {
            "driver": DRIVER,
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-1",
            "devices": msgspec.to_builtins(content.devices),
        }
        slices = [msgspec.convert({"metadata": {"name": "node-1-0"}, "spec": spec}, ResourceSlice)]
        results = Allocator(slices, [CLASS]).allocate(NODE, [TWO_JOINED])
        return [one.device for result in results or () for one in result.devices.results or ()]


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[Gpus]:
    found = Gpus(tmp_path)
    yield found
    found.hardware.close()


def test_a_claim_for_joined_gpus_follows_links_that_come_up_and_go_down(gpus: Gpus) -> None:
    gpus.control.nvlink_down("*")
    assert gpus.islands() == [""] * 8
    assert gpus.allocated() == []
    gpus.control.clear()
    assert gpus.islands() == ["1a", "1a", "4a", "4a", "8a", "8a", "ba", "ba"]
    assert gpus.allocated() == ["gpu-0", "gpu-1"]
    gpus.control.nvlink_down(0)
    gpus.control.nvlink_down(1)
    assert gpus.islands() == ["", "", "4a", "4a", "8a", "8a", "ba", "ba"]
    assert gpus.allocated() == ["gpu-2", "gpu-3"]
    gpus.control.restore("nvlink_down", 0)
    gpus.control.restore("nvlink_down", 1)
    gpus.control.nvlink_down(0, 0)
    assert gpus.allocated() == ["gpu-0", "gpu-1"]
