# SPDX-License-Identifier: Apache-2.0
"""What a row in the state says about an Allocate call: its units, and what its containers got."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.model.ids import DeviceName, UnitId
from dra_driver.model.plugin import Path, UnitsOfContainer
from dra_driver.model.state import PreparedClaim, PreparedDevice
from dra_driver.planning.finish import variables_by_device


def units_of(row: PreparedClaim) -> frozenset[UnitId]:
    """Return the units of the row. Each device of it has its unit in the place of a request."""
    return frozenset(UnitId(name) for device in row.devices for name in device.request_names)


def sharing(
    containers: Iterable[UnitsOfContainer], row: PreparedClaim
) -> tuple[UnitsOfContainer, ...]:
    """Return those of these containers to which the kubelet has given units of the row."""
    units = units_of(row)
    return tuple(
        one
        for one in containers
        if one.resource == row.ref.name and not units.isdisjoint(one.units)
    )


def answered_units(row: PreparedClaim) -> frozenset[UnitId]:
    """Return the units for which the row has an answer: it was given to its containers, and can be given again."""
    if not row.cdi_spec:
        return frozenset()
    names = variables_by_device(row.cdi_spec).keys()
    lacking = (one for one in row.devices if not names >= set(one.cdi_ids))
    return units_of(row).difference(*(one.request_names for one in lacking))


def unanswered_units(row: PreparedClaim) -> frozenset[UnitId]:
    """Return the units of a row that are being taken back from it; empty if it has no answer at all."""
    return units_of(row) - answered_units(row) if row.cdi_spec else frozenset()


def owner_paths(rows: Iterable[PreparedClaim]) -> Mapping[DeviceName, frozenset[Path]]:
    """Return the APIs through which the owners of each device got it, or shares of it."""
    found: dict[DeviceName, frozenset[Path]] = {}
    for row in rows:
        path = Path.DEVICE_PLUGIN if row.ref.of_plugin else Path.DRA
        for key in row.owned:
            found[key.device] = found.get(key.device, frozenset()) | {path}
    return found


def edits_of(text: str, devices: Iterable[PreparedDevice]) -> list[ContainerEdits]:
    """Return the edits that the CDI document `text` has for these devices, with those that all of its devices have. The driver wrote it."""
    document = json.loads(text)
    by_id = {
        f"{document['kind']}={one['name']}": one["containerEdits"] for one in document["devices"]
    }
    wanted = [by_id[cdi_id] for device in devices for cdi_id in device.cdi_ids if cdi_id in by_id]
    common = [document["containerEdits"]] if wanted and "containerEdits" in document else []
    return [_loaded(edits) for edits in (*common, *wanted)]


def _loaded(edits: dict[str, Any]) -> ContainerEdits:
    return ContainerEdits(
        env=dict(entry.split("=", 1) for entry in edits.get("env", ())),
        device_nodes=tuple(map(_node, edits.get("deviceNodes", ()))),
        mounts=tuple(
            Mount(one["hostPath"], one["containerPath"], tuple(one["options"]))
            for one in edits.get("mounts", ())
        ),
        hooks=tuple(_hooks(edits.get("hooks", ()))),
        additional_gids=tuple(edits.get("additionalGids", ())),
    )


def _node(one: dict[str, Any]) -> DeviceNode:
    return DeviceNode(
        one["path"],
        one["type"],
        one.get("major"),
        one.get("minor"),
        one["permissions"],
        one.get("hostPath", ""),
        one.get("fileMode"),
    )


def _hooks(entries: Iterable[dict[str, Any]]) -> Iterator[Hook]:
    for one in entries:
        yield Hook(
            one["hookName"],
            one["path"],
            tuple(one.get("args", ())),
            tuple(one.get("env", ())),
            one.get("timeout"),
        )
