# SPDX-License-Identifier: Apache-2.0
"""How is an object of resource.k8s.io/v1 written for a cluster that serves only older versions?

Tests and manifests are written in v1 alone. v1beta2 differs from it in nothing but its name.
v1beta1 differs in two places: a device's content lies one level deeper, below `basic`, and a
request's fields lie one level higher, not below `exactly`. v1alpha3 of Kubernetes 1.31 is like it, but
a capacity is the quantity itself. v1alpha2 of 1.30 has nothing in common with v1 and is refused. The
pod's part of the API is not touched. The driver has its own code for the same rules, without v1alpha3;
this one does not import it, so that the two are held against each other.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

GROUP = "resource.k8s.io"
V1 = f"{GROUP}/v1"
ALPHA = "v1alpha3"
FLAT = ("v1beta1", ALPHA)
TARGETS = ("v1", "v1beta2", *FLAT)
Object = dict[str, Any]
# What stays beside `exactly` in v1; every other field of a v1beta1 request belongs below it.
REQUEST_FIELDS = ("name", "firstAvailable")


def to_version(obj: Object, version: str) -> Object:
    """A copy of an object in v1 form as `version` ("v1beta1", say) writes it.

    An object of another API group comes back as it is, and a List with its items changed.
    """
    copy = deepcopy(obj)
    for part in _resource_objects(copy):
        if version not in TARGETS:
            raise ValueError(f"{part.get('kind')} cannot be written as {version or 'no version'}")
        if part["apiVersion"] != V1:
            raise ValueError(f"{part['apiVersion']} {part.get('kind')} is not in v1 form")
        part["apiVersion"] = f"{GROUP}/{version}"
        if version == ALPHA:
            _bare_capacities(part)
        if version in FLAT:
            _nest_devices(part)
            _lift_requests(part)
    return copy


def to_v1(obj: Object) -> Object:
    """A copy of an object, in whatever version an API server gave it, in v1 form."""
    copy = deepcopy(obj)
    for part in _resource_objects(copy):
        if part["apiVersion"] in [f"{GROUP}/{version}" for version in FLAT]:
            _lift_devices(part)
            _nest_requests(part)
        if part["apiVersion"] == f"{GROUP}/{ALPHA}":
            _dress_capacities(part)
        part["apiVersion"] = V1
    return copy


def _resource_objects(obj: Object) -> Iterator[Object]:
    """The objects of the group: this one, or those of a List."""
    for part in obj.get("items", (obj,)):
        if part.get("apiVersion", "").startswith(f"{GROUP}/"):
            yield part


def _nest_devices(obj: Object) -> None:
    for device in _devices(obj):
        device["basic"] = {key: device.pop(key) for key in tuple(device) if key != "name"}


def _lift_devices(obj: Object) -> None:
    for device in _devices(obj):
        device.update(device.pop("basic", {}))


def _bare_capacities(obj: Object) -> None:
    for device in _devices(obj):
        if "capacity" in device:
            device["capacity"] = {key: one["value"] for key, one in device["capacity"].items()}


def _dress_capacities(obj: Object) -> None:
    for device in _devices(obj):
        if "capacity" in device:
            device["capacity"] = {key: {"value": one} for key, one in device["capacity"].items()}


def _devices(obj: Object) -> list[Object]:
    if obj.get("kind") != "ResourceSlice":
        return []
    return obj.get("spec", {}).get("devices") or []


def _lift_requests(obj: Object) -> None:
    for request in _requests(obj):
        request.update(request.pop("exactly", {}))


def _nest_requests(obj: Object) -> None:
    for request in _requests(obj):
        fields = [key for key in request if key not in REQUEST_FIELDS]
        if fields:
            request["exactly"] = {key: request.pop(key) for key in fields}


def _requests(obj: Object) -> list[Object]:
    spec = obj.get("spec", {})
    match obj.get("kind"):
        case "ResourceClaim":
            return spec.get("devices", {}).get("requests") or []
        case "ResourceClaimTemplate":
            return spec.get("spec", {}).get("devices", {}).get("requests") or []
        case _:
            return []
