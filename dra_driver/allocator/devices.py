# SPDX-License-Identifier: Apache-2.0
"""What does the search know about a device of a slice?

A SliceDevice has the published device and the values that are calculated from it. An Allocator makes each SliceDevice
once and uses it for all nodes and claims. So each value is calculated at most once.
"""

from collections.abc import Hashable

import msgspec

from dra_driver.allocator.amounts import Amount, amount
from dra_driver.allocator.cached_attribute import cached_attribute
from dra_driver.allocator.nodes import node_matches
from dra_driver.allocator.state import DeviceID, PoolID
from dra_driver.cel.device import DeviceValue
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, ResourceSlice

ValueType = str
AttributeValues = tuple[ValueType, frozenset[Hashable]]
"""The type and the set of values of one attribute. Values of different types are never equal."""

CounterName = tuple[str, str]
"""The name of a counter set, and the name of a counter in it."""


class SliceDevice:
    """One device of one slice (upstream: deviceWithID)."""

    def __init__(self, in_slice: "PoolSlice", device: Device) -> None:
        self.slice = in_slice
        self.device = device
        self.id = DeviceID(in_slice.pool_id.driver, in_slice.pool_id.pool, device.name)

    # Caches. Most of 100,000 devices need none of them.

    @cached_attribute
    def selected(self) -> dict[object, bool]:
        """Whether the device matches, by CEL expression."""
        return {}

    @cached_attribute
    def compared(self) -> dict[str, AttributeValues | None]:
        """The values for constraints, by attribute name. None if the device lacks the attribute."""
        return {}

    @cached_attribute
    def consumed(self) -> dict[tuple[tuple[str, Amount], ...], dict[str, Amount]]:
        """The consumed capacity, by the requested capacity (Request.capacity_key)."""
        return {}

    @cached_attribute
    def forbidden(self) -> dict[tuple[tuple[str, Amount], ...], str | None]:
        """The capacity whose policy forbids the request, by the requested capacity. None if all allow it."""
        return {}

    @cached_attribute
    def value(self) -> DeviceValue:
        """The CEL variable `device`."""
        return DeviceValue(self.id.driver, self.device)

    @cached_attribute
    def value_of_one_claim(self) -> DeviceValue:
        """The CEL variable `device` in the stable allocator, which does not know allowMultipleAllocations."""
        alone = msgspec.structs.replace(self.device, allow_multiple_allocations=None)
        return DeviceValue(self.id.driver, alone)

    @cached_attribute
    def consumes(self) -> dict[CounterName, int]:
        """The amount that an allocation of the device consumes from each counter of the pool, in billionths."""
        total: dict[CounterName, int] = {}
        for part in self.device.consumes_counters or ():
            for name, counter in (part.counters or {}).items():
                key = (part.counter_set, name)
                total[key] = total.get(key, 0) + amount(counter.value).nanos
        return total

    @cached_attribute
    def groups(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """The compatibility groups of the device, with the name of their counter set."""
        return tuple(
            (part.counter_set, frozenset(part.compatibility_groups or ()))
            for part in self.device.consumes_counters or ()
        )

    @cached_attribute
    def capacity(self) -> dict[str, Amount]:
        """The published value of each capacity."""
        return {name: amount(entry.value) for name, entry in (self.device.capacity or {}).items()}

    @cached_attribute
    def simple_capacity(self) -> bool:
        """Whether a request without capacity always gets the full capacity, without an error.

        This is so if no capacity has a request policy and none is negative. Most devices are like this, and the search
        skips the calculation for them.
        """
        return all(
            entry.request_policy is None and self.capacity[name].nanos >= 0
            for name, entry in (self.device.capacity or {}).items()
        )

    def is_for(self, node: Node) -> bool:
        """Return whether the node can use the device. Only for a slice with perDeviceNodeSelection."""
        device = self.device
        return node_matches(
            node, device.node_name, all_nodes=device.all_nodes, selector=device.node_selector
        )

    def attribute(self, name: str) -> DeviceAttribute | None:
        """Return the attribute with this fully qualified name, or None. The default domain is the driver name."""
        attributes = self.device.attributes or {}
        if name in attributes:
            return attributes[name]
        domain, slash, identifier = name.partition("/")
        return attributes.get(identifier) if slash and domain == self.id.driver else None


class PoolSlice:
    """One ResourceSlice and its devices. `only`: as it is for these nodes, and not for others that it selects."""

    def __init__(
        self,
        published: ResourceSlice,
        pool_id: PoolID | None = None,
        only: frozenset[str] | None = None,
    ) -> None:
        spec = published.spec
        self.published = published
        self.name = published.metadata.name
        self.spec = spec
        self.pool_id = pool_id or PoolID(spec.driver, spec.pool.name)
        self.only = only

    @cached_attribute
    def devices(self) -> list[SliceDevice]:
        """The devices in the order of the slice."""
        return [SliceDevice(self, device) for device in self.spec.devices or ()]

    @cached_attribute
    def uses_compatibility_groups(self) -> bool:
        """Whether any device has compatibility groups (sliceUsesCompatibilityGroups)."""
        return any(
            part.compatibility_groups
            for device in self.spec.devices or ()
            for part in device.consumes_counters or ()
        )

    @property
    def chooses_nodes(self) -> bool:
        """Whether the slice itself selects nodes. Otherwise each device does (perDeviceNodeSelection)."""
        spec = self.spec
        return bool(spec.node_name or spec.all_nodes or spec.node_selector is not None)

    def is_for(self, node: Node) -> bool:
        """Return whether the node can use the devices of the slice. Only if `chooses_nodes`."""
        spec = self.spec
        return node_matches(
            node, spec.node_name, all_nodes=spec.all_nodes, selector=spec.node_selector
        )
