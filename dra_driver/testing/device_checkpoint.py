# SPDX-License-Identifier: Apache-2.0
"""What a kubelet's device manager stores about pods, and the file in which it stores it.

Source: k8s.io/kubernetes 1.30 to 1.37, pkg/kubelet/cm/devicemanager/pod_devices.go and checkpoint/checkpoint.go. The checksum of the
fake is not the real one, which is a hash of how Go prints the structure.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.model.ids import PodUid

FILE_NAME = "kubelet_internal_checkpoint"
NO_NODE = -1  # nodeWithoutTopology: the NUMA node of units without topology
Units = dict[int, list[str]]  # by NUMA node


class Given(Struct, frozen=True):
    """The units of one resource that a container has, and the plugin's answer."""

    units: Units
    answer: Any  # a ContainerAllocateResponse

    def ids(self) -> set[str]:
        return {unit for units in self.units.values() for unit in units}


class ContainerOptions(Struct, frozen=True):
    """What the kubelet tells the container runtime about a container (deviceRunContainerOptions)."""

    env: dict[str, str] = field(default_factory=dict)
    devices: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # container path: host path, permissions
    mounts: dict[str, tuple[str, bool]] = field(
        default_factory=dict
    )  # container path: host path, read only
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class PodDevices:
    """The units of each container, by pod UID, container and resource. Not safe for threads."""

    def __init__(self) -> None:
        self._given: dict[PodUid, dict[str, dict[str, Given]]] = {}

    def insert(self, pod: PodUid, container: str, resource: str, given: Given) -> None:
        self._given.setdefault(pod, {}).setdefault(container, {})[resource] = given

    def delete(self, pods: Iterable[PodUid]) -> None:
        for pod in pods:
            self._given.pop(pod, None)

    def pods(self) -> set[PodUid]:
        return set(self._given)

    def of(self, pod: PodUid, container: str) -> Mapping[str, Given]:
        """Return what a container has, by resource."""
        return self._given.get(pod, {}).get(container, {})

    def containers(self, pod: PodUid) -> Iterable[str]:
        return tuple(self._given.get(pod, ()))

    def allocated(self) -> dict[str, set[str]]:
        """Return all units that somebody has, by resource."""
        found: dict[str, set[str]] = {}
        for _, _, resource, given in self:
            found.setdefault(resource, set()).update(given.ids())
        return found

    def options(self, pod: PodUid, container: str, *, cdi: bool) -> ContainerOptions:
        """Return what a container gets. The first of two answers for one path or variable counts. Without `cdi` the CDI names are lost."""
        options = ContainerOptions()
        names: dict[str, None] = {}
        for given in self.of(pod, container).values():
            for name, value in given.answer.envs.items():
                options.env.setdefault(name, value)
            for device in given.answer.devices:
                found = (device.host_path, device.permissions)
                options.devices.setdefault(device.container_path, found)
            for mount in given.answer.mounts:
                options.mounts.setdefault(mount.container_path, (mount.host_path, mount.read_only))
            for name, value in given.answer.annotations.items():
                options.annotations.setdefault(name, value)
            names |= dict.fromkeys(device.name for device in given.answer.cdi_devices)
        return ContainerOptions(
            options.env,
            options.devices,
            options.mounts,
            options.annotations,
            tuple(names) if cdi else (),
        )

    def __iter__(self) -> Iterator[tuple[PodUid, str, str, Given]]:
        for pod, containers in self._given.items():
            for container, resources in containers.items():
                for resource, given in resources.items():
                    yield pod, container, resource, given


def write(folder: Path, pods: PodDevices, registered: Mapping[str, Iterable[str]]) -> None:
    """Write the checkpoint by a temporary file and a rename (pkg/kubelet/util/store/filestore.go)."""
    entries = [
        {
            "PodUID": pod,
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": {str(node): units for node, units in given.units.items()},
            "AllocResp": base64.b64encode(given.answer.SerializeToString()).decode(),
        }
        for pod, container, resource, given in pods
    ]
    data = {
        "PodDeviceEntries": entries or None,  # an empty list of Go
        "RegisteredDevices": {name: sorted(units) for name, units in registered.items()},
    }
    text = json.dumps({"Data": data, "Checksum": zlib.crc32(json.dumps(data).encode())})
    temporary = folder / ".1234567890"
    temporary.touch(mode=0o600)
    temporary.write_text(text)
    temporary.replace(folder / FILE_NAME)


def read(folder: Path) -> tuple[PodDevices, tuple[str, ...]]:
    """Read the checkpoint: the pods, and the resources that were registered. A kubelet goes on without a missing or damaged file."""
    pods = PodDevices()
    try:
        data = json.loads((folder / FILE_NAME).read_text())["Data"]
    except (OSError, ValueError, KeyError):
        return pods, ()
    for entry in data["PodDeviceEntries"] or ():
        answer = pb.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
        units = {int(node): list(ids) for node, ids in entry["DeviceIDs"].items()}
        pods.insert(
            PodUid(entry["PodUID"]),
            entry["ContainerName"],
            entry["ResourceName"],
            Given(units, answer),
        )
    return pods, tuple(data["RegisteredDevices"])
