# SPDX-License-Identifier: Apache-2.0
"""The device plugin API in values: extended resources, their units, what the kubelet lists, and what a container gets.

On a cluster without DRA a pod asks for a number of an *extended resource* (`limits: {nvidia.com/gpu: 1}`). The kubelet knows of each
resource a list of *units* by ID, chooses some, and asks the plugin what a container with them needs. A unit is a whole device, or a
share of one: a replica, or an amount of memory.
Source: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.
"""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.cdi import DeviceNode, Mount
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.ids import (
    NO_SHARE,
    DeviceName,
    PodUid,
    ResourceName,
    ShareId,
    UnitId,
)

LONGEST_UNIT_ID = 63
"""Characters; the kubelet does not check it, but the API says so."""
PLUGIN_NAMESPACE = "device-plugin"
"""In the reference of a row for an Allocate call, in the place of a claim's namespace. The name is that of the resource, and the UID begins
with PLUGIN_UID_PREFIX.
"""
MOST_REPLICAS = 1000
"""Of one device. With more, the list of a node's units outgrows what the kubelet takes in one message."""
RESOURCE_PATTERN = (
    r"^(?!requests\.)(?!.*kubernetes\.io/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""The names that an extended resource can have."""


class Path(Enum):
    """Through which API the devices of a node are offered to pods."""

    DRA = "dra"
    DEVICE_PLUGIN = "device-plugin"


class Sharing(Enum):
    """What a unit of a resource is: a whole device, one of its replicas (nothing keeps them apart), or an amount of its memory."""

    WHOLE = "whole"
    REPLICAS = "replicas"
    MEMORY = "memory"


class Unit(Struct, frozen=True):
    """One ID of a resource's list. `share` is NO_SHARE for a whole device.

    `amounts` is what the unit consumes of the device's capacity, as quantities by name; only units of memory have it.
    """

    id: UnitId
    device: DeviceName
    share: ShareId = NO_SHARE
    amounts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclasses.dataclass(frozen=True, slots=True)
class PluginResource:
    """One extended resource of this node, in the order in which its units are preferred.

    `source` says for messages where the resource comes from ("DeviceClass gpu, classes.yaml document 2"). `configs` are the opaque
    configurations of the class. With `refuses_several` a container may have one unit only, because more do not mean more of a device.
    `packed`: shares fill one device before the next; otherwise they are spread. `by_id` has the units by their IDs.
    """

    name: ResourceName
    units: tuple[Unit, ...]
    source: str
    sharing: Sharing = Sharing.WHOLE
    configs: tuple[OpaqueConfig, ...] = ()
    refuses_several: bool = False
    packed: bool = False
    by_id: Mapping[UnitId, Unit] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once for each list: a call names a few of a thousand units.
        object.__setattr__(self, "by_id", {unit.id: unit for unit in self.units})


class ListedUnit(Struct, frozen=True):
    """A unit as ListAndWatch tells it to the kubelet, with the NUMA nodes of its device (empty: not known)."""

    id: UnitId
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


class ContainerAnswer(Struct, frozen=True):
    """What Allocate tells the kubelet about a container: CDI names, or variables, device files and mounts, or annotations."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_ids: tuple[str, ...] = ()


class Strategy(Enum):
    """How a container gets its devices. CDI: by CDI names, for kubelets from 1.31 on. EDITS: variables, device files and mounts, which every
    kubelet passes on; a container gets no hooks then. CDI_ANNOTATIONS: annotations with CDI names, which containerd and CRI-O read.
    """

    CDI = "cdi"
    EDITS = "edits"
    CDI_ANNOTATIONS = "cdi-annotations"


class UnitsOfContainer(Struct, frozen=True):
    """Units of one resource that the kubelet has given to a container of a pod, as its checkpoint has it."""

    pod: PodUid
    container: str
    resource: ResourceName
    units: frozenset[UnitId]


class PodUnits(Struct, frozen=True):
    """Units of one resource that a container of a pod has, as the kubelet's pod-resources list them: with names and without the UID."""

    namespace: str
    pod: str
    container: str
    resource: ResourceName
    units: frozenset[UnitId]


class KubeletCheckpoint(Struct, frozen=True):
    """The content of the kubelet's `kubelet_internal_checkpoint`. `registered` are the healthy units of each resource, as last written."""

    containers: tuple[UnitsOfContainer, ...] = ()
    registered: Mapping[ResourceName, frozenset[UnitId]] = field(default_factory=dict)


class ClassSource(Struct, frozen=True):
    """A DeviceClass whose devices are offered, and where it was read: "classes.yaml document 2", or "DeviceClass gpu of the cluster"."""

    device_class: DeviceClass
    where: str
