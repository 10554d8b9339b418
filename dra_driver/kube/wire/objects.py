# SPDX-License-Identifier: Apache-2.0
"""How is a JSON object of any served version of resource.k8s.io turned into a value of `model/api/`, and back?

v1 and v1beta2 (Kubernetes 1.33 to 1.38) have the same JSON; v1beta1 is converted to v1 first (`dra_driver.kube.wire.v1beta1`).
Fields that this program does not know are ignored. A known field with a value of the wrong type makes its object unreadable;
other objects are not affected.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dra_driver.kube.wire import v1beta1
from dra_driver.kube.wire.v1beta1 import Object, changed, changed_each
from dra_driver.model.api.meta import ApiValue
from dra_driver.model.api.resource_claim import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.model.api.resource_slice import ResourceSliceSpec

Loaded = TypeVar("Loaded", bound=ApiValue)


class Unreadable(ValueError):
    """A field has a value of the wrong type; the message says where and why ("Expected `str`, got `int` - at `$.spec.driver`")."""


def load(kind: type[Loaded], item: object, *, version: str = "v1") -> Loaded:
    """Read one object; `item` is JSON of this `version`. Raises Unreadable."""
    try:
        if version == "v1beta1" and isinstance(item, Mapping):
            item = v1beta1.to_v1(kind, item)
        return msgspec.convert(item, type=kind)
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error
    except (
        Exception
    ) as error:  # whatever an object contains, it must not stop the reading of others
        raise Unreadable(str(error)) from error


def write_slice(metadata: Object, spec: ResourceSliceSpec, *, version: str) -> Object:
    """A ResourceSlice as JSON of this `version`, for a request."""
    item = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }
    return v1beta1.from_v1(item) if version == "v1beta1" else item


def without_parameters(kind: type[ApiValue], item: Object) -> Object:
    """The object without the data for drivers: it may be large and of any form, and neither the scheduler nor explain reads it."""
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
"""The paths of the objects that have a `config` list for drivers."""
