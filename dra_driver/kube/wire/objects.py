# SPDX-License-Identifier: Apache-2.0
"""API objects of any served version of resource.k8s.io as objects of v1.

Only v1beta1 differs in form: a device's content stands one level deeper, under `basic`, and what a request asks for one
level higher, beside its name. Fields that this program does not know are passed over; one whose value has the wrong
kind makes the whole object unreadable, which costs this object only.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.meta import ApiValue
from dra_driver.model.api.resource_claim import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.model.api.resource_slice import ResourceSlice

Object = Mapping[str, Any]
Loaded = TypeVar("Loaded", bound=ApiValue)

KINDS: Mapping[str, type[ApiValue]] = {
    "Pod": Pod,
    "Node": Node,
    "Namespace": Namespace,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "ResourceSlice": ResourceSlice,
}
"""What can be read, by the `kind` that manifests write."""


class Unreadable(ValueError):
    """An object that is none of its kind; the message says where and why ("Expected `str`, got `int` - at `$.spec.driver`")."""


def load(kind: type[Loaded], item: object, *, version: str = "v1") -> Loaded:
    """One object, given in the form of `version`. Raises Unreadable."""
    try:
        if version == "v1beta1" and isinstance(item, Mapping):
            item = _V1BETA1.get(kind, _same)(item)
        return msgspec.convert(item, type=kind)
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error
    except Exception as error:  # one object costs itself only, whatever it holds
        raise Unreadable(str(error)) from error


def without_parameters(kind: type[ApiValue], item: Object) -> Object:
    """The object without what is meant for drivers only: it may be large and of any shape, and decides nothing here."""
    for path in _CONFIGURED.get(kind, ()):
        item = _changed(item, path, lambda part: _changed_each(part, "config", _driver_only))
    return item


def _driver_only(entry: Object) -> Object:
    opaque = entry.get("opaque")
    if not isinstance(opaque, Mapping):
        return entry
    return {
        **entry,
        "opaque": {key: value for key, value in opaque.items() if key != "parameters"},
    }


def _same(item: Object) -> Object:
    return item


def _slice(item: Object) -> Object:
    return _changed(
        item, ("spec",), lambda spec: _changed_each(spec, "devices", _device_of_v1beta1)
    )


def _device_of_v1beta1(device: Object) -> Object:
    basic = device.get("basic")
    return {**(basic if isinstance(basic, Mapping) else {}), "name": device.get("name", "")}


def _claim(item: Object) -> Object:
    return _changed(
        item,
        ("spec", "devices"),
        lambda devices: _changed_each(devices, "requests", _request_of_v1beta1),
    )


def _template(item: Object) -> Object:
    return _changed(item, ("spec",), _claim)


def _request_of_v1beta1(request: Object) -> Object:
    if request.get("firstAvailable"):
        return request
    exactly = {key: value for key, value in request.items() if key != "name"}
    return {"name": request.get("name", ""), "exactly": exactly}


def _changed(item: Object, path: tuple[str, ...], change: Callable[[Object], Object]) -> Object:
    """A copy with the mapping at `path` changed; the item itself where there is none."""
    if not path:
        return change(item)
    inner = item.get(path[0])
    if not isinstance(inner, Mapping):
        return item
    return {**item, path[0]: _changed(inner, path[1:], change)}


def _changed_each(item: Object, key: str, change: Callable[[Object], Object]) -> Object:
    entries = item.get(key)
    if not isinstance(entries, list):
        return item
    return {
        **item,
        key: [change(entry) if isinstance(entry, Mapping) else entry for entry in entries],
    }


_V1BETA1: Mapping[type[ApiValue], Callable[[Object], Object]] = {
    ResourceSlice: _slice,
    ResourceClaim: _claim,
    ResourceClaimTemplate: _template,
}
_CONFIGURED: Mapping[type[ApiValue], tuple[tuple[str, ...], ...]] = {
    DeviceClass: (("spec",),),
    ResourceClaim: (("spec", "devices"), ("status", "allocation", "devices")),
    ResourceClaimTemplate: (("spec", "spec", "devices"),),
}
"""Where the configuration of drivers stands."""
