# SPDX-License-Identifier: Apache-2.0
"""resource.k8s.io/v1: ResourceSlice."""

import msgspec

from dra_driver.model.api.core import NodeSelector
from dra_driver.model.api.meta import ApiValue, ObjectMeta, QuantityText, learn


class DeviceAttribute(ApiValue, frozen=True):
    """One attribute; exactly one field is set. `version` is a semantic version 2.0.0."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: list[int] | None = msgspec.field(default=None, name="ints")
    bool_values: list[bool] | None = msgspec.field(default=None, name="bools")
    string_values: list[str] | None = msgspec.field(default=None, name="strings")
    version_values: list[str] | None = msgspec.field(default=None, name="versions")


class CapacityRequestPolicyRange(ApiValue, frozen=True):
    """The amounts that a request may consume: from `min` to `max`, in steps of `step` above `min`."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(ApiValue, frozen=True):
    """How the requested part of a capacity is rounded up. A request that does not name the capacity consumes `default`."""

    default: QuantityText | None = None
    valid_values: list[QuantityText] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


def _nothing() -> QuantityText:
    """The default of a required `value`. msgspec leaves out default values, but not those of a factory: zero is written too."""
    return "0"


class DeviceCapacity(ApiValue, frozen=True):
    """One capacity of a device."""

    value: QuantityText = msgspec.field(default_factory=_nothing)
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiValue, frozen=True):
    """One counter of a set, or how much of it a device consumes."""

    value: QuantityText = msgspec.field(default_factory=_nothing)


class CounterSet(ApiValue, frozen=True):
    """A set of counters that devices of the pool share, for example the memory slices of one GPU."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(ApiValue, frozen=True):
    """What a device consumes from one counter set. Two devices of one set without a common group exclude each other."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: list[str] | None = None


class DeviceTaint(ApiValue, frozen=True):
    """A taint of a device. `effect` is NoSchedule, NoExecute or None; any other one is ignored."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeAllocatableMapping(ApiValue, frozen=True):
    """How much of a resource of the node an allocation of the device uses."""

    capacity_key: str | None = None
    capacity_multiplier: QuantityText | None = None
    device_multiplier: QuantityText | None = None


class NodeAllocatableOverhead(ApiValue, frozen=True):
    """What an allocation uses in addition."""

    per_pod: QuantityText | None = None
    per_container: QuantityText | None = None


class NodeAllocatableResource(ApiValue, frozen=True):
    """One entry of a device's nodeAllocatableResources."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(ApiValue, frozen=True):
    """One device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] | None = None


def _zero() -> int:
    """A default that is written all the same: the API requires both numbers, also where they are zero."""
    return 0


class ResourcePool(ApiValue, frozen=True):
    """Which pool the slice belongs to, and how many slices its newest generation has."""

    name: str = ""
    generation: int = msgspec.field(default_factory=_zero)
    resource_slice_count: int = msgspec.field(default_factory=_zero)


class ResourceSliceSpec(ApiValue, frozen=True):
    """spec of a ResourceSlice. One of node_name, node_selector, all_nodes, per_device_node_selection is set."""

    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: list[str] | None = None


class ResourceSlice(ApiValue, frozen=True):
    """A slice of a pool of devices."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


learn(ResourceSlice)
