# SPDX-License-Identifier: Apache-2.0
"""Which devices are already allocated, and how does the allocator name a device?

A device is allocated to one claim. With allowMultipleAllocations it can be allocated in shares to many claims. Each share
can record how much capacity it consumes. The caller collects this from the claims before the search.
Source: k8s.io/dynamic-resource-allocation/structured/schedulerapi.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from dra_driver.model.api.meta import QuantityText


class DeviceID(NamedTuple):
    """The driver, pool and name of a device. Unique in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class SharedDeviceID(NamedTuple):
    """A device and the ID of one of its shares. Unique in the cluster."""

    driver: str
    pool: str
    device: str
    share_id: str

    @property
    def device_id(self) -> DeviceID:
        """The device without the share ID."""
        return DeviceID(self.driver, self.pool, self.device)


class PoolID(NamedTuple):
    """The driver and name of a pool. Unique in the cluster.

    `part` is "" in the search. A report names a node here if the scheduler sees the pool of this node as one by itself.
    """

    driver: str
    pool: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class AllocatedState(NamedTuple):
    """The allocated devices and shares, and the consumed capacity of each shared device."""

    allocated_devices: AbstractSet[DeviceID] = frozenset()
    allocated_shared_device_ids: AbstractSet[SharedDeviceID] = frozenset()
    aggregated_capacity: Mapping[DeviceID, Mapping[str, QuantityText]] = MappingProxyType({})
