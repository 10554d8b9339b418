# SPDX-License-Identifier: Apache-2.0
"""The second half of a preparation: from what the backends returned, the CDI file and the end of the plan.

Only after the set-up of its devices it is known what a container needs: a partition gets its UUID and its device number when it is
made. So the text of the CDI file is made here, and the row gets it together with the phase Prepared. The file is written after that
commit. If the process dies between the two, the next start writes the file from the row. So a file whose row is Started shows that
the commit was lost with a damaged log, and that containers may use the claim.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits, Mount
from dra_driver.model.ids import DeviceName, DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.model.metadata import joined
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkPrepared,
    MarkStarted,
    Plan,
    Refusal,
    WriteCdiSpec,
)
from dra_driver.model.state import PreparedClaim, PreparedDevice
from dra_driver.planning.edits import wrong_edits
from dra_driver.planning.metadata import metadata_of, mounts_of

ADMIN_VARIABLE = "DRA_ADMIN_ACCESS"
DRIVER_VARIABLE = "DRA_DRIVER_NAME"


def plan_finish(
    plan: Plan,
    edits: Sequence[object],
    *,
    driver: DriverName,
    inventory: Inventory,
    metadata_root: str = "",
) -> Plan | Refusal:
    """Plan the end of a preparation: mark the claim Prepared, then write its CDI file. `plan` is the first half, of `plan_prepare`;
    `edits` are the answers of the backends, one for each of its devices in their order. With a `metadata_root` the claim gets metadata
    files below it.

    Returns a Refusal if the driver does not accept the edits of a backend. The claim's devices stay reserved; the kubelet tries again
    or unprepares the claim, which undoes their set-up.
    """
    described = []
    any_admin = any(device.admin_access for device in plan.devices)
    files, mounts = _metadata(plan, driver, inventory, metadata_root)
    for device, answer, own in zip(plan.devices, edits, mounts, strict=True):
        if wrong := wrong_edits(answer, _declared(inventory, device.device)):
            return Refusal(
                f"the backend's container edits for device {device.device} of claim {plan.claim} are refused: {wrong}; "
                f"this is a defect of the backend, report it to its author"
            )
        accepted = cast("ContainerEdits", answer)
        if any_admin and ADMIN_VARIABLE in accepted.env:
            # A backend that tells about admin access knows only the device; the container has the claim.
            accepted = accepted.merged(ContainerEdits(env={ADMIN_VARIABLE: "true"}))
        described.append(_described(device, accepted, own, driver))
    kind = plan.devices[0].cdi_ids[0].partition("=")[0]
    text = CdiSpec(kind, tuple(described)).to_json()
    uid = plan.claim.uid
    row = _used_row(plan)
    prepared = (MarkPrepared(uid, text, files), WriteCdiSpec(uid, text, files))
    return Plan(plan.claim, prepared if row is None else (row, *prepared), plan.devices)


def started_row(plan: Plan) -> PreparedClaim:
    """Return the row that the first half of a preparation writes."""
    return next(step.claim for step in plan.steps if isinstance(step, MarkStarted))


def _used_row(plan: Plan) -> MarkStarted | None:
    """The row with its leases, if it has none yet because containers may use the claim (`planning.adopt.told_that_it_may_run`)."""
    leases = tuple(step.lease for step in plan.steps if isinstance(step, ConfigureDevice))
    if not any(lease.may_run for lease in leases):
        return None
    return MarkStarted(replace(started_row(plan), leases=leases))


def is_file_of(row: PreparedClaim, text: str) -> bool:
    """Whether a CDI file describes exactly the devices of the row, so that it is the file that a finished preparation wrote."""
    ids = [cdi_id for device in row.devices for cdi_id in device.cdi_ids]
    return sorted(variables_by_device(text)) == sorted(ids)


def variables_by_device(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return the environment variables of each device of a CDI file, by the device's full CDI name; empty if the file is damaged."""
    try:
        document = json.loads(text)
        return {
            f"{document['kind']}={device['name']}": dict(
                entry.partition("=")[::2] for entry in device["containerEdits"].get("env", ())
            )
            for device in document["devices"]
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _described(
    device: PreparedDevice, edits: ContainerEdits, mounts: tuple[Mount, ...], driver: DriverName
) -> CdiDevice:
    own = {ADMIN_VARIABLE: "true"} if device.admin_access else {}
    if not own and not mounts and not edits.as_dict():
        own = {DRIVER_VARIABLE: driver}  # CDI accepts no device without an edit
    name = device.cdi_ids[0].partition("=")[2]
    return CdiDevice(name, edits.merged(ContainerEdits(env=own, mounts=mounts)))


def _metadata(
    plan: Plan, driver: DriverName, inventory: Inventory, root: str
) -> tuple[str, Sequence[tuple[Mount, ...]]]:
    """Return the text of the claim's metadata files, and the mounts for each device."""
    if not root:
        return "", [()] * len(plan.devices)
    files = metadata_of(plan, driver=driver, inventory=inventory)
    return joined(files), mounts_of(plan, driver=driver, root=root)


def _declared(inventory: Inventory, name: DeviceName) -> frozenset[str]:
    found = inventory.by_name.get(name)
    return frozenset() if found is None else found.declares
