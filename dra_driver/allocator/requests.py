# SPDX-License-Identifier: Apache-2.0
"""What exactly is asked for? The requests of the claims, checked as far as that needs no device.

A request is exact, or offers alternatives of which the first that fits is taken; every alternative is a `Request`.
What the features that are on do not cover is refused here rather than passed over.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (Allocate, validateDeviceRequest).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.allocator.amounts import Amount, amount
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.lazy import lazy
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
)

_NOTHING: Mapping[str, Any] = {}


def object_name(meta: ObjectMeta) -> str:
    """The name of an object with its namespace, if it has one."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Request:
    """One exact request, or one alternative."""

    def __init__(  # noqa: PLR0913 - the parts of one value
        self,
        spec: ExactDeviceRequest | DeviceSubRequest,
        device_class: DeviceClass,
        *,
        claim: str,
        claim_index: int,
        index: int,
        name: str,
        parent: str,
    ) -> None:
        self.spec = spec
        self.device_class = device_class
        self.claim = claim
        self.claim_index = claim_index
        self.index = index
        self.name = name
        self.parent = parent
        self.full_name = f"{parent}/{name}" if parent else name
        self.admin_access = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
        self.wants_all = spec.allocation_mode == "All"
        self.count = spec.count
        self.all_devices: list[int] = []
        """With All: the positions of the devices that it must get."""
        self.selectors: Sequence[DeviceSelector] = spec.selectors or ()
        self.class_selectors: Sequence[DeviceSelector] = device_class.spec.selectors or ()
        self.tolerations: Sequence[DeviceToleration] = spec.tolerations or ()
        self.capacity: Mapping[str, Amount] = _NOTHING
        if spec.capacity is not None:
            requested = spec.capacity.requests or {}
            self.capacity = {name: amount(text) for name, text in requested.items()}
        self.capacity_key = tuple(self.capacity.items())
        self.derived: Mapping[str, str] = _NOTHING
        if spec.derived_attributes:
            self.derived = {one.name: one.expression for one in spec.derived_attributes}

    @lazy
    def names(self) -> frozenset[str]:
        """By which names constraints mean it."""
        return frozenset({self.parent, self.full_name} if self.parent else {self.name})

    def __str__(self) -> str:
        return f"claim {self.claim}, request {self.name}"


class Choice:
    """A request of a claim: its alternatives in order, and which one was taken."""

    def __init__(self, name: str, alternatives: list[Request], *, prioritized: bool) -> None:
        self.name = name
        self.alternatives = alternatives
        self.prioritized = prioritized
        self.taken = 0

    @property
    def request(self) -> Request:
        """The alternative that was taken."""
        return self.alternatives[self.taken]


class Requests:
    """Makes requests of claims, in the order and with the errors of the scheduler."""

    def __init__(self, rules: Rules, classes: Mapping[str, DeviceClass]) -> None:
        self._rules = rules
        self._classes = classes

    def specs(
        self, claim: str, request: DeviceRequest
    ) -> list[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
        """The alternatives with their names, of which `request` checks each."""
        alternatives = request.first_available or ()
        if alternatives and not self._rules.prioritized_list:
            raise AllocationError(
                f"claim {claim}, request {request.name}: has subrequests,"
                " but the DRAPrioritizedList feature is disabled"
            )
        if self._rules.newer_than_stable and not self._rules.consumable_capacity:
            _refuse_capacity(claim, request)
        if alternatives:
            return [(one.name, one) for one in alternatives]
        if request.exactly is None:
            raise AllocationError(
                f"claim {claim}, request {request.name}: neither exactly nor firstAvailable is set"
                " (unsupported request type?)"
            )
        return [(request.name, request.exactly)]

    def request(
        self,
        spec: ExactDeviceRequest | DeviceSubRequest,
        *,
        claim: str,
        place: tuple[int, int],
        name: str,
        parent: str,
    ) -> Request:
        """One alternative, checked."""
        where = f"claim {claim}, request {name}"
        if spec.derived_attributes and not self._rules.derived_attributes:
            raise AllocationError(
                f"{where}: cannot handle request with derived attributes, the feature is disabled"
            )
        for index, selector in enumerate(spec.selectors or ()):
            if selector.cel is None:
                raise AllocationError(
                    f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
                )
        if (
            not self._rules.admin_access
            and isinstance(spec, ExactDeviceRequest)
            and spec.admin_access is not None
        ):
            raise AllocationError(
                f"{where}: admin access is requested, but the feature is disabled"
            )
        if not spec.device_class_name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._class(where, spec.device_class_name)
        if spec.allocation_mode not in ("ExactCount", "All"):
            raise AllocationError(f"{where}: unsupported count mode {spec.allocation_mode}")
        return Request(
            spec,
            device_class,
            claim=claim,
            claim_index=place[0],
            index=place[1],
            name=name,
            parent=parent,
        )

    def _class(self, where: str, name: str) -> DeviceClass:
        if name not in self._classes:
            raise AllocationError(
                f"{where}: could not retrieve device class {name}:"
                f' deviceclass.resource.k8s.io "{name}" not found'
            )
        return self._classes[name]


def _refuse_capacity(claim: str, request: DeviceRequest) -> None:
    why = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
    if request.exactly is not None and request.exactly.capacity is not None:
        raise AllocationError(f"claim {claim}, request {request.name}: {why}")
    for one in request.first_available or ():
        if one.capacity is not None:
            raise AllocationError(f"claim {claim}, subrequest {one.name}: {why}")
