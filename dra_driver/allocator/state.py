# SPDX-License-Identifier: Apache-2.0
"""What is already given away? Collected from the claims that are allocated, before the search begins.

A device is given to one claim, or, if it allows that, in shares to many. Shares may record what they take of the
device's capacity.
Source: k8s.io/dynamic-resource-allocation/structured/schedulerapi.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from dra_driver.model.api.meta import QuantityText


class DeviceID(NamedTuple):
    """A device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class SharedDeviceID(NamedTuple):
    """A share of a device in the cluster."""

    driver: str
    pool: str
    device: str
    share_id: str

    @property
    def device_id(self) -> DeviceID:
        """The device that is shared."""
        return DeviceID(self.driver, self.pool, self.device)


class PoolID(NamedTuple):
    """A pool in the cluster."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class AllocatedState(NamedTuple):
    """What the claims of the cluster hold."""

    allocated_devices: AbstractSet[DeviceID] = frozenset()
    allocated_shared_device_ids: AbstractSet[SharedDeviceID] = frozenset()
    aggregated_capacity: Mapping[DeviceID, Mapping[str, QuantityText]] = MappingProxyType({})
