# SPDX-License-Identifier: Apache-2.0
"""Does a taint keep a request away from a device?

Source: k8s.io/dynamic-resource-allocation/resourceclaim (ToleratesTaint).
"""

from collections.abc import Iterable

from dra_driver.model.api.resource_claim import DeviceToleration
from dra_driver.model.api.resource_slice import Device, DeviceTaint

_EFFECTIVE = ("NoSchedule", "NoExecute")


def untolerated_taint(
    device: Device, tolerations: Iterable[DeviceToleration] | None
) -> DeviceTaint | None:
    """The first taint that keeps the request away; effects that nobody knows keep nobody away."""
    for taint in device.taints or ():
        if taint.effect in _EFFECTIVE and not any(
            tolerates(toleration, taint) for toleration in tolerations or ()
        ):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """An empty effect or key is any; the operator Exists is any value."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
