# SPDX-License-Identifier: Apache-2.0
"""Rows for units that pods have already: after a reboot, after the state was lost, or from another plugin."""

from collections.abc import Iterable

from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkPrepared,
    MarkStarted,
    Plan,
    Refusal,
    Step,
)
from dra_driver.model.plugin import PLUGIN_NAMESPACE, PluginResource, Unit, UnitsOfContainer
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.planning.finish import variables_by_device
from dra_driver.planning.plugin.located import also_reserved, located, stayed
from dra_driver.planning.prepare import NodePlace


def plan_again(
    row: PreparedClaim, inventory: Inventory, boot_id: str, others: Iterable[PreparedClaim] = ()
) -> Plan | Refusal:
    """Plan to set the units of a row up again in another boot, on the devices that they mean now, for the same pods and under the same CDI names.

    A fixed row is set up on the devices that have its names now, and has those of its units besides, unless one of the `others` has them.

    Without leases nothing is known that could be set up, because another plugin gave the devices out or the state was lost: they are reserved,
    and nothing else is to do.
    """
    now = stayed(row, inventory) if row.is_fixed else located(row, inventory)
    if isinstance(now, Refusal):
        return now
    of_this_boot, count = row.boot_id == boot_id, len(now.devices)
    if of_this_boot and (now.owned != row.owned[:count] or _parents(now) != _parents(row)):
        # Its leases may be set up on hardware that has another name now: they are undone when the row ends.
        return Refusal(
            f"resource {row.ref.name}: {', '.join(device.device for device in row.devices)} got another name while it was being set up again "
            f"after the reboot; delete the pod (UID {', '.join(row.users.pods or ())}) if nothing creates it again"
        )
    spare = row.devices[count:] if of_this_boot else also_reserved(now, inventory, others)
    started = MarkStarted(
        replace(
            now,
            phase=Phase.STARTED,
            boot_id=boot_id,
            devices=(*now.devices, *spare),
            cdi_spec="",
        )
    )
    work: tuple[Step, ...] = tuple(map(ConfigureDevice, now.leases or ()))
    return Plan(row.ref, (started, *(work or (MarkPrepared(row.ref.uid),))), _set_up(now))


def _set_up(row: PreparedClaim) -> tuple[PreparedDevice, ...]:
    """Return the devices that a row has leases for: of one that is being parted, some were undone. Without any leases, all."""
    if row.leases is None:
        return row.devices
    keys = {(one.device, one.share_id) for one in row.leases}
    return tuple(one for one in row.devices if (one.device, one.share_id) in keys)


def plan_taken_up(
    container: UnitsOfContainer,
    resource: PluginResource,
    uid: ClaimUid,
    text: str,
    *,
    place: NodePlace,
    boot_id: str,
) -> Plan | None:
    """Plan a row for units that a running container has. `text` is that of its CDI file, if there is one. None: no unit is known."""
    names = tuple(variables_by_device(text))
    devices = tuple(
        PreparedDevice(
            request_names=(unit.id,),
            pool=place.pool,
            device=unit.device,
            cdi_ids=tuple(name for name in names if _is_of(name, unit)),
            uuid="",
            share_id=unit.share,
        )
        for unit in _units(container, resource)
    )
    if not devices:
        return None
    ref = ClaimRef(PLUGIN_NAMESPACE, resource.name, uid)
    row = PreparedClaim(
        ref, Phase.STARTED, boot_id, devices, text, Users((container.pod,), sole=True)
    )
    return Plan(ref, (MarkStarted(row), MarkPrepared(uid)), devices)


def is_nameless(row: PreparedClaim) -> bool:
    """Whether the row was reserved at a start because of a CDI file of the device plugin API, and is of no known resource."""
    return row.ref.of_plugin and not row.ref.name and row.held is None


def described_units(
    row: PreparedClaim, container: UnitsOfContainer, resource: PluginResource
) -> frozenset[UnitId]:
    """Return the units of a container whose devices and shares a row has. A CDI name can be read in two ways, and the row has both."""
    mine = {(device.device, device.share_id) for device in row.devices}
    return frozenset(
        unit.id for unit in _units(container, resource) if (unit.device, unit.share) in mine
    )


def by_pod(containers: Iterable[UnitsOfContainer]) -> tuple[UnitsOfContainer, ...]:
    """Return one entry for each pod and resource: an init container and the containers after it share units, but need not have the same."""
    found: dict[tuple[PodUid, ResourceName], UnitsOfContainer] = {}
    for one in containers:
        before = found.get((one.pod, one.resource), one)
        found[one.pod, one.resource] = replace(before, units=before.units | one.units)
    return tuple(found.values())


def _parents(row: PreparedClaim) -> list[str]:
    return [lease.parent for lease in row.leases or ()]


def _units(container: UnitsOfContainer, resource: PluginResource) -> list[Unit]:
    return [unit for unit in resource.units if unit.id in container.units]


def _is_of(name: str, unit: Unit) -> bool:
    """Whether a CDI name is that of the unit: it ends with the device and the share."""
    return name.endswith(f"-{unit.device}-{unit.share}" if unit.share else f"-{unit.device}")
