# SPDX-License-Identifier: Apache-2.0
"""The gRPC calls of `dra_driver.testing.fake_kubelet`, and how a kubelet of each version checks the answers."""

import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from msgspec import Struct, field

from dra_driver.kubelet import dra, dra_v1beta1, registration
from dra_driver.kubelet.pb import (
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
    podresources_v1_pb2,
)
from dra_driver.kubelet.sockets import text_of
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import PodUid

CALL_SECONDS = 45.0
GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
_SERVICES: Mapping[str, tuple[str, Any]] = {
    V1: (dra.SERVICE, dra_v1_pb2),
    V1BETA1: (dra_v1beta1.SERVICE, dra_v1beta1_pb2),
}
OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


class KubeletError(Exception):
    """The text that a real kubelet would write into an Event of the pod, or report to the driver."""


class Version(Struct, frozen=True):
    """The behaviour of one minor version, as far as a driver can notice it."""

    services: tuple[str, ...]  # it calls the first of the driver's services that is here
    health: tuple[str, ...] = ()  # in the kubelet's own order
    asks_health_unannounced: bool = False
    keeps_instances: bool = True
    lists_claims: bool = False
    # A repeated answer replaces the stored devices. If this is False, its devices are added to the stored ones.
    replaces_devices: bool = False
    # Only a pod that is stored with the claim releases the claim, and no pod gets a claim whose release has begun.
    guards_release: bool = False
    # Several device plugins may offer one resource at the same time.
    keeps_device_plugins: bool = False


VERSIONS: Mapping[str, Version] = {
    # 1.30 and 1.31 have DRA behind a gate that is off: no handler takes a DRA driver's registration.
    "1.30": Version(()),
    "1.31": Version(()),
    # 1.32 and 1.33 search for v1beta1 and would fall back to v1alpha3, which this fake does not call.
    "1.32": Version((V1BETA1,), keeps_instances=False),
    "1.33": Version((V1BETA1,)),
    "1.34": Version((V1, V1BETA1), lists_claims=True),
    "1.35": Version((V1, V1BETA1), lists_claims=True),
    "1.36": Version(
        (V1, V1BETA1), (HEALTH_V1ALPHA1,), asks_health_unannounced=True, lists_claims=True
    ),
    "1.37": Version(
        (V1, V1BETA1),
        (HEALTH_V1, HEALTH_V1ALPHA1),
        lists_claims=True,
        replaces_devices=True,
        guards_release=True,
        keeps_device_plugins=True,
    ),
}


class Plugin(Struct, frozen=True):
    """A registered driver: its name, socket, and the services that the kubelet calls ("" for no health stream)."""

    name: str
    endpoint: str
    service: str
    health_service: str
    socket: Path
    inode: int

    def is_there(self) -> bool:
        """Return whether the registration socket is still the file that the plugin registered with."""
        return socket_inode(self.socket) == self.inode

    def listens(self) -> bool:
        """Return whether a process listens on the socket that the kubelet calls."""
        with socket.socket(socket.AF_UNIX) as asking:
            return asking.connect_ex(self.endpoint) == 0


class ClaimInfo(Struct):
    """What the kubelet stores of a claim. `prepared` is lost at a restart. `pods` are UIDs."""

    ref: ClaimRef
    driver: str
    pods: set[PodUid] = field(default_factory=set)
    prepared: bool = False
    unpreparing: bool = False
    devices: tuple[Any, ...] = ()  # Device messages of the version that was called


def socket_inode(path: Path) -> int:
    """Return the inode of the socket; 0 if there is no socket."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def get_info(socket: Path) -> pluginregistration_v1_pb2.PluginInfo | None:
    try:
        info: pluginregistration_v1_pb2.PluginInfo = call(
            str(socket),
            f"/{registration.SERVICE}/GetInfo",
            pluginregistration_v1_pb2.InfoRequest(),
            pluginregistration_v1_pb2.PluginInfo,
            GET_INFO_SECONDS,
        )
    except grpc.RpcError:
        return None
    return info


def why_not(info: pluginregistration_v1_pb2.PluginInfo, chosen: str, known: Sequence[str]) -> str:
    if info.type != "DRAPlugin" or not known:
        return f"RegisterPlugin error -- no handler registered for plugin type: {info.type}"
    if chosen:
        return ""
    why = (
        f"none of services supported by the plugin ({list(info.supported_versions)}) "
        f"are supported by the kubelet ({list(known)})"
        if info.supported_versions
        else "empty list of supported gRPC services (aka supported versions)"
    )
    return f"RegisterPlugin error -- plugin validation failed with err: {why}"


def claims_call(
    plugin: Plugin, method: str, infos: Sequence[ClaimInfo], seconds: float = CALL_SECONDS
) -> Mapping[str, Any]:
    name, messages = _SERVICES[plugin.service]
    claims = [
        messages.Claim(namespace=info.ref.namespace, name=info.ref.name, uid=info.ref.uid)
        for info in infos
    ]
    request = getattr(messages, f"{method}Request")(claims=claims)
    response = getattr(messages, f"{method}Response")
    try:
        answer = call(plugin.endpoint, f"/{name}/{method}", request, response, seconds)
    except grpc.RpcError as error:
        raise KubeletError(f"{method}: rpc error: {text_of(error)}") from error
    entries: Mapping[str, Any] = answer.claims
    return entries


def checked(
    method: str, infos: Sequence[ClaimInfo], entries: Mapping[str, Any]
) -> Iterator[tuple[ClaimInfo, Any]]:
    """Return each correct entry with its claim. Raises KubeletError at the first wrong or missing one."""
    asked = {str(info.ref.uid): info for info in infos}
    for uid, entry in entries.items():
        if uid not in asked:
            raise KubeletError(f"{method} returned result for unknown claim UID {uid}")
        if entry.error:
            name = asked[uid].ref.name
            raise KubeletError(f"{method} failed for ResourceClaim {name}: {entry.error}")
        yield asked[uid], entry
    skipped = len(asked) - len(entries)
    if skipped:
        raise KubeletError(f"{method} skipped {skipped} ResourceClaims")


def dynamic_resource(info: ClaimInfo) -> podresources_v1_pb2.DynamicResource:
    """Return the entry as kubelet 1.37 lists it: each device of a driver also has the CDI devices of the devices before it."""
    names: list[str] = []
    resources: list[podresources_v1_pb2.ClaimResource] = []
    for device in info.devices:
        names += device.cdi_device_ids
        resources.append(
            podresources_v1_pb2.ClaimResource(
                cdi_devices=[podresources_v1_pb2.CDIDevice(name=name) for name in names],
                driver_name=info.driver,
                pool_name=device.pool_name,
                device_name=device.device_name,
                share_id=getattr(device, "share_id", "") or None,
            )
        )
    return podresources_v1_pb2.DynamicResource(
        claim_name=info.ref.name, claim_namespace=info.ref.namespace, claim_resources=resources
    )


def call(socket: str, method: str, request: Any, answer: Any, seconds: float) -> Any:
    with grpc.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=seconds)
