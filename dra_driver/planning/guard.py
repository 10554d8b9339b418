# SPDX-License-Identifier: Apache-2.0
"""Which devices of ours does a device plugin of somebody else have, or could it still give out?

A foreign plugin and this driver do not know each other. The scheduler and the kubelet count the devices of both, so one device could get
two pods. The kubelet's checkpoint tells which pod has which units of which resource, and which resources are registered; pod-resources
tell what is allocatable now. From both follows what this driver must not give out.

A unit's ID says which device it is only where the plugin's own Allocate uses the ID:

| plugin | ID |
| --- | --- |
| NVIDIA's | UUID of a GPU or of a MIG device, an index ("0", "0:1"), each perhaps with `::` and the number of a replica |
| GKE's | `nvidia0`, `nvidia0/gi1` by the number of the device file |
| AMD's | PCI address |
| HAMi's, Alibaba's gpushare | an invented ID: their schedulers choose another device than the ID says |

Of any other ID it cannot be told, so it may be each device of the vendor.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.ids import DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import KubeletCheckpoint, UnitsOfContainer
from dra_driver.model.plugin_policy import DeviceChoice
from dra_driver.model.vocabulary import PCI_BUS_ID
from dra_driver.planning.neighbours import vendor_of
from dra_driver.planning.occupied import overlap

_REPLICA = re.compile(r"::\d+$")
# Not more digits: an ID is a text of any length, and Python refuses to make a number of thousands of digits.
_INDEX = re.compile(r"(\d{1,9})(?::\d+)?")
_DEVICE_FILE = re.compile(r"nvidia(\d{1,9})(?:/.*)?", re.DOTALL)
_GPU_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CHOSEN_ELSEWHERE = re.compile(r"aliyun\.com/.+|nvidia\.com/gpu(?:mem|mem-percentage|cores)")
_LABEL_LENGTH = 63
_NAMED = 4

Divided = Mapping[ResourceName, DeviceChoice]
"""What the admin left to a foreign plugin, by its resource. The other devices are this driver's."""


class ForeignResource(Struct, frozen=True):
    """An extended resource that somebody else's plugin offers here. `vendor` is "" if only its units tell that it has our devices.

    `registered`: the kubelet knows its plugin, or waits five minutes for it to come back. `units` are the healthy ones, as last written;
    `allocatable` is their number now, None if the kubelet has not said it.
    """

    name: ResourceName
    vendor: str
    registered: bool
    units: frozenset[UnitId] = frozenset()
    allocatable: int | None = None

    @property
    def gives(self) -> bool:
        """Whether its plugin can give out a unit, now or after a restart of the plugin."""
        return self.registered or bool(self.allocatable)


class ForeignPod(Struct, frozen=True):
    """A pod with units of a foreign resource, and the devices that these may be. `told`: the IDs say which devices they are."""

    pod: PodUid
    resource: ResourceName
    units: frozenset[UnitId]
    devices: frozenset[DeviceName]
    told: bool = True


class Kept(Struct, frozen=True):
    """Why a device is kept from this driver's users. `held`: a pod has it; otherwise a foreign plugin may give it out."""

    resource: ResourceName
    reason: str
    held: bool = False


class OwnUnits(Struct, frozen=True):
    """What this driver gives out by the device plugin API. `offered` are its resources now; `left` are those that it offered before, and that
    the kubelet may not have forgotten yet. `given` has the units of its rows by pod; the pod None stands for rows whose pod is not known.
    """

    offered: frozenset[ResourceName] = frozenset()
    left: frozenset[ResourceName] = frozenset()
    given: Mapping[PodUid | None, frozenset[tuple[ResourceName, UnitId]]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def has(self, entry: UnitsOfContainer) -> bool:
        """Whether these units were given out by this driver."""
        units = {(entry.resource, unit) for unit in entry.units}
        return any(units & self.given.get(pod, frozenset()) for pod in (entry.pod, None))


NOTHING_OWN = OwnUnits()


def foreign_resources(
    checkpoint: KubeletCheckpoint,
    allocatable: Mapping[str, int] | None,
    inventory: Inventory,
    own: OwnUnits = NOTHING_OWN,
) -> tuple[ForeignResource, ...]:
    """Return the resources of others that are devices of the inventory, or may be, by name. `allocatable` None: the kubelet has not said it."""
    names = {*checkpoint.registered, *map(ResourceName, allocatable or {})}
    found = []
    for name in sorted(names - own.offered):
        count = None if allocatable is None else allocatable.get(name, 0)
        if name in own.left and not count:
            continue  # this driver's own, until the kubelet has forgotten it
        units = checkpoint.registered.get(name, frozenset())
        vendor = vendor_of(name)
        if _of_vendor(inventory, vendor) if vendor else _is_ours(units, inventory):
            found.append(ForeignResource(name, vendor, name in checkpoint.registered, units, count))
    return tuple(found)


def foreign_pods(
    checkpoint: KubeletCheckpoint, inventory: Inventory, own: OwnUnits = NOTHING_OWN
) -> tuple[ForeignPod, ...]:
    """Return the entries of the checkpoint that have devices of the inventory, or may have, and that this driver did not give out.

    An entry may be that of a pod that has ended: the kubelet writes the file only when it gives units to somebody.
    """
    found = []
    for entry in checkpoint.containers:
        vendor = vendor_of(entry.resource)
        if own.has(entry) or not (vendor or _is_ours(entry.units, inventory)):
            continue
        devices, told = devices_of(entry.resource, entry.units, inventory)
        if devices:
            found.append(ForeignPod(entry.pod, entry.resource, entry.units, devices, told))
    return tuple(found)


def devices_of(
    resource: ResourceName, units: Iterable[UnitId], inventory: Inventory
) -> tuple[frozenset[DeviceName], bool]:
    """Return the devices that these units are, with all devices of the same hardware, and whether the IDs tell it.

    If they do not, each device of the vendor may be meant. A GPU that is certainly none of the inventory's is no device.
    """
    vendor = vendor_of(resource)
    mine = _of_vendor(inventory, vendor)
    find = _Finder(mine, vendor)
    found: dict[DeviceName, AllocatableDevice] = {}
    told = not _CHOSEN_ELSEWHERE.fullmatch(resource)
    for base in {_REPLICA.sub("", unit) for unit in units}:
        named = find(base)
        found |= {device.name: device for device in named}
        told = told and (bool(named) or _is_elsewhere(base, mine))
    meant = _with_same_hardware(found.values(), inventory) if told else mine
    return frozenset(device.name for device in meant), told


def kept_devices(
    resources: Iterable[ForeignResource],
    pods: Iterable[ForeignPod],
    divided: Divided,
    inventory: Inventory,
) -> Mapping[DeviceName, Kept]:
    """Return the devices that nobody may get from this driver now. `pods` are those that may run.

    A resource that the admin has divided keeps its share whether or not its plugin runs, and no other device. The plugin of any
    other resource keeps all that it could give out.
    """
    kept: dict[DeviceName, Kept] = {}
    for name, choice in sorted(divided.items()):
        reason = (
            f"devicePlugin.foreign in the driver's configuration leaves it to the plugin of {name}"
        )
        kept |= dict.fromkeys(chosen(name, choice, inventory), Kept(name, reason))
    for one in resources:
        if one.name in divided or not one.gives:
            continue
        could = _could_give(one, inventory)
        reason = f"the plugin of {one.name} can give it to a pod at any time"
        kept |= dict.fromkeys(sorted(could), Kept(one.name, reason))
    for pod in pods:
        doubt = "" if pod.told else ", as far as the IDs of its units tell"
        reason = (
            f"pod {pod.pod} has it as {pod.resource}{doubt}, and has not been proven to have ended"
        )
        kept |= dict.fromkeys(sorted(pod.devices), Kept(pod.resource, reason, held=True))
    return kept


def chosen(
    resource: ResourceName, choice: DeviceChoice, inventory: Inventory
) -> frozenset[DeviceName]:
    """Return the devices that the admin means: the first `count` of the vendor's, or those that are named as units are."""
    vendor = vendor_of(resource)
    mine = _of_vendor(inventory, vendor)
    find = _Finder(mine, vendor)
    named = [device for name in choice.named for device in find(name)] or mine[: choice.count]
    return frozenset(device.name for device in _with_same_hardware(named, inventory))


def beyond(
    resources: Iterable[ForeignResource], divided: Divided, inventory: Inventory
) -> Mapping[ResourceName, frozenset[DeviceName]]:
    """Return the devices that a foreign plugin lists although the admin left them to this driver, by resource."""
    found = {}
    for one in resources:
        if one.name in divided and one.gives:
            more = _could_give(one, inventory) - chosen(one.name, divided[one.name], inventory)
            if more:
                found[one.name] = more
    return found


def taint_value(resource: str) -> str:
    """The name of a resource as the value of a taint: `/` is not allowed there, nor more than 63 characters."""
    return resource.replace("/", "_")[:_LABEL_LENGTH].rstrip("-_.")


def few(names: Collection[str]) -> str:
    """Some of the names, for a sentence."""
    shown = sorted(names)
    more = len(shown) - _NAMED
    return ", ".join(shown[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _could_give(resource: ForeignResource, inventory: Inventory) -> frozenset[DeviceName]:
    """The devices that the plugin lists. A plugin without healthy units now may list all of its vendor in a moment."""
    known = len(resource.units) >= (resource.allocatable or 0)
    if resource.units and known:
        return devices_of(resource.name, resource.units, inventory)[0]
    return frozenset(device.name for device in _of_vendor(inventory, resource.vendor))


def _of_vendor(inventory: Inventory, vendor: str) -> list[AllocatableDevice]:
    """The devices of the vendor; all of them if the vendor is not known. A device without the attribute may be of any vendor."""
    return [
        device
        for device in inventory.devices
        if not vendor or _said(device, "vendor") in (vendor, None)
    ]


def _said(device: AllocatableDevice, name: str) -> object:
    return plain((device.api.attributes or {}).get(name))


def _is_ours(units: Iterable[UnitId], inventory: Inventory) -> bool:
    """Whether an ID is that of a device here. An admin may have renamed the resource, but not the device."""
    bases = {_REPLICA.sub("", unit) for unit in units}
    return any(bases & _identities(device) for device in inventory.devices)


def _identities(device: AllocatableDevice) -> set[str]:
    """What identifies the device or its hardware everywhere, unlike an index."""
    said = {
        device.uuid,
        device.resource.parent,
        *(str(_said(device, name) or "") for name in ("uuid", "parentUUID", PCI_BUS_ID)),
    }
    return said - {""}


class _Finder:
    """Finds the devices of an ID in one look: a plugin may list thousands of IDs."""

    def __init__(self, mine: Iterable[AllocatableDevice], vendor: str) -> None:
        self._by_identity: defaultdict[str, list[AllocatableDevice]] = defaultdict(list)
        self._by_number: defaultdict[tuple[str, object], list[AllocatableDevice]] = defaultdict(
            list
        )
        for device in mine:
            for identity in {*_identities(device), device.name}:
                self._by_identity[identity].append(device)
            if vendor in ("nvidia", ""):
                for name in ("index", "minor"):
                    self._by_number[name, _said(device, name)].append(device)

    def __call__(self, base: str) -> Sequence[AllocatableDevice]:
        if found := self._by_identity.get(base):
            return found
        if index := _INDEX.fullmatch(base):
            return self._by_number.get(("index", int(index[1])), ())
        file = _DEVICE_FILE.fullmatch(base)
        return self._by_number.get(("minor", int(file[1])), ()) if file else ()


def _is_elsewhere(base: str, mine: Iterable[AllocatableDevice]) -> bool:
    """Whether this is a GPU that is not in the inventory: it has a UUID, and the UUIDs of all GPUs here are known."""
    return _GPU_UUID.fullmatch(base) is not None and all(
        any(map(_GPU_UUID.fullmatch, _identities(device))) for device in mine
    )


def _with_same_hardware(
    named: Iterable[AllocatableDevice], inventory: Inventory
) -> list[AllocatableDevice]:
    """These devices, and all that overlap with them: a GPU and its partitions exclude each other."""
    pieces = frozenset(piece for device in named for piece in device.resource.pieces)
    return [device for device in inventory.devices if overlap(device.resource.pieces, pieces)]
