# SPDX-License-Identifier: Apache-2.0
"""What does a claim request, and is each request valid?

A request has either `exactly`, or `firstAvailable` with a list of subrequests. The scheduler allocates the first
subrequest that fits. Here a `Request` is one `exactly` or one subrequest. The checks of this module need no device. A
request that uses a disabled feature is an error: to ignore the feature would allocate the wrong devices.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (Allocate, validateDeviceRequest).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.allocator.amounts import Amount, amount
from dra_driver.allocator.cached_attribute import cached_attribute
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
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
    """Return the object's name as "namespace/name", or "name" if it has no namespace (klog.KObj)."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Request:
    """One `exactly` of a request, or one of its subrequests (upstream: requestData)."""

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
        """For allocationMode All: the positions of the devices that the request must get."""
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

    @cached_attribute
    def names(self) -> frozenset[str]:
        """The names by which constraints refer to this request. A subrequest also has the name of its parent."""
        return frozenset({self.parent, self.full_name} if self.parent else {self.name})

    def __str__(self) -> str:
        return f"claim {self.claim}, request {self.name}"


class Choice:
    """One entry of spec.devices.requests. `taken` is the index of the alternative that the search selected."""

    def __init__(self, name: str, alternatives: list[Request], *, prioritized: bool) -> None:
        self.name = name
        self.alternatives = alternatives
        self.prioritized = prioritized
        self.taken = 0

    @property
    def request(self) -> Request:
        """The selected alternative."""
        return self.alternatives[self.taken]


class RequestValidator:
    """Validates requests, with the same errors in the same order as the scheduler (validateDeviceRequest)."""

    def __init__(self, rules: Rules, classes: Mapping[str, DeviceClass]) -> None:
        self._rules = rules
        self._classes = classes

    def specs(
        self, claim: str, request: DeviceRequest
    ) -> list[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
        """Return the name and spec of each alternative. The caller passes each one to `request`."""
        alternatives = request.first_available or ()
        if alternatives and not self._rules.prioritized_list:
            raise AllocationError(
                f"claim {claim}, request {request.name}: has subrequests,"
                " but the DRAPrioritizedList feature is disabled"
            )
        # The stable allocator ignores capacity requests. The newer ones refuse them if the feature is disabled.
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
        """Validate one alternative. `place` is the index of the claim and of the request in the claim."""
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
