# SPDX-License-Identifier: Apache-2.0
"""From a lease to the library and nvidia-smi in a hardware process of its own: modes, processes, and what stays. Needs a C compiler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.config import (
    GPU,
    GpuConfig,
    GpuSharing,
    TimeSlicingConfig,
)
from dra_driver.backends.nvidia.facts import Process
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.errors import Permanent
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.lease import InUse, Lease
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import MockNode

pytestmark = pytest.mark.real

FACTS = machine.node(boards.A100_40, 2, mig={1: "3g.20gb 3g.20gb"})
WHOLE, DIVIDED = FACTS.gpus
GIB = 2**30
LONG = TimeSlicingConfig(interval="Long")
SLICED = GPU.config(GpuConfig(sharing=GpuSharing(strategy="TimeSlicing", time_slicing_config=LONG)))


class Bed:
    """A node of two GPUs with a working library and nvidia-smi, and the backend."""

    def __init__(self, folder: Path, *, nvidia_smi: bool = True) -> None:
        self.control = Control(folder / "control")
        host = folder / "host"
        library = build.library(
            FACTS, dev=host / "dev", control=self.control.path, state=self.control.state
        )
        smi = build.nvidia_smi() if nvidia_smi else None
        self.node = MockNode(host, FACTS, library=library, nvidia_smi=smi)
        if not nvidia_smi:
            (self.node.driver_root / "usr/bin/nvidia-smi").unlink()
        options = NvidiaOptions(host_root=str(host))
        self.backend = NvidiaBackend(BackendContext("node-1", options))
        self.devices = {one.uuid: one.name for one in self.backend.scan().devices}
        self.gpu = self.devices[WHOLE.uuid]

    def lease(self, config: DeviceConfig = SLICED) -> Lease:
        return Lease(ClaimUid("uid"), "main", self.gpu, config=config, parent=WHOLE.uuid)

    def left(self) -> dict[DeviceName, str]:
        return {one.name: one.not_clean for one in self.backend.scan().devices if one.not_clean}

    def close(self) -> None:
        self.backend._hardware.let_go()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.close()


def test_a_time_slice_reaches_the_hardware_and_is_put_back(bed: Bed) -> None:
    bed.backend.configure(bed.lease())
    assert bed.control.time_slice(WHOLE.uuid) == 3
    bed.backend.reset(bed.lease())
    assert bed.control.time_slice(WHOLE.uuid) == 0
    assert bed.control.journal() == [
        f"compute-mode {WHOLE.uuid} 0",
        f"time-slice {WHOLE.uuid} 3",
        f"compute-mode {WHOLE.uuid} 0",
        f"time-slice {WHOLE.uuid} 0",
    ]


def test_a_claim_without_configuration_makes_no_call(bed: Bed) -> None:
    bed.control.count_calls()
    bed.backend.configure(bed.lease(DeviceConfig()))
    bed.backend.reset(bed.lease(DeviceConfig()))
    assert bed.control.calls() == {}
    assert bed.control.journal() == []


def test_a_driver_root_without_nvidia_smi_is_one_clear_refusal(tmp_path: Path) -> None:
    bed = Bed(tmp_path, nvidia_smi=False)
    with pytest.raises(Permanent) as caught:
        bed.backend.configure(bed.lease())
    assert "the driver root / has no nvidia-smi" in str(caught.value)
    bed.backend.reset(bed.lease())
    bed.close()


def test_a_process_that_stays_and_its_memory_are_seen(bed: Bed) -> None:
    bed.backend.configure(bed.lease())
    process = Process(pid=4711, used_memory=3 * GIB)
    bed.control.add_process(0, process)
    assert bed.backend.in_use(bed.gpu) is InUse.YES
    assert bed.left() == {}
    bed.backend.reset(bed.lease())
    assert bed.left() == {bed.gpu: "process 4711 uses it"}
    bed.control.remove_process(4711)
    bed.control.set(0, memory_used=3 * GIB)
    assert bed.backend.in_use(bed.gpu) is InUse.NO
    assert bed.left() == {
        bed.gpu: "about 3 GiB of its memory are used, and no process is seen that does"
    }
    bed.control.restore("set")
    assert bed.left() == {}


def test_a_process_is_on_one_mig_device_of_a_gpu(bed: Bed) -> None:
    assert DIVIDED.mig is not None
    first, second = DIVIDED.mig.devices
    bed.control.add_process(
        1,
        Process(
            pid=9,
            used_memory=GIB,
            gpu_instance=second.gpu_instance,
            compute_instance=second.compute_instance,
        ),
    )
    assert bed.left() == {bed.devices[second.uuid]: "process 9 uses it"}
    assert bed.backend.in_use(bed.devices[second.uuid]) is InUse.YES
    assert bed.backend.in_use(bed.devices[first.uuid]) is InUse.NO
