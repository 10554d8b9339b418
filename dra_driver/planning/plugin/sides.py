# SPDX-License-Identifier: Apache-2.0
"""Through which API is each device offered now? On the way from one API to the other both are served, for different devices.

The scheduler and the kubelet do not know what the other one gave away. So a device is offered through one API only, and it changes sides
when nobody has it: until then it stays where its owner came from. Devices that are the same hardware are on one side, for the same reason.
The state refuses a second owner in any case, but this refusal costs a pod a minute or its life.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName, ResourceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Piece
from dra_driver.model.plugin import Path, PluginResource
from dra_driver.planning.path import PathFacts, Wishes, choose_path
from dra_driver.planning.plugin.problems import few

_NOTHING: Mapping[DeviceName, frozenset[Piece]] = MappingProxyType({})
_OTHER = {Path.DRA: Path.DEVICE_PLUGIN, Path.DEVICE_PLUGIN: Path.DRA}


class Offer(Struct, frozen=True):
    """The API through which each device is offered; a device that is not there is offered through none.

    `reasons` has a sentence for each device that is not where it shall be.
    """

    paths: Mapping[DeviceName, Path] = field(default_factory=dict)
    reasons: Mapping[DeviceName, str] = field(default_factory=dict)


def wanted_paths(
    inventory: Inventory,
    resources: Iterable[PluginResource],
    classes: Mapping[ResourceName, str],
    facts: PathFacts,
    wishes: Wishes,
) -> Mapping[DeviceName, Path | None]:
    """Return for each device the API through which it shall be offered. `classes` names the DeviceClass of each resource that has one."""
    node = choose_path(facts, wishes.node).path
    paths = dict.fromkeys((device.name for device in inventory.devices), node)
    for resource in resources:
        wish = wishes.of(resource.name, classes.get(resource.name, ""))
        path = choose_path(facts, wish).path
        paths |= {unit.device: path for unit in resource.units}
    return paths


def sides(
    inventory: Inventory,
    wanted: Mapping[DeviceName, Path | None],
    owners: Mapping[DeviceName, frozenset[Path]],
    *,
    occupied: Mapping[DeviceName, frozenset[Piece]] = _NOTHING,
) -> Offer:
    """Return the side of each device of the inventory.

    `wanted` is where a device shall be; None or missing: nowhere yet. `owners` has the APIs through which the owners of a device, or of its
    shares, got it. `occupied` is the hardware of owned devices as the state has it, for those that are not in the inventory any more.
    """
    placed = _Placed()
    owned = {name: paths for name, paths in owners.items() if paths}
    for name, paths in owned.items():
        found = inventory.by_name.get(name)
        pieces = occupied.get(name) or (found.resource.pieces if found else frozenset())
        placed.put(name, _of_owned(wanted.get(name), paths), pieces)
    reasons: dict[DeviceName, str] = {}
    for found in inventory.devices:
        wish = wanted.get(found.name)
        if wish is None:
            continue
        if found.name not in owned:
            reason = _put_free(placed, found, wish)
        else:
            reason = _why_it_stays(placed.paths[found.name], wish)
        if reason:
            reasons[found.name] = reason
    names = [one.name for one in inventory.devices if one.name in placed.paths]
    return Offer({name: placed.paths[name] for name in names}, reasons)


class _Placed:
    def __init__(self) -> None:
        self.paths: dict[DeviceName, Path] = {}
        self._pieces: dict[str, list[tuple[str, DeviceName]]] = {}

    def put(self, name: DeviceName, path: Path, pieces: Iterable[Piece]) -> None:
        self.paths[name] = path
        for parent, part in pieces:
            self._pieces.setdefault(parent, []).append((part, name))

    def beside(self, pieces: Iterable[Piece]) -> list[DeviceName]:
        """The devices that have some of these pieces, in the order in which they were put."""
        return list(
            dict.fromkeys(
                name
                for parent, part in pieces
                for taken, name in self._pieces.get(parent, ())
                if not part or not taken or part == taken
            )
        )


def _of_owned(wish: Path | None, paths: frozenset[Path]) -> Path:
    """The side of an owned device. If shares of it were given out through both APIs, it waits on the side that it shall leave."""
    if len(paths) == 1:
        return next(iter(paths))
    return Path.DRA if wish is None else _OTHER[wish]


def _why_it_stays(path: Path, wish: Path) -> str:
    if path is wish:
        return ""
    return (
        f"a pod has it through {path.value}; it is offered through {wish.value} when it is released"
    )


def _put_free(placed: _Placed, device: AllocatableDevice, wish: Path) -> str:
    """Place a device that nobody has. Return why it is not where it shall be; empty if it is."""
    beside = placed.beside(device.resource.pieces)
    others = {placed.paths[one] for one in beside}
    if others <= {wish}:
        placed.put(device.name, wish, device.resource.pieces)
        return ""
    if len(others) > 1:
        return f"it is the same hardware as {few(beside)}, which are offered through both APIs; it is offered when they are on one side"
    placed.put(device.name, next(iter(others)), device.resource.pieces)
    return f"it is the same hardware as {few(beside)}; it is offered through {wish.value} when they are"
