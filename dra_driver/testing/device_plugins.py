# SPDX-License-Identifier: Apache-2.0
"""The part of the fake device manager that knows the plugins: which one is called, and which units are healthy.

`fake_device_manager.py` has the rules and their source.
"""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Any

import grpc
from msgspec import Struct

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.pb import podresources_v1_pb2
from dra_driver.kubelet.sockets import text_of
from dra_driver.testing import device_checkpoint
from dra_driver.testing.device_checkpoint import NO_NODE, PodDevices
from dra_driver.testing.device_plugin_client import Client
from dra_driver.testing.kubelet_calls import KubeletError, Version

GRACE_SECONDS = 300.0
HANG_SECONDS = 300.0


class Endpoint(Struct):
    """A plugin that is called for a resource; `client` is None for one that a kubelet knew before its start."""

    client: Client | None
    options: pb.DevicePluginOptions
    stopped_at: float | None = None

    def call(self, method: str, request: Any, answer: Any, seconds: float | None = None) -> Any:
        """Call the plugin. Raises KubeletError."""
        if self.client is None or self.stopped_at is not None:
            raise KubeletError("endpoint has been stopped")
        try:
            return self.client.call(method, request, answer, seconds)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel has been closed
            raise KubeletError(f"rpc error: {text_of(error)}") from error


class DevicePlugins:
    """What the plugins of a node offer. Use `until` to wait for what a plugin sends."""

    def __init__(self, folder: Path, version: Version) -> None:
        self.folder = folder
        self.clock: Callable[[], float] = time.monotonic
        self.changed = Condition()  # protects what follows; never held during a call
        self.lists = 0  # how many lists plugins have sent
        self.version = version
        self._forget_all()

    def _forget_all(self) -> None:
        self._endpoints: dict[str, Endpoint] = {}
        self._instances: dict[str, dict[Path, Endpoint]] = {}
        self._devices: dict[str, dict[str, Any]] = {}
        self._healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._given = PodDevices()
        self._allocated: dict[str, set[str]] = {}

    # Plugins.

    def connected(self, client: Client, options: pb.DevicePluginOptions) -> str:
        """Call this plugin from now on (`PluginConnected`)."""
        with self.changed:
            instances = self._instances.setdefault(client.resource, {})
            if self.version.keeps_device_plugins and client.path in instances:
                return f"device plugin already connected: {client.path}"
            endpoint = Endpoint(client, options)
            self._endpoints[client.resource] = instances[client.path] = endpoint
            self.changed.notify_all()
        return ""

    def disconnected(self, client: Client) -> None:
        """Do not call this plugin any more (`PluginDisconnected`)."""
        resource = client.resource
        with self.changed:
            instances = self._instances.get(resource, {})
            if not self.version.keeps_device_plugins:
                instances.clear()
                if resource in self._endpoints:  # that of another client, if this one was replaced
                    self._endpoints[resource].stopped_at = self.clock()
                    self._all_unhealthy(resource)
            elif client.path in instances:
                instances.pop(client.path).stopped_at = self.clock()
                if instances:
                    self._endpoints[resource] = next(iter(instances.values()))
                else:
                    self._all_unhealthy(resource)
            self.changed.notify_all()

    def received(self, resource: str, devices: list[Any]) -> None:
        """Replace the list of a resource (`genericDeviceUpdateCallback`)."""
        with self.changed:
            self._devices[resource] = {device.ID: device for device in devices}
            healthy = {device.ID for device in devices if device.health == "Healthy"}
            self._healthy[resource] = healthy
            self._unhealthy[resource] = set(self._devices[resource]) - healthy
            self._write()
            self.lists += 1
            self.changed.notify_all()

    def _all_unhealthy(self, resource: str) -> None:
        healthy = self._healthy.get(resource, set())
        self._healthy[resource] = set()
        self._unhealthy[resource] = self._unhealthy.get(resource, set()) | healthy

    # What the node has.

    def until(self, what: Callable[[], bool]) -> None:
        """Wait until `what` is true; it is asked after each change."""
        with self.changed:
            assert self.changed.wait_for(what, HANG_SECONDS), self.capacity()

    def capacity(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return capacity and allocatable of the node. Resources whose grace period is over are removed (`GetCapacity`)."""
        with self.changed:
            gone = [name for name in self._healthy if self._is_expired(name)]
            for resource in gone:
                for known in (self._endpoints, self._healthy, self._unhealthy):
                    known.pop(resource, None)
            if gone:
                self._write()
            allocatable = {name: len(units) for name, units in self._healthy.items()}
            capacity = {name: n + len(self._unhealthy[name]) for name, n in allocatable.items()}
        return capacity, allocatable

    def _is_expired(self, resource: str) -> bool:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            return True
        stopped_at = endpoint.stopped_at
        return stopped_at is not None and self.clock() - stopped_at > GRACE_SECONDS

    def allocatable(self) -> list[Any]:
        """Return all healthy units, also those that somebody has (`GetAllocatableDevices`)."""
        with self.changed:
            return [
                entry
                for resource, units in self._healthy.items()
                for unit in sorted(units)
                for entry in listed(resource, unit, _nodes(self._devices[resource][unit]))
            ]

    def _by_node(self, resource: str, units: set[str]) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for unit in sorted(units):
            for node in _nodes(self._devices[resource][unit]) or (NO_NODE,):
                found.setdefault(node, []).append(unit)
        return found

    def _write(self) -> None:
        device_checkpoint.write(self.folder, self._given, self._healthy)


def _nodes(device: Any) -> tuple[int, ...]:
    return tuple(node.ID for node in device.topology.nodes)


def listed(resource: str, unit: str, nodes: tuple[int, ...]) -> list[Any]:
    """Return the entries of a unit: one for each NUMA node (containerDevicesFromResourceDeviceInstances)."""
    found = podresources_v1_pb2.ContainerDevices
    if not nodes:
        return [found(resource_name=resource, device_ids=[unit])]
    topologies = [
        podresources_v1_pb2.TopologyInfo(nodes=[podresources_v1_pb2.NUMANode(ID=node)])
        for node in nodes
    ]
    return [
        found(resource_name=resource, device_ids=[unit], topology=topology)
        for topology in topologies
    ]
