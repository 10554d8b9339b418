# SPDX-License-Identifier: Apache-2.0
"""A kubelet's side of the driver, over the same unix sockets.

It keeps the rules of the real one (k8s.io/kubernetes, pkg/kubelet/cm/dra and pkg/kubelet/pluginmanager, 1.32 to 1.37):

* the registration socket is found in the registry directory, asked GetInfo, and told the result;
* from 1.34 on the first DRA service of the *plugin's* list that the kubelet knows is used, before that v1beta1;
* claims that are prepared already are not sent again, until the kubelet restarts: it remembers them, but not that they
  are prepared;
* a claim is remembered before the call, so that a failed prepare is unprepared too;
* answers are checked: an unknown UID, an error entry or a missing entry fails the call;
* pod-resources list the claims of pods with the devices that prepare answered (from 1.34 on).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from dra_driver.kubelet import dra, dra_v1beta1, health_stream, pod_resources, registration
from dra_driver.kubelet.pb import (
    dra_health_v1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
    podresources_v1_pb2,
)
from dra_driver.kubelet.sockets import SocketServer, service, unary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid

CALL_SECONDS = 45.0
_SERVICES: Mapping[str, tuple[str, Any]] = {
    "v1.DRAPlugin": (dra.SERVICE, dra_v1_pb2),
    "v1beta1.DRAPlugin": (dra_v1beta1.SERVICE, dra_v1beta1_pb2),
}
_FIRST_WITH_V1 = (1, 34)
_NO_PROXY = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


class KubeletError(Exception):
    """What a real kubelet would write into the pod's events."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A registered driver: its name, socket, and the DRA service that is used."""

    name: str
    endpoint: str
    service: str


@dataclass(slots=True)
class ClaimInfo:
    """What the kubelet remembers of a claim; `prepared` does not survive a restart."""

    ref: ClaimRef
    driver: str
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    devices: tuple[dra_v1_pb2.Device, ...] = ()


class FakeKubelet:
    """One node's kubelet below `root`: `root/plugins`, `root/plugins_registry` and `root/pod-resources/kubelet.sock`."""

    def __init__(self, root: Path, *, version: str = "1.37") -> None:
        self.plugins_dir = root / "plugins"
        self.registry_dir = root / "plugins_registry"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        major, minor = version.split(".")[:2]
        self.version = int(major), int(minor)
        self.claims: dict[ClaimUid, ClaimInfo] = {}
        self._plugins: dict[str, Plugin] = {}
        for folder in (self.plugins_dir, self.registry_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self._pods = self._pod_resources_server()
        self._pods.start()

    def close(self) -> None:
        """End the pod-resources server."""
        self._pods.stop(0)

    # Registration.

    def register(self, driver: str) -> Plugin | None:
        """Look for the driver's registration socket once; None while it is not there or does not answer."""
        for socket in sorted(self.registry_dir.glob("*.sock")):
            info = self._get_info(socket)
            if info is not None and info.name == driver:
                return self._register(socket, info)
        return None

    def _get_info(self, socket: Path) -> pluginregistration_v1_pb2.PluginInfo | None:
        request = pluginregistration_v1_pb2.InfoRequest()
        try:
            found: pluginregistration_v1_pb2.PluginInfo = _call(
                str(socket),
                f"/{registration.SERVICE}/GetInfo",
                request,
                pluginregistration_v1_pb2.PluginInfo,
                1.0,
            )
        except grpc.RpcError:
            return None
        return found

    def _register(self, socket: Path, info: pluginregistration_v1_pb2.PluginInfo) -> Plugin:
        chosen = self._choose(info.supported_versions)
        status = pluginregistration_v1_pb2.RegistrationStatus(
            plugin_registered=chosen is not None,
            error=""
            if chosen
            else f"none of the services {list(info.supported_versions)} is supported by this kubelet",
        )
        _call(
            str(socket),
            f"/{registration.SERVICE}/NotifyRegistrationStatus",
            status,
            pluginregistration_v1_pb2.RegistrationStatusResponse,
            5.0,
        )
        if chosen is None:
            raise KubeletError(status.error)
        plugin = Plugin(info.name, info.endpoint, chosen)
        self._plugins[info.name] = plugin
        return plugin

    def _choose(self, offered: Sequence[str]) -> str | None:
        if self.version < _FIRST_WITH_V1:
            return "v1beta1.DRAPlugin" if "v1beta1.DRAPlugin" in offered else None
        return next((name for name in offered if name in _SERVICES), None)

    def restart(self) -> None:
        """Forget which claims are prepared and who is registered; remember the claims, as the checkpoint does."""
        self._plugins.clear()
        for info in self.claims.values():
            info.prepared = False

    # Claims.

    def prepare(
        self, driver: str, refs: Iterable[ClaimRef], *, pod: str = "default/pod"
    ) -> dict[ClaimUid, tuple[Any, ...]]:
        """What happens before the sandbox of `pod` ("namespace/name") is made; answers the devices of each claim."""
        refs = list(refs)
        for ref in refs:
            info = self.claims.setdefault(ref.uid, ClaimInfo(ref, driver))
            info.pods.add(pod)
        open_refs = [ref for ref in refs if not self.claims[ref.uid].prepared]
        if open_refs:
            response = self._claims_call(driver, "NodePrepareResources", open_refs, CALL_SECONDS)
            _check("NodePrepareResources", open_refs, response.claims)
            for ref in open_refs:
                info = self.claims[ref.uid]
                info.devices, info.prepared = tuple(response.claims[ref.uid].devices), True
        return {ref.uid: self.claims[ref.uid].devices for ref in refs}

    def unprepare(self, driver: str, refs: Iterable[ClaimRef], *, pod: str = "default/pod") -> None:
        """What happens after `pod` is gone: a claim goes with its last pod."""
        leaving: list[ClaimRef] = []
        for ref in refs:
            info = self.claims.get(ref.uid)
            if info is None:
                continue
            info.pods.discard(pod)
            if not info.pods:
                leaving.append(ref)
        if leaving:
            response = self._claims_call(driver, "NodeUnprepareResources", leaving, CALL_SECONDS)
            _check("NodeUnprepareResources", leaving, response.claims)
            for ref in leaving:
                del self.claims[ref.uid]

    def cdi_ids(self, uid: ClaimUid) -> tuple[str, ...]:
        """What the runtime gets for all requests of the claim."""
        return tuple(cdi for device in self.claims[uid].devices for cdi in device.cdi_device_ids)

    def health(self, driver: str) -> Iterator[dra_health_v1_pb2.NodeWatchResourcesResponse]:
        """The reports of the health stream, as long as the caller reads and the driver sends."""
        name = "v1.DRAResourceHealth" if self.version >= (1, 37) else "v1alpha1.DRAResourceHealth"
        messages: Any = health_stream.SERVICES[name]
        with grpc.insecure_channel(
            f"unix:{self._plugin(driver).endpoint}", options=_NO_PROXY
        ) as channel:
            watch = channel.unary_stream(
                f"/{name}/NodeWatchResources",
                request_serializer=messages.NodeWatchResourcesRequest.SerializeToString,
                response_deserializer=messages.NodeWatchResourcesResponse.FromString,
            )
            yield from watch(messages.NodeWatchResourcesRequest())

    def _claims_call(
        self, driver: str, method: str, refs: Sequence[ClaimRef], seconds: float
    ) -> Any:
        plugin = self._plugin(driver)
        name, messages = _SERVICES[plugin.service]
        claims = [
            messages.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs
        ]
        request = getattr(messages, f"{method}Request")(claims=claims)
        try:
            return _call(
                plugin.endpoint,
                f"/{name}/{method}",
                request,
                getattr(messages, f"{method}Response"),
                seconds,
            )
        except grpc.RpcError as error:
            raise KubeletError(f"{method} failed: {error}") from error

    def _plugin(self, driver: str) -> Plugin:
        plugin = self._plugins.get(driver) or self.register(driver)
        if plugin is None:
            raise KubeletError(f"DRA driver {driver} is not registered")
        return plugin

    # Pod resources.

    def _pod_resources_server(self) -> SocketServer:
        name, _, method = pod_resources.METHOD[1:].partition("/")
        handler = service(
            name, {method: unary(self._list, podresources_v1_pb2.ListPodResourcesRequest)}
        )
        return SocketServer(self.pod_resources_socket, [handler], workers=2, name="pod-resources")

    def _list(
        self, _request: object, _context: object
    ) -> podresources_v1_pb2.ListPodResourcesResponse:
        response = podresources_v1_pb2.ListPodResourcesResponse()
        pods = sorted({pod for info in self.claims.values() for pod in info.pods})
        for pod in pods:
            namespace, _, name = pod.partition("/")
            container = podresources_v1_pb2.ContainerResources(name="main")
            if self.version >= _FIRST_WITH_V1:
                held = [info for info in self.claims.values() if pod in info.pods]
                container.dynamic_resources.extend(
                    _dynamic_resource(info) for info in held
                )
            response.pod_resources.add(name=name, namespace=namespace, containers=[container])
        return response


def _dynamic_resource(info: ClaimInfo) -> podresources_v1_pb2.DynamicResource:
    return podresources_v1_pb2.DynamicResource(
        claim_name=info.ref.name,
        claim_namespace=info.ref.namespace,
        claim_resources=[
            podresources_v1_pb2.ClaimResource(
                cdi_devices=[
                    podresources_v1_pb2.CDIDevice(name=cdi) for cdi in device.cdi_device_ids
                ],
                driver_name=info.driver,
                pool_name=device.pool_name,
                device_name=device.device_name,
                share_id=getattr(device, "share_id", "") or None,
            )
            for device in info.devices
        ],
    )


def _check(method: str, refs: Sequence[ClaimRef], entries: Mapping[str, Any]) -> None:
    asked = {str(ref.uid): ref for ref in refs}
    for uid, entry in entries.items():
        if uid not in asked:
            raise KubeletError(f"{method} returned result for unknown claim UID {uid}")
        if entry.error:
            raise KubeletError(
                f"{method} failed for ResourceClaim {asked[uid].name}: {entry.error}"
            )
    skipped = len(asked) - len(entries)
    if skipped:
        raise KubeletError(f"{method} skipped {skipped} ResourceClaims")


def _call(socket: str, method: str, request: Any, answer: Any, seconds: float) -> Any:
    with grpc.insecure_channel(f"unix:{socket}", options=_NO_PROXY) as channel:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=seconds)
