# SPDX-License-Identifier: Apache-2.0
"""A fake kubelet that calls the driver over the same unix sockets as the real one.

The fake follows the rules of the real kubelet (k8s.io/kubernetes, pkg/kubelet/cm/dra and pkg/kubelet/pluginmanager), with feature
gates at their defaults. `VERSIONS` has the differences between 1.30 and 1.37:

* The kubelet finds a driver by its socket in the registry directory (not by names that begin with a dot). It calls GetInfo, and
  reports the result. If the driver answers this report with an error, or removes the socket, it is not registered any more.
* From 1.33 on several instances of a driver may be registered, and the kubelet calls the newest one that listens. Before 1.33 the
  newest registration replaces the others.
* Without a registered driver, prepare fails before the kubelet stores the claim, and unprepare fails too.
* The kubelet stores a claim before it calls prepare. So it calls unprepare also after a failed prepare.
* The kubelet sends a prepared claim again only after a restart. Then it still has the claim and its devices, but does not
  know that the claim is prepared.
* It checks the answer entry by entry. An unknown UID or an error ends the check, and so does a missing entry after that. Then the
  kubelet regards no claim of the call as prepared.
* It refuses a claim if it has stored another UID for the claim's name. In 1.37 it also refuses a claim that is being unprepared.
* It unprepares a claim after the last pod of the claim, and forgets it when unprepare succeeded.
* It creates the cgroup of a pod before prepare, and removes it after the end of the pod. The cgroup is populated while containers
  run (`cgroup_root`; kubelet.go SyncPod, SyncTerminatingPod, SyncTerminatedPod).
* `unprepare` is the normal end of a pod: its containers have ended before the call (kubelet.go:2443).
* `force_delete`: a pod is removed from the API while its containers run on. The kubelet forgets the pod at once, also in
  pod-resources (kubelet.go:3130, pod_workers.go:1009). Then `reconcile`, as the kubelet's loop does each minute, unprepares the
  claims of the pod although its containers may still run (cm/dra/manager.go:187). `end_containers` ends these containers.
* pod-resources lists only claims of active pods: by name and without UID, with the devices of the driver's answer. It does not list
  a claim that only normal init containers use (`init_pods`).
* Kubelets 1.30 and 1.31 have DRA behind a gate that is off: they refuse every DRA driver.
* Device plugins have a manager of their own: `device_manager`, in `root/device-plugins`.
* `lose_checkpoint` forgets every claim (the file `dra_manager_state`) while pods run on.

The scheduler adds a pod to `status.reservedFor` of its claims before the kubelet sees the pod: the fake calls `reserve(claim, pod)`
for that.

Not included: the check whether the pod may use the claim (the API server's part), several drivers for one claim, the deletion of
slices at a start, and retries (the caller calls again).
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import grpc

from dra_driver.kubelet import health_stream, pod_resources, registration
from dra_driver.kubelet.pb import pluginregistration_v1_pb2, podresources_v1_pb2
from dra_driver.kubelet.sockets import SocketServer, service, text_of, unary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.testing.device_checkpoint import ContainerOptions
from dra_driver.testing.fake_cgroups import FakeCgroups
from dra_driver.testing.fake_device_manager import FakeDeviceManager, Limits
from dra_driver.testing.kubelet_calls import (
    CALL_SECONDS,
    NOTIFY_SECONDS,
    OPTIONS,
    VERSIONS,
    ClaimInfo,
    KubeletError,
    Plugin,
    call,
    checked,
    claims_call,
    dynamic_resource,
    get_info,
    socket_inode,
    why_not,
)

__all__ = ["VERSIONS", "FakeKubelet", "KubeletError", "Plugin"]


class FakeKubelet:
    """The kubelet of one node, below `root`: `root/plugins`, `root/plugins_registry`, `root/device-plugins` and
    `root/pod-resources/kubelet.sock`.

    `version` is one of `VERSIONS`. While `refuses` is set, the kubelet refuses registrations with this text. `device_plugins` are the
    extended resources of device plugins that only pod-resources knows, with their devices; `device_manager` serves real plugins. `init_pods` are names of pods whose claims only normal init
    containers use. `call_seconds` is the deadline of a call. `cgroups` makes and removes the cgroup folders of pods, below `cgroup_root`.
    """

    def __init__(
        self,
        root: Path,
        *,
        version: str = "1.37",
        reserve: Callable[[ClaimRef, PodUid], None] = lambda _claim, _pod: None,
    ) -> None:
        self.plugins_dir = root / "plugins"
        self.registry_dir = root / "plugins_registry"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        self.version = VERSIONS[version]
        self._reserve = reserve
        self.claims: dict[ClaimUid, ClaimInfo] = {}
        self.refuses = ""
        self.call_seconds = CALL_SECONDS
        self.device_plugins: dict[str, tuple[str, ...]] = {}
        self.init_pods: set[str] = set()
        self.cgroups = FakeCgroups(root / "cgroup")
        self.cgroup_root = self.cgroups.root
        self._active: dict[
            str, PodUid
        ] = {}  # the pods of the kubelet's podManager, by "namespace/name"
        self._mutex = Lock()  # protects the claims and plugins; never held during a call
        self._plugins: list[Plugin] = []  # in the order of registration
        for folder in (self.plugins_dir, self.registry_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self.device_manager = FakeDeviceManager(
            root / "device-plugins", self.version, self._active_pods
        )
        self._pods = self._pod_resources_server()
        self._pods.start()

    def close(self) -> None:
        """End the servers of pod-resources and of device plugins."""
        self._pods.stop(0)
        self.device_manager.stop()

    def restart(self) -> None:
        """Restart the kubelet: it forgets which claims are prepared and which drivers are registered. Its checkpoints keep the
        claims and the units of device plugins."""
        self._restart()
        refused = self.device_manager.restart()
        with self._mutex:
            self._active = {pod: uid for pod, uid in self._active.items() if uid not in refused}

    def _restart(self) -> None:
        with self._mutex:
            self._plugins.clear()
            for info in self.claims.values():
                info.prepared = info.unpreparing = False

    def reboot(self) -> None:
        """Reboot the node: no container runs and no pod has a cgroup. The kubelet's checkpoint keeps the claims."""
        for pod in self.cgroups.pods():
            self.cgroups.end(pod)
            self.cgroups.remove(pod)
        self._restart()
        self.device_manager.reboot()

    # Pods.

    def pod_uid(self, pod: str) -> PodUid:
        """Return the UID of the pod of this name ("namespace/name"); creates a pod if there is none."""
        with self._mutex:
            return self._active.setdefault(pod, PodUid(str(uuid.uuid4())))

    def force_delete(self, pod: str) -> PodUid:
        """Remove the pod from the API: the kubelet forgets it at once, and its containers run on. Returns its UID."""
        with self._mutex:
            return self._active.pop(pod)

    def end_containers(self, pod: PodUid) -> None:
        """End the last process of a pod. If the kubelet has forgotten the pod, its cgroup is removed too."""
        self.cgroups.end(pod)
        self.device_manager.containers_ended(pod)
        with self._mutex:
            forgotten = pod not in self._active.values()
        if forgotten:
            self.cgroups.remove(pod)

    def reconcile(self, driver: str) -> None:
        """Unprepare the claims of pods that are not active, as the kubelet does each minute. After an error a later call tries again."""
        with self._mutex:
            active = set(self._active.values())
            inactive = {pod for info in self.claims.values() for pod in info.pods} - active
            held = {
                pod: [info.ref for info in self.claims.values() if pod in info.pods]
                for pod in sorted(inactive)
            }
        for pod, refs in held.items():
            with suppress(KubeletError):
                self._unprepare(driver, refs, pod)

    def lose_checkpoint(self) -> None:
        """Restart the kubelet without its file `dra_manager_state`: it knows no claim, and pods run on."""
        self.restart()
        with self._mutex:
            self.claims.clear()

    # Device plugins.

    def admit(
        self,
        pod: str,
        containers: Mapping[str, Limits],
        *,
        init: Mapping[str, Limits] | None = None,
    ) -> PodUid:
        """Admit a pod whose containers have these limits. Raises KubeletError if it is refused: then it has failed and is not active."""
        uid = self.pod_uid(pod)
        try:
            self.device_manager.admit(uid, containers, init=init)
        except KubeletError:
            with self._mutex:
                del self._active[pod]
            raise
        return uid

    def start(self, pod: str, container: str = "main") -> ContainerOptions:
        """Start a container of an admitted pod, for the first time or again. Returns what it gets."""
        uid = self.pod_uid(pod)
        self.cgroups.make(uid)
        options = self.device_manager.options(uid, container)
        self.cgroups.run(uid)
        return options

    def end(self, pod: str) -> PodUid:
        """End a pod normally: its containers end, and it is not active any more. Its claims are not unprepared."""
        with self._mutex:
            uid = self._active.pop(pod)
        self.end_containers(uid)
        return uid

    def _active_pods(self) -> set[PodUid]:
        with self._mutex:
            return set(self._active.values())

    # Registration.

    def register(self, driver: str) -> Plugin | None:
        """Search once for new registration sockets of the driver. Returns the instance that the kubelet calls from now on.

        None if there is no instance. Raises KubeletError if the kubelet refuses an instance, or if the instance answers with an error.
        """
        for path in self._sockets():
            inode = socket_inode(path)
            with self._mutex:
                known = any(
                    (plugin.socket, plugin.inode) == (path, inode) for plugin in self._plugins
                )
            info = None if known else get_info(path)
            if info is not None and info.name == driver:
                plugin = self._register(path, inode, info)
                with self._mutex:
                    if not self.version.keeps_instances:
                        self._plugins = [other for other in self._plugins if other.name != driver]
                    self._plugins.append(plugin)
        return self._called(driver)

    def _called(self, driver: str) -> Plugin | None:
        with self._mutex:
            self._plugins = [plugin for plugin in self._plugins if plugin.is_there()]
            instances = [plugin for plugin in self._plugins if plugin.name == driver]
        callable_ones = [plugin for plugin in instances if plugin.listens()] or instances
        return callable_ones[-1] if callable_ones else None

    def _sockets(self) -> list[Path]:
        """Return the sockets in the registry directory and below it, without names that begin with a dot."""
        return [
            path
            for path in sorted(self.registry_dir.rglob("*"))
            if socket_inode(path) and not path.name.startswith(".")
        ]

    def _register(
        self, path: Path, inode: int, info: pluginregistration_v1_pb2.PluginInfo
    ) -> Plugin:
        offered = list(info.supported_versions)
        chosen = next((name for name in offered if name in self.version.services), "")
        error = self.refuses or why_not(info, chosen, self.version.services)
        status = pluginregistration_v1_pb2.RegistrationStatus(
            plugin_registered=not error, error=error
        )
        try:
            call(
                str(path),
                f"/{registration.SERVICE}/NotifyRegistrationStatus",
                status,
                pluginregistration_v1_pb2.RegistrationStatusResponse,
                NOTIFY_SECONDS,
            )
        except grpc.RpcError as answer:
            raise KubeletError(
                error or f"the driver did not accept its registration: {text_of(answer)}"
            ) from answer
        if error:
            raise KubeletError(error)
        health = next(
            (
                name
                for name in self.version.health
                if name in offered or self.version.asks_health_unannounced
            ),
            "",
        )
        return Plugin(info.name, info.endpoint or str(path), chosen, health, path, inode)

    def _plugin(self, driver: str) -> Plugin:
        plugin = self._called(driver) or self.register(driver)
        if plugin is None:
            raise KubeletError(f"DRA driver {driver} is not registered")
        return plugin

    # Claims.

    def prepare(
        self,
        driver: str,
        refs: Iterable[ClaimRef],
        *,
        pod: str = "default/pod",
        uid: PodUid | None = None,
    ) -> dict[ClaimUid, tuple[Any, ...]]:
        """Prepare the claims of `pod` ("namespace/name") and start its containers. Returns the devices."""
        refs = list(refs)
        if uid is not None:
            self._active[pod] = uid
        user = self.pod_uid(pod)
        for ref in refs:
            self._reserve(ref, user)
        self.cgroups.make(user)
        plugin = self._plugin(driver)
        with self._mutex:
            infos = [self._referenced(ref, driver, user) for ref in refs]
            waiting = [info for info in infos if not info.prepared]
        if waiting:
            entries = claims_call(plugin, "NodePrepareResources", waiting, self.call_seconds)
            with self._mutex:
                for info, entry in checked("NodePrepareResources", waiting, entries):
                    kept = () if self.version.replaces_devices else info.devices
                    info.devices = (*kept, *entry.devices)
                for info in waiting:
                    info.prepared = True
        self.cgroups.run(user)
        return {info.ref.uid: info.devices for info in infos}

    def unprepare(self, driver: str, refs: Iterable[ClaimRef], *, pod: str = "default/pod") -> None:
        """End `pod` normally: its containers end, its claims are unprepared, and the kubelet forgets it."""
        user = self.pod_uid(pod)
        self.cgroups.end(user)
        self._unprepare(driver, refs, user)
        self.cgroups.remove(user)
        with self._mutex:
            if not any(user in info.pods for info in self.claims.values()):
                self._active.pop(pod, None)

    def _unprepare(self, driver: str, refs: Iterable[ClaimRef], pod: PodUid) -> None:
        """Unprepare the claims of the pod that no other pod uses."""
        leaving: list[ClaimInfo] = []
        with self._mutex:
            for ref in refs:
                info = self.claims.get(ref.uid)
                if info is None or (self.version.guards_release and pod not in info.pods):
                    continue
                if len(info.pods) > 1:
                    info.pods.discard(pod)
                else:
                    info.unpreparing = True
                    leaving.append(info)
        if leaving:
            entries = claims_call(
                self._plugin(driver), "NodeUnprepareResources", leaving, self.call_seconds
            )
            for _ in checked("NodeUnprepareResources", leaving, entries):
                pass
            with self._mutex:
                for info in leaving:
                    del self.claims[info.ref.uid]

    def cdi_ids(self, uid: ClaimUid, request: str = "") -> tuple[str, ...]:
        """Return the CDI names for a container that uses this request of the claim, or all its requests."""
        return tuple(
            cdi
            for device in self.claims[uid].devices
            if not request or not device.request_names or request in device.request_names
            for cdi in device.cdi_device_ids
        )

    def _referenced(self, ref: ClaimRef, driver: str, pod: PodUid) -> ClaimInfo:
        for known in self.claims.values():
            same_name = (known.ref.namespace, known.ref.name) == (ref.namespace, ref.name)
            if same_name and known.ref.uid != ref.uid:
                raise KubeletError(
                    f"old ResourceClaim with same name {ref.name} and different UID {known.ref.uid} "
                    f"still exists (previous pod force-deleted?!)"
                )
        info = self.claims.setdefault(ref.uid, ClaimInfo(ref, driver))
        if info.unpreparing and self.version.guards_release:
            raise KubeletError(f"ResourceClaim {ref.name} is being unprepared")
        info.pods.add(pod)
        return info

    # Health.

    def health(self, driver: str) -> Iterator[Any]:
        """Return the responses of the health stream, as long as the caller reads and the driver sends.

        Empty if this version of the kubelet opens no stream to the driver.
        """
        plugin = self._plugin(driver)
        if not plugin.health_service:
            return
        messages: Any = health_stream.SERVICES[plugin.health_service]
        with grpc.insecure_channel(f"unix:{plugin.endpoint}", options=OPTIONS) as channel:
            watch = channel.unary_stream(
                f"/{plugin.health_service}/NodeWatchResources",
                request_serializer=messages.NodeWatchResourcesRequest.SerializeToString,
                response_deserializer=messages.NodeWatchResourcesResponse.FromString,
            )
            yield from watch(messages.NodeWatchResourcesRequest())

    # Pod resources.

    def _pod_resources_server(self) -> SocketServer:
        name, _, method = pod_resources.METHOD[1:].partition("/")
        allocatable = pod_resources.ALLOCATABLE_METHOD.rpartition("/")[2]
        handler = service(
            name,
            {
                method: unary(self._list, podresources_v1_pb2.ListPodResourcesRequest),
                allocatable: unary(
                    self._allocatable, podresources_v1_pb2.AllocatableResourcesRequest
                ),
            },
        )
        return SocketServer(self.pod_resources_socket, [handler], workers=2, name="pod-resources")

    def _allocatable(
        self, _request: object, _context: object
    ) -> podresources_v1_pb2.AllocatableResourcesResponse:
        response = podresources_v1_pb2.AllocatableResourcesResponse()
        for resource, devices in self.device_plugins.items():
            for device in devices:  # one entry for each, as a kubelet that knows their NUMA nodes
                response.devices.add(resource_name=resource, device_ids=[device])
        response.devices.extend(self.device_manager.allocatable())
        return response

    def _list(
        self, _request: object, _context: object
    ) -> podresources_v1_pb2.ListPodResourcesResponse:
        response = podresources_v1_pb2.ListPodResourcesResponse()
        self.device_manager.take_back()
        with self._mutex:
            for pod, uid in sorted(self._active.items()):
                namespace, _, name = pod.partition("/")
                held = [info for info in self.claims.values() if uid in info.pods]
                containers = self.device_manager.containers(uid)
                if held:
                    named = self.version.lists_claims and pod not in self.init_pods
                    main = _container(containers, "main")
                    main.dynamic_resources.extend(map(dynamic_resource, held if named else ()))
                if containers:
                    response.pod_resources.add(
                        name=name, namespace=namespace, containers=containers
                    )
        return response


def _container(containers: list[Any], name: str) -> Any:
    """Return the container of this name, which is added to the list if it is not there."""
    found = next((one for one in containers if one.name == name), None)
    if found is None:
        found = podresources_v1_pb2.ContainerResources(name=name)
        containers.append(found)
    return found
