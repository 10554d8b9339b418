# SPDX-License-Identifier: Apache-2.0
"""The device manager of the fake kubelet: it gives units of device plugins to containers.

The fake follows k8s.io/kubernetes, pkg/kubelet/cm/devicemanager/manager.go, in the versions 1.30 to 1.37:

* A plugin registers on kubelet.sock; the kubelet connects to the plugin before it answers (`device_plugin_client.py`). Before 1.37 a new
  registration replaces the one before. From 1.37 on several plugins may offer one resource; the newest is called
  (`PluginConnected`), a remaining one takes over, and only the end of the last makes the units unhealthy (`PluginDisconnected`).
* When the stream of a plugin ends, its units are unhealthy: they stay in the capacity, and none is allocatable. After a grace period of 5
  minutes the resource is removed (`GetCapacity`). `clock` may be replaced.
* At the admission of a pod each container gets its units, one Allocate call for each resource (`allocateContainerResources`). The kubelet
  asks the plugin which ones it prefers (`devicesToAllocate`). The fake chooses the rest in the order of their IDs, the kubelet at random.
* The checkpoint is written after all resources of a container, before the next container, and for each list of a plugin. It is not written
  when units are taken back, and not when a later resource of the same container fails; the pod is refused then
  (UnexpectedAdmissionError). But it is written with the units of the containers before, and the next write of
  anybody has those of the failed container too, until they are taken back.
* The units of a pod that is not active are taken back at the next Allocate of any pod and at each List of pod-resources
  (`UpdateAllocatedDevices`), although its containers may still run.
* A container that starts again gets the stored answer. Without one, because the checkpoint was lost, there is a new Allocate call
  (`GetDeviceRunContainerOptions`). PreStartContainer is called before each start if the plugin wants it.
* Units of an init container are given again to later containers of the pod (`devicesToReuse`).
* A new kubelet process deletes every socket in its folder, reads the checkpoint, and knows no healthy unit until the plugins register.
  It admits each pod again: a container that runs passes; after a reboot none runs, and without healthy units the pod fails.
* Kubelets before 1.31 may have the gate DevicePluginCDIDevices off (`takes_cdi`): CDI names are dropped without a word then.

Not included: topology hints, sidecars, the deprecated registration through the plugin watcher, and the annotations with CDI
names that kubelets before 1.32 add.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.pb import podresources_v1_pb2
from dra_driver.model.ids import PodUid
from dra_driver.testing import device_checkpoint
from dra_driver.testing.device_checkpoint import NO_NODE, ContainerOptions, Given
from dra_driver.testing.device_plugin_client import PRE_START_SECONDS, Registration
from dra_driver.testing.device_plugins import DevicePlugins, Endpoint, listed
from dra_driver.testing.kubelet_calls import KubeletError, Version

Limits = Mapping[str, int]
"""What a container asks for: numbers of units by resource."""


class FakeDeviceManager(DevicePlugins):
    """The device manager of one kubelet. `active` returns the UIDs of the active pods."""

    def __init__(self, folder: Path, version: Version, active: Callable[[], set[PodUid]]) -> None:
        super().__init__(folder, version)
        self.takes_cdi = True
        self._active = active
        self._limits: dict[PodUid, dict[str, Limits]] = {}
        self._init: dict[PodUid, frozenset[str]] = {}  # names of init containers
        self._running: set[tuple[PodUid, str]] = set()  # containers
        self._ready = True  # whether the kubelet has heard from the API server since its start
        self.registration = Registration(folder, self, keeps_clients=version.keeps_device_plugins)
        self.registration.start()

    # The life of the kubelet's process.

    def stop(self) -> None:
        """End the kubelet's process."""
        self.registration.stop()

    def start(self) -> None:
        """Start a kubelet that knows only what the checkpoint says (`Start`, `readCheckpoint`)."""
        with self.changed:
            self._forget_all()
            self._given, registered = device_checkpoint.read(self.folder)
            self._allocated = self._given.allocated()
            for resource in registered:
                self._healthy[resource] = set()
                self._unhealthy[resource] = set()
                self._endpoints[resource] = Endpoint(None, pb.DevicePluginOptions(), self.clock())
            self._ready = False
        self.registration.start()

    def restart(self) -> dict[PodUid, str]:
        """Restart the kubelet while containers run. Each active pod is admitted again; returns the pods that are refused, and why."""
        self.stop()
        self.start()
        refused: dict[PodUid, str] = {}
        for pod in sorted(self._active() & set(self._limits)):
            try:
                self._admit(pod)
            except KubeletError as error:
                refused[pod] = str(error)
        with self.changed:
            self._ready = True
        return refused

    def reboot(self) -> None:
        """Reboot the node: no container runs. Call `admit_again` for each pod, before or after the plugins register."""
        with self.changed:
            self._running.clear()
        self.stop()
        self.start()

    def lose_checkpoint(self) -> None:
        """Restart the kubelet without its checkpoint."""
        self.stop()
        (self.folder / device_checkpoint.FILE_NAME).unlink(missing_ok=True)
        self.start()
        with self.changed:
            self._ready = True

    def units(self, pod: PodUid, container: str = "main") -> dict[str, set[str]]:
        """Return the units that a container has, by resource."""
        with self.changed:
            return {name: given.ids() for name, given in self._given.of(pod, container).items()}

    # Pods.

    def admit(
        self,
        pod: PodUid,
        containers: Mapping[str, Limits],
        *,
        init: Mapping[str, Limits] | None = None,
    ) -> None:
        """Give units to the containers of a new pod; init containers come first. Raises KubeletError if the pod is refused."""
        with self.changed:
            self._limits[pod] = {**(init or {}), **containers}
            self._init[pod] = frozenset(init or ())
        self._admit(pod)

    def admit_again(self, pod: PodUid) -> None:
        """Admit a pod again, as a kubelet does after its start. Raises KubeletError if it is refused."""
        self._admit(pod)

    def options(self, pod: PodUid, container: str = "main") -> ContainerOptions:
        """Return what a container gets each time it starts (`GetDeviceRunContainerOptions`). Raises KubeletError."""
        missing = False
        for resource, number in self._limits[pod][container].items():
            if not number or not self._is_known(resource):
                continue
            self._pre_start(pod, container, resource)
            missing = missing or resource not in self._given.of(pod, container)
        if missing and pod in self._active():
            self._allocate(pod, container, {})
        with self.changed:
            self._running.add((pod, container))
            return self._given.options(pod, container, cdi=self.takes_cdi)

    def containers_ended(self, pod: PodUid) -> None:
        """The last container of the pod has ended. The kubelet takes its units back when the pod is not active any more."""
        with self.changed:
            self._running = {entry for entry in self._running if entry[0] != pod}

    def take_back(self) -> None:
        """Take units back from pods that are not active (`UpdateAllocatedDevices`). The checkpoint is not written."""
        active = self._active()
        with self.changed:
            gone = self._given.pods() - active if self._ready else set()
            if gone:
                self._given.delete(gone)
                self._allocated = self._given.allocated()
                for pod in gone:
                    self._limits.pop(pod, None)

    def _admit(self, pod: PodUid) -> None:
        reusable: dict[str, set[str]] = {}
        for container in list(self._limits[pod]):
            try:
                self._allocate(pod, container, reusable)
            except KubeletError as error:
                raise KubeletError(
                    f"UnexpectedAdmissionError: Allocate failed due to {error}, which is unexpected"
                ) from error
            for resource, given in self._given.of(pod, container).items():
                known = reusable.setdefault(resource, set())
                reusable[resource] = (
                    known | given.ids() if container in self._init[pod] else known - given.ids()
                )

    def _allocate(self, pod: PodUid, container: str, reusable: Mapping[str, set[str]]) -> None:
        """Give a container its units (`allocateContainerResources`)."""
        is_new = False
        asked = {n: k for n, k in self._limits[pod][container].items() if self._is_known(n)}
        if asked:
            self.take_back()
        for resource, number in asked.items():
            units = self._choose(pod, container, resource, number, reusable.get(resource, set()))
            if not units:
                continue
            is_new = True
            with self.changed:
                endpoint = self._endpoints[resource]
            request = pb.AllocateRequest()
            request.container_requests.add(devices_ids=sorted(units))
            try:
                answer = endpoint.call("Allocate", request, pb.AllocateResponse)
            except KubeletError:
                with self.changed:
                    self._allocated = self._given.allocated()
                raise
            if not answer.container_responses:
                raise KubeletError("no containers return in allocation response")
            with self.changed:
                given = Given(self._by_node(resource, units), answer.container_responses[0])
                self._given.insert(pod, container, resource, given)
        if is_new:
            with self.changed:
                self._write()

    def _choose(
        self, pod: PodUid, container: str, resource: str, number: int, reusable: set[str]
    ) -> set[str]:
        """Return the units for an Allocate call; none if no call is needed (`devicesToAllocate`)."""
        with self.changed:
            given = self._given.of(pod, container).get(resource)
            before = set() if given is None else given.ids()
            if given is not None and len(before) != number:
                raise KubeletError(
                    f'pod "{pod}" container "{container}" changed request for resource "{resource}" '
                    f"from {len(before)} to {number}"
                )
            if not self._ready and (pod, container) in self._running:
                return set()
            self._check_health(resource, before)
            if given is not None or not number:
                return set()
            chosen = set(sorted(reusable)[:number])
            self._allocated.setdefault(resource, set()).update(chosen)
            available = self._healthy[resource] - self._allocated[resource]
            needed = number - len(chosen)
            if len(available) < needed:
                raise KubeletError(
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {needed}, Available: {len(available)}"
                )
        if not needed:
            return chosen
        preferred = self._preferred(resource, available | chosen, chosen, number)
        with self.changed:
            wanted = [unit for unit in preferred if unit in available]
            rest = sorted(available - set(wanted))
            chosen |= set([*wanted, *rest][:needed])
            self._allocated.setdefault(resource, set()).update(chosen)
        return chosen

    def _check_health(self, resource: str, before: set[str]) -> None:
        if resource not in self._healthy:
            raise KubeletError(f"cannot allocate unregistered device {resource}")
        if not self._healthy[resource]:
            raise KubeletError(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if not before <= self._healthy[resource]:
            raise KubeletError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )

    def _preferred(
        self, resource: str, available: set[str], chosen: set[str], number: int
    ) -> list[str]:
        with self.changed:
            endpoint = self._endpoints[resource]
        if not endpoint.options.get_preferred_allocation_available:
            return []
        request = pb.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=sorted(available),
            must_include_deviceIDs=sorted(chosen),
            allocation_size=number,
        )
        try:
            answer = endpoint.call(
                "GetPreferredAllocation", request, pb.PreferredAllocationResponse
            )
        except KubeletError as error:
            raise KubeletError(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from error
        return [unit for one in answer.container_responses[:1] for unit in one.deviceIDs]

    def _pre_start(self, pod: PodUid, container: str, resource: str) -> None:
        with self.changed:
            endpoint = self._endpoints.get(resource)
            given = self._given.of(pod, container).get(resource)
        if endpoint is None:
            raise KubeletError(f"endpoint not found in cache for a registered resource: {resource}")
        if not endpoint.options.pre_start_required:
            return
        if given is None:
            raise KubeletError(
                f"no devices found allocated in local cache for pod {pod}, container {container}, resource {resource}"
            )
        request = pb.PreStartContainerRequest(devices_ids=sorted(given.ids()))
        try:
            endpoint.call(
                "PreStartContainer", request, pb.PreStartContainerResponse, PRE_START_SECONDS
            )
        except KubeletError as error:
            raise KubeletError(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from error

    def _is_known(self, resource: str) -> bool:
        with self.changed:
            return resource in self._healthy or resource in self._allocated

    # Pod resources.

    def containers(self, pod: PodUid) -> list[Any]:
        """Return the ContainerResources of a pod for pod-resources. Init containers are not listed."""
        with self.changed:
            return [
                podresources_v1_pb2.ContainerResources(
                    name=container,
                    devices=[
                        entry
                        for resource, given in self._given.of(pod, container).items()
                        for node, units in given.units.items()
                        for unit in units
                        for entry in listed(resource, unit, () if node == NO_NODE else (node,))
                    ],
                )
                for container in self._given.containers(pod)
                if container not in self._init.get(pod, ())
            ]
