# SPDX-License-Identifier: Apache-2.0
"""API objects of any served version of resource.k8s.io as objects of v1, and back.

v1 and v1beta2 (Kubernetes 1.33 to 1.38) are the same on the wire; v1beta1 is converted (`dra_driver.kube.wire.v1beta1`). Fields
that this program does not know are passed over; one whose value has the wrong kind makes the whole object unreadable, which
costs this object only.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dra_driver.kube.wire import v1beta1
from dra_driver.kube.wire.v1beta1 import Object, changed, changed_each
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.meta import ApiValue
from dra_driver.model.api.resource_claim import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.model.api.resource_slice import ResourceSlice, ResourceSliceSpec

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
            item = v1beta1.to_v1(kind, item)
        return msgspec.convert(item, type=kind)
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error
    except Exception as error:  # one object costs itself only, whatever it holds
        raise Unreadable(str(error)) from error


def write_slice(metadata: Object, spec: ResourceSliceSpec, *, version: str) -> Object:
    """A ResourceSlice in the form of `version`, for a request."""
    item = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }
    return v1beta1.from_v1(item) if version == "v1beta1" else item


def without_parameters(kind: type[ApiValue], item: Object) -> Object:
    """The object without what is meant for drivers only: it may be large and of any shape, and decides nothing here."""
    for path in _CONFIGURED.get(kind, ()):
        item = changed(item, path, lambda part: changed_each(part, "config", _driver_only))
    return changed(item, ("status",), lambda part: changed_each(part, "devices", _without_data))


def _driver_only(entry: Object) -> Object:
    opaque = entry.get("opaque")
    if not isinstance(opaque, Mapping):
        return entry
    return {
        **entry,
        "opaque": {key: value for key, value in opaque.items() if key != "parameters"},
    }


def _without_data(device: Object) -> Object:
    return {key: value for key, value in device.items() if key != "data"}


_CONFIGURED: Mapping[type[ApiValue], tuple[tuple[str, ...], ...]] = {
    DeviceClass: (("spec",),),
    ResourceClaim: (("spec", "devices"), ("status", "allocation", "devices")),
    ResourceClaimTemplate: (("spec", "spec", "devices"),),
}
"""Where the configuration of drivers stands."""
