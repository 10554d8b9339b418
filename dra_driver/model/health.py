# SPDX-License-Identifier: Apache-2.0
"""The health of a device, with the fields of the kubelet's DRAResourceHealth service."""

from enum import Enum

from msgspec import Struct
from msgspec.structs import force_setattr

from dra_driver.model.ids import DeviceName, PoolName

MESSAGE_LIMIT_BYTES = 1000  # the kubelet cuts at 1024 bytes, inside a character if need be


class HealthStatus(Enum):
    """The values are those of the protobuf enum. A device whose health is not checked is UNKNOWN."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class Health(Struct, frozen=True):
    """A status, and a message that people see in the pod's status. A message that is too long is cut between two characters."""

    status: HealthStatus
    message: str = ""

    def __post_init__(self) -> None:
        encoded = self.message.encode("utf-8", "replace")[:MESSAGE_LIMIT_BYTES]
        force_setattr(self, "message", encoded.decode("utf-8", "ignore"))


UNCHECKED = Health(HealthStatus.UNKNOWN, "nothing checks the health of this device")
HEALTHY = Health(HealthStatus.HEALTHY)


class DeviceHealth(Struct, frozen=True):
    """The health of a device as it is sent to the kubelet; `checked_at` is in Unix seconds."""

    pool: PoolName
    device: DeviceName
    health: Health
    checked_at: int
