# SPDX-License-Identifier: Apache-2.0
"""Which taints keep which requests away, and which taints rules add."""

import msgspec
import pytest

from dra_driver.allocator.state import DeviceID
from dra_driver.allocator.taints import tolerates, untolerated_taint, with_taint_rules
from dra_driver.model.api.resource_claim import DeviceTaintRule, DeviceToleration
from dra_driver.model.api.resource_slice import Device, DeviceTaint, ResourceSlice

XID = DeviceTaint(key="xid", value="79", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration(key="xid", operator="Exists"), True),
        (DeviceToleration(key="other", operator="Exists"), False),
        (DeviceToleration(key="xid", operator="Exists", effect="NoExecute"), False),
        (DeviceToleration(key="xid", operator="Exists", effect="NoSchedule"), True),
        (DeviceToleration(key="xid", operator="Equal", value="79"), True),
        (DeviceToleration(key="xid", value="79"), True),
        (DeviceToleration(key="xid", value="80"), False),
        (DeviceToleration(key="xid", operator="Newer", value="79"), False),
    ],
)
def test_a_toleration_must_fit_key_value_and_effect(
    toleration: DeviceToleration, expected: bool
) -> None:
    assert tolerates(toleration, XID) is expected


def test_effects_that_nobody_knows_keep_nobody_away() -> None:
    device = Device(taints=[DeviceTaint(key="a", effect="None"), DeviceTaint(key="b", effect="?")])
    assert untolerated_taint(device, None) is None


def test_the_first_taint_that_is_not_tolerated_is_told() -> None:
    draining = DeviceTaint(key="drain", effect="NoExecute")
    device = Device(taints=[XID, draining])
    assert untolerated_taint(device, None) == XID
    assert untolerated_taint(device, [DeviceToleration(key="xid", operator="Exists")]) == draining
    assert untolerated_taint(device, [DeviceToleration(operator="Exists")]) is None


GPU = DeviceID("d", "p", "gpu-0")
OWN = DeviceTaint(key="own", effect="NoSchedule")
ADDED = DeviceTaint(key="added", effect="NoExecute")


def published() -> ResourceSlice:
    devices = [
        {"name": "gpu-0", "taints": [{"key": "own", "effect": "NoSchedule"}]},
        {"name": "gpu-1"},
    ]
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": devices}
    return msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)


def rule(**selector: str) -> DeviceTaintRule:
    taint = {"key": "added", "effect": "NoExecute"}
    spec = {"deviceSelector": selector, "taint": taint}
    return msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, DeviceTaintRule)


def taints(*rules: DeviceTaintRule) -> list[list[DeviceTaint] | None]:
    slices, _ = with_taint_rules([published()], rules)
    return [device.taints for device in slices[0].spec.devices or ()]


def test_a_rule_adds_its_taint_behind_the_devices_own() -> None:
    slices, names = with_taint_rules([published()], [rule(driver="d", pool="p", device="gpu-0")])
    assert [device.taints for device in slices[0].spec.devices or ()] == [[OWN, ADDED], None]
    assert names == {(GPU, 1): "r"}


def test_an_empty_selector_means_every_device_and_none_means_nothing() -> None:
    assert taints(rule()) == [[OWN, ADDED], [ADDED]]
    assert taints(DeviceTaintRule()) == [[OWN], None]


def test_a_rule_for_others_changes_nothing() -> None:
    unchanged = [[OWN], None]
    assert taints(rule(driver="x")) == unchanged
    assert taints(rule(pool="x")) == unchanged
    assert taints(rule(device="x")) == unchanged
