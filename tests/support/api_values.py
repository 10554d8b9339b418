# SPDX-License-Identifier: Apache-2.0
"""Values of the API in few words: plain attributes and sizes, and a slice by what tests are about."""

from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.api.resource_slice import (
    Device,
    DeviceCapacity,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.device import attributes as of_plain
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import Problem, SliceContent
from dra_driver.planning.slices import PoolPlan


def published(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    taints: Iterable[DeviceTaint] = (),
    **fields: Any,
) -> Device:
    """A device as a slice holds it; attributes are plain values, capacities quantities or what is given in their place."""
    return Device(
        name=name,
        attributes=of_plain(attributes or {}) or None,
        capacity={key: _capacity(size) for key, size in (capacity or {}).items()} or None,
        taints=list(taints) or None,
        **fields,
    )


def _capacity(size: Any) -> Any:
    return DeviceCapacity(value=str(size)) if isinstance(size, Quantity) else size


def found_device(
    name: str,
    uuid: str,
    attributes: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    **fields: Any,
) -> AllocatableDevice:
    """A device as a backend finds it."""
    return AllocatableDevice(published(name, attributes, capacity), uuid, **fields)


def device_taint(key: str, value: str, effect: str, time_added: str) -> DeviceTaint:
    """A taint of a device."""
    return DeviceTaint(key=key, value=value, effect=effect, time_added=time_added)


def slice_spec(
    pool: str,
    generation: int,
    count: int,
    devices: Iterable[Device],
    *,
    driver: str = "gpu.example.com",
    node: str = "node-1",
) -> ResourceSliceSpec:
    """What one slice of a node's pool holds."""
    return ResourceSliceSpec(
        driver=driver,
        node_name=node,
        pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
        devices=list(devices),
    )


def content(*devices: Device, **fields: Any) -> SliceContent:
    """What one slice of devices says."""
    return SliceContent(devices=list(devices), **fields)


def pool_plan(
    slices: Iterable[Iterable[Device]] = (), problems: Iterable[Problem] = ()
) -> PoolPlan:
    """A plan whose slices have devices only."""
    return PoolPlan(tuple(content(*devices) for devices in slices), tuple(problems))


def allocated(
    request: str, driver: str, pool: str, device: str, share_id: str = "", **fields: Any
) -> DeviceRequestAllocationResult:
    """One device that a claim was given."""
    return DeviceRequestAllocationResult(
        request=request,
        driver=driver,
        pool=pool,
        device=device,
        share_id=share_id or None,
        **fields,
    )
