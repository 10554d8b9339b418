# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pod-resources API: which pod uses which device, or which unit of a device plugin?

A kubelet lists the claims of pods from 1.34 on. The answer of an older kubelet has no claims, and looks like "no pod uses a
claim". That mistake would free devices that pods use. So an answer without claims counts only if this kubelet is known to list
claims: from its version, or because an earlier answer named one. Units of device plugins are listed by every kubelet.

A call has an effect: before it answers, the kubelet takes back the units of pods that are not active, although their containers may run.
Ordinary init containers are not listed.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from dra_driver.errors import DriverError
from dra_driver.kubelet.pb import podresources_v1_pb2 as pb
from dra_driver.kubelet.sockets import text_of
from dra_driver.model.ids import (
    DeviceKey,
    DeviceName,
    DriverName,
    PoolName,
    ResourceName,
    ShareId,
    UnitId,
)
from dra_driver.model.plugin import PodUnits
from dra_driver.model.state import PodDevice, Unknown
from dra_driver.model.usage import ContainerUse

METHOD = "/v1.PodResourcesLister/List"
ALLOCATABLE_METHOD = "/v1.PodResourcesLister/GetAllocatableResources"
DEADLINE_SECONDS = 5.0
FIRST_LISTING_VERSION = (1, 34)
_LARGEST_ANSWER = 64 * 1024 * 1024
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class PodResources:
    """Call an instance to get the devices that pods use now.

    `kubelet_version` returns for example "v1.37.1". If the version is not known, it returns "" or raises DriverError. It is
    called only when an answer has no claims, because it costs a request to the API server.
    """

    def __init__(self, socket: Path, kubelet_version: Callable[[], str]) -> None:
        self._socket = socket
        self._kubelet_version = kubelet_version
        self._has_listed = False

    def __call__(self) -> frozenset[PodDevice] | Unknown:
        """Every device that a pod uses through a claim, of all drivers; or `Unknown` with the reason."""
        response = _list(self._socket)
        if isinstance(response, Unknown):
            return response
        held = frozenset(_held(response))
        self._has_listed = self._has_listed or bool(held)
        if self._has_listed:
            return held
        version = self._version()
        if _lists_claims(version):
            return held
        return Unknown(
            f"this kubelet ({version or 'version unknown'}) does not list claims; "
            f"{'.'.join(map(str, FIRST_LISTING_VERSION))} and newer do"
        )

    def _version(self) -> str:
        try:
            return self._kubelet_version()
        except DriverError:
            return ""


def plugin_devices(socket: Path) -> frozenset[PodUnits] | Unknown:
    """The units of device plugins that the containers of active pods have, of all plugins; or `Unknown` with the reason."""
    response = _list(socket)
    if isinstance(response, Unknown):
        return response
    # A unit may have several entries: one for each NUMA node.
    units: defaultdict[tuple[str, str, str, str], set[UnitId]] = defaultdict(set)
    for pod in response.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                units[key].update(map(UnitId, devices.device_ids))
    return frozenset(
        PodUnits(namespace, pod, container, ResourceName(resource), frozenset(ids))
        for (namespace, pod, container, resource), ids in units.items()
    )


def container_uses(socket: Path) -> tuple[ContainerUse, ...] | Unknown:
    """The devices and units that the containers of active pods have, of all drivers; or `Unknown` with the reason. Without claims before 1.34."""
    response = _list(socket)
    if isinstance(response, Unknown):
        return response
    return tuple(
        use
        for pod in response.pod_resources
        for container in pod.containers
        for use in (*_claims_of(pod, container), *_units_of(pod, container))
    )


def allocatable(socket: Path) -> Mapping[str, int] | Unknown:
    """What device plugins offer on this node, as device counts by extended resource name; or `Unknown` with the reason."""
    response = _call(
        socket,
        ALLOCATABLE_METHOD,
        pb.AllocatableResourcesRequest(),
        pb.AllocatableResourcesResponse,
    )
    if isinstance(response, Unknown):
        return response
    # A resource may have several entries: one for each NUMA node, or one for each device.
    counts: Counter[str] = Counter()
    for devices in response.devices:
        counts[devices.resource_name] += len(devices.device_ids)
    return dict(counts)


def _list(socket: Path) -> pb.ListPodResourcesResponse | Unknown:
    request = pb.ListPodResourcesRequest()
    found: pb.ListPodResourcesResponse | Unknown = _call(
        socket, METHOD, request, pb.ListPodResourcesResponse
    )
    return found


def _call(socket: Path, method: str, request: Any, answer: type[Any]) -> Any | Unknown:
    """The kubelet's answer as a message of the type `answer`; or `Unknown` with the reason."""
    options = (
        ("grpc.max_receive_message_length", _LARGEST_ANSWER),
        ("grpc.enable_http_proxy", 0),
    )
    try:
        socket.stat()
        with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
            call = channel.unary_unary(
                method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            return call(request, timeout=DEADLINE_SECONDS)
    except OSError as error:
        return Unknown(
            f"no socket {socket}: {error.strerror}; "
            f"is the kubelet running and --pod-resources-socket right?"
        )
    except grpc.RpcError as error:
        return Unknown(f"the kubelet did not answer on {socket}: {text_of(error, quoting=True)}")


def _lists_claims(version: str) -> bool:
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) >= FIRST_LISTING_VERSION


def _claims_of(pod: pb.PodResources, container: pb.ContainerResources) -> Iterator[ContainerUse]:
    for claim in container.dynamic_resources:
        for device in claim.claim_resources:
            key = DeviceKey(
                PoolName(device.pool_name),
                DeviceName(device.device_name),
                ShareId(device.share_id),
            )
            yield ContainerUse(
                pod.namespace, pod.name, container.name, claim=claim.claim_name, device=key
            )


def _units_of(pod: pb.PodResources, container: pb.ContainerResources) -> Iterator[ContainerUse]:
    for devices in container.devices:
        yield ContainerUse(
            pod.namespace,
            pod.name,
            container.name,
            resource=ResourceName(devices.resource_name),
            units=frozenset(map(UnitId, devices.device_ids)),
        )


def _held(response: pb.ListPodResourcesResponse) -> list[PodDevice]:
    return [
        PodDevice(
            namespace=claim.claim_namespace,
            claim_name=claim.claim_name,
            driver=DriverName(device.driver_name),
            pool=PoolName(device.pool_name),
            device=DeviceName(device.device_name),
            share_id=ShareId(device.share_id),
            cdi_ids=tuple(cdi.name for cdi in device.cdi_devices),
        )
        for pod in response.pod_resources
        for container in pod.containers
        for claim in container.dynamic_resources
        for device in claim.claim_resources
    ]
