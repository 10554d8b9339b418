# SPDX-License-Identifier: Apache-2.0
"""Can a request have this device, regardless of the other devices that the search selects?

Each method returns None if the request can have the device, else the first `Reason` that the scheduler would find. The order of
the checks is the scheduler's: selectors, capacity, taints. The order matters because a selector or a capacity
calculation can end with an error, and an error stops the whole pod. An earlier check can prevent this error.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (isSelectable, allocateDevice).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.capacity import (
    Consumed,
    consumed_capacity,
    exhausted_capacity,
    forbidden_capacity,
    missing_capacity,
)
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import OPTIONAL_NODE_OPERATIONS, Rules
from dra_driver.allocator.requests import Request
from dra_driver.allocator.selectors import Selectors
from dra_driver.allocator.state import AllocatedState, DeviceID
from dra_driver.allocator.taints import untolerated_taint
from dra_driver.cel.cancellation import Check, never
from dra_driver.model.api.core import Node


class Reason(NamedTuple):
    """Why a request cannot have a device. `detail` is a selector's index, a capacity's name, or the DeviceTaint."""

    kind: Literal[
        "allocated",
        "binding conditions off",
        "class selector",
        "request selector",
        "node",
        "capacity missing",
        "capacity policy",
        "capacity exhausted",
        "node operations",
        "partitionable off",
        "taint",
    ]
    detail: object = None


_ALLOCATED = Reason("allocated")
_BINDING = Reason("binding conditions off")
_NODE = Reason("node")
_OPERATIONS = Reason("node operations")
_PARTITIONABLE = Reason("partitionable off")


class DevicesInUse:
    """AllocatedState, prepared for questions about one device."""

    def __init__(self, state: AllocatedState, rules: Rules) -> None:
        self._allocated = state.allocated_devices
        self.shares_are_known = rules.newer_than_stable
        self._shared = {share.device_id for share in state.allocated_shared_device_ids}
        self._capacity = {
            device: {name: amount(text).nanos for name, text in capacity.items()}
            for device, capacity in state.aggregated_capacity.items()
        }

    def allocated(self, device: DeviceID) -> bool:
        """Return whether a claim has the whole device (deviceInUse)."""
        return device in self._allocated

    def shared(self, device: DeviceID) -> bool:
        """Return whether claims have shares of the device (deviceCapacityInUse)."""
        return device in self._shared or device in self._capacity

    def is_allocated(self, device: SliceDevice) -> bool:
        """Return whether the device, or a share of it, is allocated, so that it consumes the counters of its pool.

        The stable allocator ignores shares (IsDeviceAllocated).
        """
        return self.allocated(device.id) or (self.shares_are_known and self.shared(device.id))

    def capacity(self, device: DeviceID) -> dict[str, int]:
        """Return the amount of each capacity that shares of the device consume, in billionths."""
        return self._capacity.get(device, {})


class Eligibility:
    """The checks of one device for one request, on one node."""

    def __init__(
        self,
        rules: Rules,
        selectors: Selectors,
        devices_in_use: DevicesInUse,
        node: Node,
        cancelled: Check = never,
    ) -> None:
        self._rules = rules
        self._selectors = selectors
        self._devices_in_use = devices_in_use
        self._node = node
        self._cancelled = cancelled
        # Only the experimental allocator reads skipNodeOperations. The other two allocate such a device on every node.
        declared = node.status.declared_features or ()
        self._may_skip_operations = not rules.experimental or (
            rules.optional_node_operations and OPTIONAL_NODE_OPERATIONS in declared
        )

    def in_use(self, request: Request, device: SliceDevice) -> Reason | None:
        """Return a Reason if another claim has the whole device. A request with admin access can use the device at the same time."""
        if not request.admin_access and self._devices_in_use.allocated(device.id):
            return _ALLOCATED
        return None

    def unselectable(self, request: Request, device: SliceDevice) -> Reason | None:
        """Return a Reason if a selector of the class or the request, or the device's node selection, excludes the device."""
        # isSelectable checks in this order: class selectors, request selectors, node. The first check with an error raises it.
        if device.device.binding_conditions and not self._rules.binding_conditions:
            return _BINDING
        refusing = self._selectors.first_refusing(
            request, request.class_selectors, device, self._cancelled
        )
        if refusing is not None:
            return Reason("class selector", refusing)
        refusing = self._selectors.first_refusing(
            request, request.selectors, device, self._cancelled
        )
        if refusing is not None:
            return Reason("request selector", refusing)
        if device.slice.spec.per_device_node_selection and not device.is_for(self._node):
            return _NODE
        return None

    def consumed(self, request: Request, device: SliceDevice, called: object) -> Consumed:
        """Return the amount of each capacity that the request would consume. `called` names the device in the error."""
        consumed = device.consumed.get(request.capacity_key)
        if consumed is not None:
            return consumed
        try:
            consumed = consumed_capacity(
                request.capacity,
                device.device.capacity or {},
                fractional=self._rules.fractional_capacity,
            )
        except AllocationError as error:
            raise AllocationError(
                f"{request}: checking capacity for device {called}: {error}"
            ) from error
        device.consumed[request.capacity_key] = consumed
        return consumed

    def short_of_capacity(
        self, request: Request, device: SliceDevice, *, fresh: bool = False
    ) -> Reason | None:
        """Return a Reason if the device has too little capacity for the request, or if its policy forbids the request.

        `fresh=True` ignores the capacity that shares of other claims consume.
        """
        if not self._rules.consumable_capacity:
            return None
        taken = {} if fresh else self._devices_in_use.capacity(device.id)
        # The common case: the request gets the full capacity, and no other claim consumes any of it.
        if not request.capacity and not taken and device.simple_capacity:
            return None
        offered = device.device.capacity or {}
        missing = missing_capacity(request.capacity, offered)
        if missing is not None:
            return Reason("capacity missing", missing)
        # From here on a wrong request policy of the driver is an error, which stops the pod.
        consumed = self.consumed(request, device, device.id.device if fresh else device.id)
        forbidden = self._forbidden(request, device, consumed)
        if forbidden is not None:
            return Reason("capacity policy", forbidden)
        exhausted = exhausted_capacity(consumed, device.capacity, taken)
        return None if exhausted is None else Reason("capacity exhausted", exhausted)

    def _forbidden(self, request: Request, device: SliceDevice, consumed: Consumed) -> str | None:
        known, key = device.forbidden, request.capacity_key
        if key not in known:
            offered, fractional = device.device.capacity or {}, self._rules.fractional_capacity
            try:
                known[key] = forbidden_capacity(consumed, offered, fractional=fractional)
            except AllocationError as error:
                raise AllocationError(
                    f"{request}: checking capacity for device {device.id}: {error}"
                ) from error
        return known[key]

    def blocked(self, request: Request, device: SliceDevice) -> Reason | None:
        """Return a Reason if the node, a disabled feature, or a taint excludes the device."""
        if device.slice.spec.skip_node_operations and not self._may_skip_operations:
            return _OPERATIONS
        if device.device.consumes_counters and not self._rules.partitionable:
            return _PARTITIONABLE
        if self._rules.taints and device.device.taints:
            taint = untolerated_taint(device.device, request.tolerations)
            if taint is not None:
                return Reason("taint", taint)
        return None

    def ineligible(self, request: Request, device: SliceDevice) -> Reason | None:
        """Make all checks above, in the order for allocationMode ExactCount. Return the first Reason."""
        return (
            self.in_use(request, device)
            or self.unselectable(request, device)
            or self.short_of_capacity(request, device)
            or self.blocked(request, device)
        )


class EligibilityCache:
    """Stores during one search which devices are eligible for which request. A device is named by its position."""

    def __init__(self, eligibility: Eligibility, devices: Sequence[SliceDevice]) -> None:
        self._eligibility = eligibility
        self._devices = devices
        self._found: dict[Request, dict[int, bool]] = {}

    def of(self, request: Request) -> dict[int, bool]:
        """Return the results for the request so far, by position. The search reads the dict itself, to save a call per device."""
        return self._found.setdefault(request, {})

    def eligible(self, request: Request, position: int) -> bool:
        """Return whether the request can have the device, regardless of the devices that the search selected."""
        known = self.of(request)
        verdict = known.get(position)
        if verdict is None:
            device = self._devices[position]
            verdict = known[position] = self._eligibility.ineligible(request, device) is None
        return verdict
