# SPDX-License-Identifier: Apache-2.0
"""Does a device have a taint that a request does not tolerate?

Source: k8s.io/dynamic-resource-allocation/resourceclaim (ToleratesTaint).
"""

from collections.abc import Iterable

from dra_driver.model.api.resource_claim import DeviceToleration
from dra_driver.model.api.resource_slice import Device, DeviceTaint

_EFFECTIVE = ("NoSchedule", "NoExecute")


def untolerated_taint(
    device: Device, tolerations: Iterable[DeviceToleration] | None
) -> DeviceTaint | None:
    """The first taint that the request does not tolerate, or None. A taint with an unknown effect is ignored."""
    for taint in device.taints or ():
        if taint.effect in _EFFECTIVE and not any(
            tolerates(toleration, taint) for toleration in tolerations or ()
        ):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the toleration matches the taint. An empty effect or key matches any; Exists matches any value."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
