# SPDX-License-Identifier: Apache-2.0
"""A device as the search meets it: in its slice, with everything prepared that does not depend on who asks.

Made once per slice and kept as long as the Allocator, so that a second node or a second claim finds the work done.
"""

from collections.abc import Hashable

from dra_driver.allocator.amounts import Amount, amount
from dra_driver.allocator.lazy import lazy
from dra_driver.allocator.nodes import node_matches
from dra_driver.allocator.state import DeviceID, PoolID
from dra_driver.cel.device import DeviceValue
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, ResourceSlice

Kind = str
Values = tuple[Kind, frozenset[Hashable]]
"""The values that a device has for an attribute, by their kind; values of different kinds are never the same."""

CounterName = tuple[str, str]
"""The name of the counter set and the name of the counter in it."""


class SliceDevice:
    """One device of one slice."""

    def __init__(self, in_slice: "PoolSlice", device: Device) -> None:
        self.slice = in_slice
        self.device = device
        self.id = DeviceID(in_slice.pool_id.driver, in_slice.pool_id.pool, device.name)
        self.selected: dict[object, bool] = {}
        """What selectors said of the device, by selector."""
        self.compared: dict[str, Values | None] = {}
        """What constraints compare, by attribute."""
        self.consumed: dict[tuple[tuple[str, Amount], ...], dict[str, Amount]] = {}
        """What requests would take of its capacity, by what they ask for."""
        self.forbidden: dict[tuple[tuple[str, Amount], ...], str | None] = {}
        """The capacity whose policy does not allow that, by the same."""

    @lazy
    def value(self) -> DeviceValue:
        """The variable `device` of selectors."""
        return DeviceValue(
            self.id.driver,
            self.device.attributes,
            self.device.capacity,
            allow_multiple_allocations=self.device.allow_multiple_allocations,
        )

    @lazy
    def value_of_one_claim(self) -> DeviceValue:
        """The variable `device` for the stable allocator, which does not know shares."""
        return DeviceValue(self.id.driver, self.device.attributes, self.device.capacity)

    @lazy
    def consumes(self) -> dict[CounterName, int]:
        """What an allocation takes from the counters of the pool."""
        total: dict[CounterName, int] = {}
        for part in self.device.consumes_counters or ():
            for name, counter in (part.counters or {}).items():
                key = (part.counter_set, name)
                total[key] = total.get(key, 0) + amount(counter.value).nanos
        return total

    @lazy
    def groups(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """The compatibility groups by counter set."""
        return tuple(
            (part.counter_set, frozenset(part.compatibility_groups or ()))
            for part in self.device.consumes_counters or ()
        )

    @lazy
    def capacity(self) -> dict[str, Amount]:
        """How much there is of each capacity."""
        return {name: amount(entry.value) for name, entry in (self.device.capacity or {}).items()}

    @lazy
    def simple_capacity(self) -> bool:
        """Whether who names no capacity takes just all there is, and may."""
        return all(
            entry.request_policy is None and self.capacity[name].nanos >= 0
            for name, entry in (self.device.capacity or {}).items()
        )

    def is_for(self, node: Node) -> bool:
        """Whether the device, in a slice that lets each device choose, is there for the node."""
        device = self.device
        return node_matches(
            node, device.node_name, all_nodes=device.all_nodes, selector=device.node_selector
        )

    def attribute(self, name: str) -> DeviceAttribute | None:
        """The attribute with the full name; one without a domain has the driver's."""
        attributes = self.device.attributes or {}
        if name in attributes:
            return attributes[name]
        domain, slash, identifier = name.partition("/")
        return attributes.get(identifier) if slash and domain == self.id.driver else None


class PoolSlice:
    """One slice."""

    def __init__(self, published: ResourceSlice) -> None:
        spec = published.spec
        self.name = published.metadata.name
        self.spec = spec
        self.pool_id = PoolID(spec.driver, spec.pool.name)

    @lazy
    def devices(self) -> list[SliceDevice]:
        """Its devices in the order in which they were published."""
        return [SliceDevice(self, device) for device in self.spec.devices or ()]

    @lazy
    def uses_compatibility_groups(self) -> bool:
        """Whether any device names such groups."""
        return any(
            part.compatibility_groups
            for device in self.spec.devices or ()
            for part in device.consumes_counters or ()
        )

    @property
    def chooses_nodes(self) -> bool:
        """Whether the slice as a whole says for which nodes it is."""
        spec = self.spec
        return bool(spec.node_name or spec.all_nodes or spec.node_selector is not None)

    def is_for(self, node: Node) -> bool:
        """Whether the slice as a whole is there for the node."""
        spec = self.spec
        return node_matches(
            node, spec.node_name, all_nodes=spec.all_nodes, selector=spec.node_selector
        )
