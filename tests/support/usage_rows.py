# SPDX-License-Identifier: Apache-2.0
"""Rows of the state and containers of the kubelet, for tests of metrics."""

from dra_driver.model.claim import PLUGIN_UID_PREFIX, ClaimRef
from dra_driver.model.ids import (
    NO_SHARE,
    ClaimUid,
    DeviceKey,
    DeviceName,
    ResourceName,
    ShareId,
    UnitId,
)
from dra_driver.model.state import NOBODY_KNOWN, Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.model.usage import ContainerUse
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref

GPU = ResourceName("nvidia.com/gpu")


def a_prepared_device(
    name: str = "gpu-0", *, share: str = "", admin: bool = False, request: str = "main"
) -> PreparedDevice:
    """Return a device as a row has it."""
    return PreparedDevice(
        (request,),
        A_POOL,
        DeviceName(name),
        (),
        f"uuid-{name}",
        ShareId(share) if share else NO_SHARE,
        admin,
    )


def a_row(
    name: str = "train",
    *devices: PreparedDevice,
    phase: Phase = Phase.PREPARED,
    held: Held | None = None,
    users: Users = NOBODY_KNOWN,
    uid: str = "",
) -> PreparedClaim:
    """Return a row; without devices it has gpu-0."""
    return PreparedClaim(
        a_ref(name, uid=uid), phase, A_BOOT, devices or (a_prepared_device(),), "", users, held
    )


def a_plugin_row(unit: str = "gpu-0-unit") -> PreparedClaim:
    """Return the row of an Allocate call for one unit of gpu-0."""
    ref = ClaimRef("", GPU, ClaimUid(f"{PLUGIN_UID_PREFIX}1"))
    device = a_prepared_device(request=unit)
    return PreparedClaim(ref, Phase.PREPARED, A_BOOT, (device,), "")


def a_use(
    claim: str = "train",
    device: str = "gpu-0",
    *,
    pod: str = "train-0",
    container: str = "main",
    share: str = "",
) -> ContainerUse:
    """Return a container that has a device through a claim."""
    key = DeviceKey(A_POOL, DeviceName(device), ShareId(share) if share else NO_SHARE)
    return ContainerUse("default", pod, container, claim=claim, device=key)


def a_unit_use(unit: str = "gpu-0-unit", *, pod: str = "old-0") -> ContainerUse:
    """Return a container that has a unit of the device plugin API."""
    return ContainerUse("batch", pod, "main", resource=GPU, units=frozenset({UnitId(unit)}))
