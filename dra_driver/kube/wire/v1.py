# SPDX-License-Identifier: Apache-2.0
"""resource.k8s.io/v1: the newest form, and the truth that older ones are converted to.

Reading is tolerant: unknown fields are passed over and missing ones have a meaning; an attribute of a kind that the
model lacks (a list, say), or a capacity that is no quantity, is left out. Writing is exact.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dra_driver.model.claim import AllocationResult, Claim, ClaimRef, OpaqueConfig
from dra_driver.model.device import AttributeValue, Version
from dra_driver.model.ids import (
    ClaimUid,
    DeviceName,
    DriverName,
    NodeName,
    PodUid,
    PoolName,
    ShareId,
)
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import PublishedDevice, SliceSpec, StoredSlice, Taint

VERSION = "v1"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"

Object = Mapping[str, Any]


def load_claim(obj: Object) -> Claim:
    """A ResourceClaim; `results` is None where it has no allocation."""
    metadata, status = _mapping(obj.get("metadata")), _mapping(obj.get("status"))
    ref = ClaimRef(
        _text(metadata, "namespace"), _text(metadata, "name"), ClaimUid(_text(metadata, "uid"))
    )
    users = list(_entries(status, "reservedFor"))
    pods = tuple(_pod(user) for user in users)
    unallocated = Claim(
        ref,
        reserved_for=tuple(pod for pod in pods if pod),
        sole_pod=_sole_pod(metadata),
        unnamed_users=not all(pods),
    )
    allocation = status.get("allocation")
    if not isinstance(allocation, Mapping):
        return unallocated
    devices = _mapping(allocation.get("devices"))
    return replace(
        unallocated,
        results=tuple(_result(entry) for entry in _entries(devices, "results")),
        configs=tuple(_configs(devices)),
        allocation_timestamp=_text(allocation, "allocationTimestamp"),
    )


def load_slice(obj: Object) -> StoredSlice:
    """A ResourceSlice."""
    metadata, spec = _mapping(obj.get("metadata")), _mapping(obj.get("spec"))
    pool = _mapping(spec.get("pool"))
    content = SliceSpec(
        pool=PoolName(_text(pool, "name")),
        generation=int(pool.get("generation") or 0),
        slice_count=int(pool.get("resourceSliceCount") or 0),
        devices=tuple(_device(entry) for entry in _entries(spec, "devices")),
    )
    return StoredSlice(
        _text(metadata, "name"),
        _text(metadata, "uid"),
        _text(metadata, "resourceVersion"),
        content,
        labels=_texts(metadata, "labels"),
        annotations=_texts(metadata, "annotations"),
    )


def dump_slice_spec(spec: SliceSpec, driver: DriverName, node: NodeName) -> dict[str, Any]:
    """A ResourceSlice's `spec`."""
    return {
        "driver": driver,
        "nodeName": node,
        "pool": {
            "name": spec.pool,
            "generation": spec.generation,
            "resourceSliceCount": spec.slice_count,
        },
        "devices": [_dump_device(device) for device in spec.devices],
    }


def _pod(user: Object) -> PodUid:
    """A pod that may use the claim; empty for another consumer, whose pods nobody names here."""
    is_pod = user.get("resource") == "pods" and not user.get("apiGroup")
    return PodUid(_text(user, "uid") if is_pod else "")


def _sole_pod(metadata: Object) -> PodUid | None:
    """The pod for which the claim was made of a template."""
    if POD_CLAIM_NAME not in _mapping(metadata.get("annotations")):
        return None
    for owner in _entries(metadata, "ownerReferences"):
        if owner.get("controller") is True and owner.get("kind") == "Pod":
            return PodUid(_text(owner, "uid")) or None
    return None


def _result(entry: Object) -> AllocationResult:
    return AllocationResult(
        request=_text(entry, "request"),
        driver=DriverName(_text(entry, "driver")),
        pool=PoolName(_text(entry, "pool")),
        device=DeviceName(_text(entry, "device")),
        share_id=ShareId(_text(entry, "shareID")),
        admin_access=entry.get("adminAccess") is True,
    )


def _configs(devices: Object) -> Iterator[OpaqueConfig]:
    for index, entry in enumerate(_entries(devices, "config")):
        opaque = entry.get("opaque")
        if not isinstance(opaque, Mapping):
            continue  # a kind of configuration that is not ours to read
        yield OpaqueConfig(
            index=index,
            source="FromClass" if entry.get("source") == "FromClass" else "FromClaim",
            requests=tuple(str(request) for request in entry.get("requests") or ()),
            driver=DriverName(_text(opaque, "driver")),
            parameters=_mapping(opaque.get("parameters")),
        )


def _device(entry: Object) -> PublishedDevice:
    attributes = {
        name: _attribute(value) for name, value in _mapping(entry.get("attributes")).items()
    }
    capacity = {name: _quantity(value) for name, value in _mapping(entry.get("capacity")).items()}
    return PublishedDevice(
        DeviceName(_text(entry, "name")),
        {name: value for name, value in attributes.items() if value is not None},
        {name: value for name, value in capacity.items() if value is not None},
        tuple(_taints(entry)),
    )


def _taints(device: Object) -> Iterator[Taint]:
    for entry in _entries(device, "taints"):
        match entry:
            case {"key": str(key), "effect": "NoSchedule" | "NoExecute" as effect}:
                yield Taint(key, _text(entry, "value"), effect, _text(entry, "timeAdded"))
            case _:
                pass  # an effect that the model lacks; the slice is found to be unlike ours


def _attribute(value: object) -> AttributeValue | None:
    match value:
        case {"bool": bool(found)} | {"int": int(found)} | {"string": str(found)}:
            return found
        case {"version": str(text)}:
            return Version(text)
        case _:
            return None


def _quantity(entry: object) -> Quantity | None:
    try:
        return Quantity.parse(str(_mapping(entry).get("value")))
    except ValueError:
        return None


def _dump_device(device: PublishedDevice) -> dict[str, Any]:
    dumped: dict[str, Any] = {"name": device.name}
    if device.attributes:
        dumped["attributes"] = {
            name: _dump_attribute(value) for name, value in device.attributes.items()
        }
    if device.capacity:
        dumped["capacity"] = {
            name: {"value": str(value)} for name, value in device.capacity.items()
        }
    if device.taints:
        dumped["taints"] = [_dump_taint(taint) for taint in device.taints]
    return dumped


def _dump_taint(taint: Taint) -> dict[str, str]:
    return {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }


def _dump_attribute(value: AttributeValue) -> dict[str, Any]:
    match value:
        case bool():  # before int: a bool is one
            return {"bool": value}
        case int():
            return {"int": value}
        case str():
            return {"string": value}
        case Version(text):
            return {"version": text}


def _text(obj: Object, key: str) -> str:
    value = obj.get(key)
    return value if isinstance(value, str) else ""


def _texts(obj: Object, key: str) -> dict[str, str]:
    return {name: value for name, value in _mapping(obj.get(key)).items() if isinstance(value, str)}


def _mapping(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _entries(obj: Object, key: str) -> Iterator[Object]:
    value = obj.get(key)
    return (
        (entry for entry in value if isinstance(entry, Mapping))
        if isinstance(value, list)
        else iter(())
    )
