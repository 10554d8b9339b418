# SPDX-License-Identifier: Apache-2.0
"""How do objects of resource.k8s.io/v1beta1 (Kubernetes 1.32 to 1.37) differ from those of v1?

In v1beta1 a device has its content one level deeper, under `basic`. A request has its fields beside its name; v1 has them one
level deeper, under `exactly`. The status of a claim is the same.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.model.api.meta import ApiValue
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimTemplate
from dra_driver.model.api.resource_slice import ResourceSlice

Object = Mapping[str, Any]


def to_v1(kind: type[ApiValue], item: Object) -> Object:
    """Convert an object of v1beta1 to v1."""
    place = _PLACES.get(kind)
    if place is None:
        return item
    path, key, change = place
    return changed(item, path, lambda part: changed_each(part, key, change))


def from_v1(item: Object) -> Object:
    """Convert a ResourceSlice of v1 to v1beta1."""
    return changed(item, ("spec",), lambda spec: changed_each(spec, "devices", _with_basic))


def _with_basic(device: Object) -> Object:
    content = {key: value for key, value in device.items() if key != "name"}
    return {"name": device.get("name", ""), "basic": content}


def _without_basic(device: Object) -> Object:
    basic = device.get("basic")
    return {**(basic if isinstance(basic, Mapping) else {}), "name": device.get("name", "")}


def _with_exactly(request: Object) -> Object:
    if request.get("firstAvailable"):
        return request
    exactly = {key: value for key, value in request.items() if key != "name"}
    return {"name": request.get("name", ""), "exactly": exactly}


def changed(item: Object, path: tuple[str, ...], change: Callable[[Object], Object]) -> Object:
    """A copy in which `change` was applied to the mapping at `path`; the item itself if there is no mapping."""
    if not path:
        return change(item)
    inner = item.get(path[0])
    if not isinstance(inner, Mapping):
        return item
    return {**item, path[0]: changed(inner, path[1:], change)}


def changed_each(item: Object, key: str, change: Callable[[Object], Object]) -> Object:
    """A copy in which `change` was applied to each mapping in the list `key`; the item itself if there is no list."""
    entries = item.get(key)
    if not isinstance(entries, list):
        return item
    return {
        **item,
        key: [change(entry) if isinstance(entry, Mapping) else entry for entry in entries],
    }


_PLACES: Mapping[type[ApiValue], tuple[tuple[str, ...], str, Callable[[Object], Object]]] = {
    ResourceSlice: (("spec",), "devices", _without_basic),
    ResourceClaim: (("spec", "devices"), "requests", _with_exactly),
    ResourceClaimTemplate: (("spec", "spec", "devices"), "requests", _with_exactly),
}
"""By kind: the path of an object in it, a list in that object, and how each entry of the list is converted to v1."""
