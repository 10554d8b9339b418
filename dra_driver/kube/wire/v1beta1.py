# SPDX-License-Identifier: Apache-2.0
"""resource.k8s.io/v1beta1 (Kubernetes 1.32 to 1.37): how do its objects differ from those of v1?

A device's content stands one level deeper, under `basic`, and what a request asks for one level higher, beside its name. What
stands in a claim's status is the same.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.model.api.meta import ApiValue
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimTemplate
from dra_driver.model.api.resource_slice import ResourceSlice

Object = Mapping[str, Any]


def to_v1(kind: type[ApiValue], item: Object) -> Object:
    """An object of v1beta1 as v1 has it."""
    place = _PLACES.get(kind)
    if place is None:
        return item
    path, key, change = place
    return changed(item, path, lambda part: changed_each(part, key, change))


def from_v1(item: Object) -> Object:
    """A ResourceSlice of v1 as v1beta1 has it."""
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
    """A copy with the mapping at `path` changed; the item itself where there is none."""
    if not path:
        return change(item)
    inner = item.get(path[0])
    if not isinstance(inner, Mapping):
        return item
    return {**item, path[0]: changed(inner, path[1:], change)}


def changed_each(item: Object, key: str, change: Callable[[Object], Object]) -> Object:
    """A copy with each mapping in the list under `key` changed; the item itself where there is no list."""
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
"""Where the two versions differ: the path of an object, a list in it, and how each entry of the list changes."""
