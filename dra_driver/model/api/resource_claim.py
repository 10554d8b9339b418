# SPDX-License-Identifier: Apache-2.0
"""resource.k8s.io/v1: ResourceClaim, ResourceClaimTemplate, DeviceClass and DeviceTaintRule."""

from typing import Any

import msgspec

from dra_driver.model.api.core import NodeSelector
from dra_driver.model.api.meta import ApiValue, Condition, ObjectMeta, QuantityText, learn
from dra_driver.model.api.resource_slice import DeviceTaint

GROUP = "resource.k8s.io"
TAINT_RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
"""The versions of the group that may have DeviceTaintRules, newest first. A cluster may serve a version without them."""
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was created from a template: the entry's name in the pod's spec.resourceClaims."""


class CELDeviceSelector(ApiValue, frozen=True):
    """A CEL expression about the variable `device`, of type bool."""

    expression: str = ""


class DeviceSelector(ApiValue, frozen=True):
    """One condition; `cel` is the only kind so far."""

    cel: CELDeviceSelector | None = None


class DeviceToleration(ApiValue, frozen=True):
    """`operator` is Exists or Equal (the default)."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(ApiValue, frozen=True):
    """The requested amount of each capacity, by its name."""

    requests: dict[str, QuantityText] | None = None


class DeviceDerivedAttribute(ApiValue, frozen=True):
    """An attribute that a request computes from the device by a CEL expression."""

    name: str = ""
    expression: str = ""


class DeviceSubRequest(ApiValue, frozen=True):
    """One alternative of a request with `first_available`."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] | None = None


class ExactDeviceRequest(ApiValue, frozen=True):
    """What a request asks for. `allocation_mode` is ExactCount (`count` devices) or All; an API server never stores it empty."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] | None = None


class DeviceRequest(ApiValue, frozen=True):
    """One request: either `exactly`, or `first_available` with subrequests, of which the first one that fits is allocated."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceConstraint(ApiValue, frozen=True):
    """A condition about several devices of a claim. If `requests` is empty, it applies to all requests."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(ApiValue, frozen=True):
    """Parameters that only the named driver reads."""

    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(ApiValue, frozen=True):
    """spec.devices.config[]."""

    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiValue, frozen=True):
    """spec.devices."""

    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceClaimConfiguration] | None = None


class ResourceClaimSpec(ApiValue, frozen=True):
    """spec of a ResourceClaim."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(ApiValue, frozen=True):
    """status.allocation.devices.results[]: one allocated device. `request` is "main" or "main/sub"."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, QuantityText] | None = None
    skip_node_operations: list[str] | None = None


class DeviceAllocationConfiguration(ApiValue, frozen=True):
    """status.allocation.devices.config[]; `source` is FromClass or FromClaim."""

    source: str = ""
    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiValue, frozen=True):
    """status.allocation.devices."""

    results: list[DeviceRequestAllocationResult] | None = None
    config: list[DeviceAllocationConfiguration] | None = None


class AllocationResult(ApiValue, frozen=True):
    """status.allocation. Without `node_selector` every node can use the devices."""

    devices: DeviceAllocationResult = msgspec.field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiValue, frozen=True):
    """status.reservedFor[]; `resource` is usually "pods"."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(ApiValue, frozen=True):
    """The status of a device that is a network interface; `ips` are in CIDR notation."""

    interface_name: str = ""
    ips: list[str] | None = None
    hardware_address: str = ""


class AllocatedDeviceStatus(ApiValue, frozen=True):
    """status.devices[]: what a driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[Condition] | None = None
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(ApiValue, frozen=True):
    """status of a ResourceClaim."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ResourceClaim(ApiValue, frozen=True):
    """A claim."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(ApiValue, frozen=True):
    """spec of a ResourceClaimTemplate."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(ApiValue, frozen=True):
    """A template from which a claim is created for each pod."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


class DeviceClassConfiguration(ApiValue, frozen=True):
    """spec.config[] of a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiValue, frozen=True):
    """spec of a DeviceClass."""

    selectors: list[DeviceSelector] | None = None
    config: list[DeviceClassConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(ApiValue, frozen=True):
    """A class of devices, defined by an admin."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


class DeviceTaintSelector(ApiValue, frozen=True):
    """The devices that a DeviceTaintRule is for. A field that is not set matches all devices."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiValue, frozen=True):
    """spec of a DeviceTaintRule."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = msgspec.field(default_factory=DeviceTaint)


class DeviceTaintRuleStatus(ApiValue, frozen=True):
    """status of a DeviceTaintRule: the progress of the eviction."""

    conditions: list[Condition] | None = None


class DeviceTaintRule(ApiValue, frozen=True):
    """A taint that an admin puts on devices (resource.k8s.io/v1 since Kubernetes 1.37)."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceTaintRuleSpec = msgspec.field(default_factory=DeviceTaintRuleSpec)
    status: DeviceTaintRuleStatus = msgspec.field(default_factory=DeviceTaintRuleStatus)


learn(ResourceClaim, ResourceClaimTemplate, DeviceClass, DeviceTaintRule)
