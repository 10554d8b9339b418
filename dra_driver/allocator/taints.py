# SPDX-License-Identifier: Apache-2.0
"""Does a device have a taint that a request does not tolerate, and which taints do DeviceTaintRules add?

Source: k8s.io/dynamic-resource-allocation/resourceclaim (ToleratesTaint), resourceslice/tracker (DeviceTaintRule).
"""

from collections.abc import Iterable, Sequence

import msgspec

from dra_driver.allocator.state import DeviceID
from dra_driver.model.api.resource_claim import DeviceTaintRule, DeviceToleration
from dra_driver.model.api.resource_slice import Device, DeviceTaint, ResourceSlice

EFFECTIVE = ("NoSchedule", "NoExecute")
"""The effects of a taint that keep a claim from a device, or a pod from a node. Other effects are ignored."""


def untolerated_taint(
    device: Device, tolerations: Iterable[DeviceToleration] | None
) -> DeviceTaint | None:
    """Return the first taint that the request does not tolerate, or None. Taints with effects not in EFFECTIVE are ignored."""
    for taint in device.taints or ():
        if taint.effect in EFFECTIVE and not any(
            tolerates(toleration, taint) for toleration in tolerations or ()
        ):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return whether the toleration matches the taint. An empty effect or key matches any; Exists matches any value."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


RuleNames = dict[tuple[DeviceID, int], str]
"""The name of the DeviceTaintRule that added a taint, by device and index in its list of taints."""


def with_taint_rules(
    slices: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]
) -> tuple[tuple[ResourceSlice, ...], RuleNames]:
    """Add the taints of `rules` to the devices of the slices, after the published taints of each device."""
    names: RuleNames = {}
    return tuple(_tainted(published, rules, names) for published in slices), names


def _tainted(
    published: ResourceSlice, rules: Sequence[DeviceTaintRule], names: RuleNames
) -> ResourceSlice:
    concerned = [rule for rule in rules if _selects(rule, published)]
    if not concerned:
        return published
    pool = (published.spec.driver, published.spec.pool.name)
    devices = [
        _with_taints(device, concerned, DeviceID(*pool, device.name), names)
        for device in published.spec.devices or ()
    ]
    return msgspec.structs.replace(
        published, spec=msgspec.structs.replace(published.spec, devices=devices)
    )


def _selects(rule: DeviceTaintRule, published: ResourceSlice) -> bool:
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, published.spec.driver)
        and selector.pool in (None, published.spec.pool.name)
    )


def _with_taints(
    device: Device, rules: Sequence[DeviceTaintRule], device_id: DeviceID, names: RuleNames
) -> Device:
    # The scheduler reports the first taint that is not tolerated, so the order matters: published taints come first.
    taints = list(device.taints or ())
    for rule in rules:
        selector = rule.spec.device_selector
        if selector and selector.device in (None, device.name):
            names[device_id, len(taints)] = rule.metadata.name
            taints.append(rule.spec.taint)
    return msgspec.structs.replace(device, taints=taints) if taints else device
