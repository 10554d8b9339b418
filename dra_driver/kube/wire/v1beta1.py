# SPDX-License-Identifier: Apache-2.0
"""resource.k8s.io/v1beta1 (Kubernetes 1.32 to 1.37): a device's content stands one level deeper, under `basic`.

A claim's status is the same as in v1; its requests differ, but the driver does not read them.
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.kube.wire import v1
from dra_driver.kube.wire.v1 import Object, load_claim
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.slices import SliceSpec, StoredSlice

__all__ = ["VERSION", "dump_slice_spec", "load_claim", "load_slice"]

VERSION = "v1beta1"


def load_slice(obj: Object) -> StoredSlice:
    """A ResourceSlice."""
    spec = obj.get("spec")
    devices = spec.get("devices") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(devices, list):
        return v1.load_slice(obj)
    flat = [_flat(device) for device in devices if isinstance(device, Mapping)]
    return v1.load_slice({**obj, "spec": {**spec, "devices": flat}})


def dump_slice_spec(spec: SliceSpec, driver: DriverName, node: NodeName) -> dict[str, Any]:
    """A ResourceSlice's `spec`."""
    dumped = v1.dump_slice_spec(spec, driver, node)
    dumped["devices"] = [
        {
            "name": device["name"],
            "basic": {key: value for key, value in device.items() if key != "name"},
        }
        for device in dumped["devices"]
    ]
    return dumped


def _flat(device: Object) -> Object:
    basic = device.get("basic")
    return {**(basic if isinstance(basic, Mapping) else {}), "name": device.get("name")}
