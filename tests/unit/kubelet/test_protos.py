# SPDX-License-Identifier: Apache-2.0
"""Whether the generated messages are those of protos/."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2

ROOT = Path(__file__).parents[3]
MESSAGES: dict[str, Any] = dict(deviceplugin_v1beta1_pb2.DESCRIPTOR.message_types_by_name)
SCALARS = {3: "int64", 5: "int32", 8: "bool", 9: "string"}


def shape(message: Any) -> str:
    """The fields of a message: number, name, type, and [] if it is repeated."""
    return ", ".join(
        f"{field.number} {field.name}: {SCALARS.get(field.type) or field.message_type.name}"
        f"{'[]' if field.is_repeated else ''}"
        for field in message.fields
    )


def check(tree: Path) -> tuple[int, str]:
    command = [sys.executable, str(tree / "hack/generate-protos"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout


def test_the_generated_code_is_fresh() -> None:
    assert check(ROOT) == (0, "")


def test_stale_code_is_named_and_made_anew(tmp_path: Path) -> None:
    for folder in ("protos", "hack", "dra_driver/kubelet/pb"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                copy = tmp_path / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    proto = tmp_path / "protos/dra/v1/api.proto"
    proto.write_text(proto.read_text().replace("string share_id = 5", "string share_id = 6"))
    left = tmp_path / "dra_driver/kubelet/pb/gone_v1_pb2.py"
    left.write_text("")
    say = "dra_driver/kubelet/pb/{} is not what protos/ says; run: make generate\n".format
    assert check(tmp_path) == (1, say("dra_v1_pb2.py") + say("gone_v1_pb2.py"))
    subprocess.run([sys.executable, str(tmp_path / "hack/generate-protos")], check=True)
    assert check(tmp_path) == (0, "")
    assert not left.exists()


def test_the_messages_of_the_device_plugin_api_are_those_of_kubernetes() -> None:
    # The kubelet's Go module has the same numbers and types: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto.
    assert {name: shape(message) for name, message in MESSAGES.items()} == {
        "AllocateRequest": "1 container_requests: ContainerAllocateRequest[]",
        "AllocateResponse": "1 container_responses: ContainerAllocateResponse[]",
        "CDIDevice": "1 name: string",
        "ContainerAllocateRequest": "1 devices_ids: string[]",
        "ContainerAllocateResponse": "1 envs: EnvsEntry[], 2 mounts: Mount[], 3 devices: DeviceSpec[], "
        "4 annotations: AnnotationsEntry[], 5 cdi_devices: CDIDevice[]",
        "ContainerPreferredAllocationRequest": "1 available_deviceIDs: string[], 2 must_include_deviceIDs: string[], "
        "3 allocation_size: int32",
        "ContainerPreferredAllocationResponse": "1 deviceIDs: string[]",
        "Device": "1 ID: string, 2 health: string, 3 topology: TopologyInfo",
        "DevicePluginOptions": "1 pre_start_required: bool, 2 get_preferred_allocation_available: bool",
        "DeviceSpec": "1 container_path: string, 2 host_path: string, 3 permissions: string",
        "Empty": "",
        "ListAndWatchResponse": "1 devices: Device[]",
        "Mount": "1 container_path: string, 2 host_path: string, 3 read_only: bool",
        "NUMANode": "1 ID: int64",
        "PreStartContainerRequest": "1 devices_ids: string[]",
        "PreStartContainerResponse": "",
        "PreferredAllocationRequest": "1 container_requests: ContainerPreferredAllocationRequest[]",
        "PreferredAllocationResponse": "1 container_responses: ContainerPreferredAllocationResponse[]",
        "RegisterRequest": "1 version: string, 2 endpoint: string, 3 resource_name: string, 4 options: DevicePluginOptions",
        "TopologyInfo": "1 nodes: NUMANode[]",
    }
    assert deviceplugin_v1beta1_pb2.DESCRIPTOR.package == "v1beta1"
