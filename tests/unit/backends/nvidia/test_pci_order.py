# SPDX-License-Identifier: Apache-2.0
"""A container has its GPUs in the order of their PCI addresses, though the library numbers them in another order and the scheduler
chose them in a third.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.base import config_kinds_of
from dra_driver.backends.nvidia.facts import Gpu
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.lease import Lease
from dra_driver.planning.combine import combine
from dra_driver.services.route import Route
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import LocalNode, ManualClock
from tests.support.watched_nvidia import INSTALLATION, NODE, PARTS, WHOLE, a_backend, a_node


def a_gpu(index: int, bus: str, **fields: object) -> Gpu:
    """The index is that of the library, which is also the number of the device file."""
    values = {"index": index, "minor": index, "uuid": f"GPU-{bus}", "pci_bus_id": bus, **fields}
    return msgspec.structs.replace(WHOLE, **values)


GPUS = (
    a_gpu(0, "00000000:C1:00.0"),
    a_gpu(1, "00000000:1A:00.0"),
    a_gpu(2, "00010000:01:00.0"),
    a_gpu(3, "00000000:8B:00.0"),
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    (tmp_path / "gpus").mkdir()
    (tmp_path / "driver").mkdir()
    hardware = a_node(tmp_path / "gpus")
    installation = msgspec.structs.replace(INSTALLATION, gpu_major=195)
    hardware.become(msgspec.structs.replace(NODE, gpus=GPUS, installation=installation))
    backend = a_backend(hardware)
    found = LocalNode(tmp_path / "driver", clock=ManualClock())
    route = Route({"nvidia": backend}, lambda _device: "nvidia")
    found.configure, found.reset = route.configure, route.reset
    found.inventory = combine({"nvidia": backend.scan()}, {}, {"nvidia": config_kinds_of(backend)})
    yield found
    assert found.violations() == []
    found.close()


def container(node: LocalNode, *results: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Prepare a claim with these devices and requests. Return the device files and the variables in the order of the answer."""
    claim = a_claim(results=[a_result(device, request=request) for device, request in results])
    (ref,) = node.add(claim)
    answer = node.prepare(ref)[ref.uid]
    assert isinstance(answer, tuple)
    spec = msgspec.json.decode(node.cdi.read(ref.uid) or "")
    described = {f"{spec['kind']}={one['name']}": one["containerEdits"] for one in spec["devices"]}
    edits = [described[cdi_id] for device in answer for cdi_id in device.cdi_ids]
    files = [file["path"] for one in edits for file in one["deviceNodes"]]
    variables = [text for one in edits for text in one["env"] if text.startswith("GPU_DEVICE_")]
    return files, variables


def test_the_devices_are_published_in_the_order_of_their_addresses(node: LocalNode) -> None:
    names = [device.name for device in node.inventory.devices]
    assert names == ["gpu-1", "gpu-3", "gpu-0", "gpu-2"]


def test_the_files_and_variables_of_a_request_are_in_the_order_of_the_addresses(
    node: LocalNode,
) -> None:
    chosen = (("gpu-2", "gpus"), ("gpu-0", "gpus"), ("gpu-1", "gpus"), ("gpu-3", "gpus"))
    assert container(node, *chosen) == (
        ["/dev/nvidia1", "/dev/nvidia3", "/dev/nvidia0", "/dev/nvidia2"],
        [
            "GPU_DEVICE_0=GPU-00000000:1A:00.0",
            "GPU_DEVICE_1=GPU-00000000:8B:00.0",
            "GPU_DEVICE_2=GPU-00000000:C1:00.0",
            "GPU_DEVICE_3=GPU-00010000:01:00.0",
        ],
    )


def test_requests_keep_their_order(node: LocalNode) -> None:
    files, variables = container(node, ("gpu-0", "b"), ("gpu-3", "a"), ("gpu-1", "b"))
    assert files == ["/dev/nvidia1", "/dev/nvidia3", "/dev/nvidia0"]
    assert variables == [
        "GPU_DEVICE_0=GPU-00000000:1A:00.0",
        "GPU_DEVICE_1=GPU-00000000:8B:00.0",
        "GPU_DEVICE_2=GPU-00000000:C1:00.0",
    ]


def test_a_mig_device_has_its_own_uuid_in_the_variable(tmp_path: Path) -> None:
    hardware = a_node(tmp_path)
    backend = a_backend(hardware)
    backend.scan()
    lease = Lease(ClaimUid("uid"), "r", DeviceName("gpu-1-mig-3g40gb-9-4"), index=2)
    assert backend.configure(lease).env == {
        "GPU_DEVICE_2": PARTS[1].uuid,
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
