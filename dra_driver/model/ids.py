# SPDX-License-Identifier: Apache-2.0
"""Types for names that must not be confused with each other; they are named as in the Kubernetes API."""

from typing import NewType

from msgspec import Struct

ClaimUid = NewType("ClaimUid", str)
PodUid = NewType("PodUid", str)
DeviceName = NewType("DeviceName", str)
PoolName = NewType("PoolName", str)
DriverName = NewType("DriverName", str)
NodeName = NewType("NodeName", str)
ShareId = NewType("ShareId", str)
ResourceName = NewType("ResourceName", str)
"""The name of an extended resource: "nvidia.com/gpu"."""
UnitId = NewType("UnitId", str)
"""The ID of a unit in the list of a device plugin."""

NO_SHARE = ShareId("")


class DeviceKey(Struct, frozen=True, order=True):
    """What a claim owns: a device of a pool, or one share of it.

    `share` is the share ID of a device that allows multiple allocations, else `NO_SHARE`. Two claims may own two shares of one
    device, but each key has at most one owner.
    """

    pool: PoolName
    device: DeviceName
    share: ShareId = NO_SHARE

    def __str__(self) -> str:
        share = f" share {self.share}" if self.share else ""
        return f"{self.pool}/{self.device}{share}"
