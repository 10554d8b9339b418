# SPDX-License-Identifier: Apache-2.0
"""Health of a device, in the words of the kubelet's DRAResourceHealth service."""

from dataclasses import dataclass
from enum import Enum

from dra_driver.model.ids import DeviceName, PoolName

MESSAGE_LIMIT_BYTES = 1000  # the kubelet cuts at 1024 bytes, inside a character if need be


class HealthStatus(Enum):
    """As on the wire; a device that nothing checks is UNKNOWN."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class Health:
    """A status and one sentence for whoever reads the pod's status; too long a sentence is cut at a character."""

    status: HealthStatus
    message: str = ""

    def __post_init__(self) -> None:
        encoded = self.message.encode("utf-8", "replace")[:MESSAGE_LIMIT_BYTES]
        object.__setattr__(self, "message", encoded.decode("utf-8", "ignore"))


UNCHECKED = Health(HealthStatus.UNKNOWN, "nothing checks the health of this device")
HEALTHY = Health(HealthStatus.HEALTHY)


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """A device's health as the kubelet is told; `checked_at` is Unix seconds."""

    pool: PoolName
    device: DeviceName
    health: Health
    checked_at: int
