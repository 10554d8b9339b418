# SPDX-License-Identifier: Apache-2.0
"""Which taints keep which requests away."""

import pytest

from dra_driver.allocator.taints import tolerates, untolerated_taint
from dra_driver.model.api.resource_claim import DeviceToleration
from dra_driver.model.api.resource_slice import Device, DeviceTaint

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
