# SPDX-License-Identifier: Apache-2.0
"""The rules of taints, the taint of a vanished device, and since when a device has each taint."""

import pytest
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.quantity import Quantity
from dra_driver.planning.taints import dated, is_label_key, taint_times, tainted, wrong_taints
from tests.support.api_values import device_taint, published

NOW = "2026-05-05T05:05:05Z"
SINCE = "2026-01-02T03:04:05Z"
TAINT = DeviceTaint(key="a.example.com/x", value="v", effect="NoExecute")
VANISHED = device_taint("gpu.dra-driver.dev/vanished", "not-found-on-node", "NoSchedule", "")


@pytest.mark.parametrize(
    "key", ["a", "A.b_c-d", "a.example.com/X", "x" * 63, f"{'a' * 253}/x", "a-b.c/1"]
)
def test_a_label_key(key: str):
    assert is_label_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "-a",
        "a-",
        "a b",
        "/a",
        "a/",
        "a/b/c",
        "A/b",
        "x" * 64,
        f"{'a' * 254}/x",
        "a\n",
        "é",
        "a..b/c",
    ],
)
def test_no_label_key(key: str):
    assert not is_label_key(key)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"key": ""}, ["[0].key: '' is no label key"]),
        ({"key": "bad key!"}, ["[0].key: 'bad key!' is no label key"]),
        ({"value": "with space"}, ["[0].value: 'with space' is no label value"]),
        ({"value": "x" * 64}, [f"[0].value: '{'x' * 64}' is no label value"]),
        ({"value": ""}, []),
        ({"effect": ""}, ["[0].effect: '' is none of NoSchedule, NoExecute, None"]),
        ({"effect": "Whatever"}, ["[0].effect: 'Whatever' is none of NoSchedule, NoExecute, None"]),
        ({"effect": "None"}, []),
        ({"time_added": "yesterday"}, ["[0].timeAdded: 'yesterday' is no time of RFC 3339"]),
        ({"time_added": "2026-13-01T00:00:00Z"}, ["[0].timeAdded: '2026-13-01T00:00:00Z' is no time of RFC 3339"]),
        ({"time_added": "2026-01-01T00:00:00.5+02:00"}, []),
        ({"time_added": ""}, []),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses_of_a_taint(changes: dict[str, str], found: list[str]):
    assert list(wrong_taints([replace(TAINT, **changes)])) == found


def test_a_device_has_at_most_16_taints():
    assert list(wrong_taints([TAINT] * 16)) == []
    assert list(wrong_taints([TAINT] * 17)) == ["more than 16 taints"]


def test_a_vanished_device_is_tainted_under_the_drivers_name():
    device = published("gpu-0", capacity={"memory": Quantity.parse("1Gi")})
    assert dated(tainted(device), {}, SINCE) == replace(
        device, taints=[replace(VANISHED, time_added=SINCE)]
    )


def test_a_vanished_device_keeps_its_other_taints_as_far_as_they_can_be_written():
    first = tainted(published("gpu-0"))
    bad = replace(TAINT, value="with space")
    again = replace(first, taints=[bad, TAINT, *(first.taints or ())])
    assert tainted(again).taints == [TAINT, replace(VANISHED, time_added=None)]
    many = replace(first, taints=[replace(TAINT, key=f"k{index}") for index in range(16)])
    keys = [taint.key for taint in tainted(many).taints or ()]
    assert keys == [*(f"k{index}" for index in range(15)), VANISHED.key]


def test_a_taint_without_a_time_gets_the_time_that_it_had():
    device = published("gpu-0", taints=(TAINT,))
    old = published("gpu-0", taints=(replace(TAINT, time_added="2025-01-01T00:00:00Z"),))
    had = published("gpu-0", taints=(replace(TAINT, time_added=SINCE),))
    assert dated(device, taint_times([old, had, device]), NOW) == had
    assert dated(published("gpu-0"), taint_times([had]), NOW) == published("gpu-0")


@pytest.mark.parametrize("changed", ["key", "value", "effect", "name"])
def test_another_taint_has_a_time_of_its_own(changed: str):
    other = published("gpu-1" if changed == "name" else "gpu-0", taints=(TAINT,))
    if changed != "name":
        value = "NoSchedule" if changed == "effect" else "other"
        other = replace(other, taints=[replace(TAINT, **{changed: value})])
    had = published("gpu-0", taints=(replace(TAINT, time_added=SINCE),))
    (taint,) = dated(other, taint_times([had]), NOW).taints or ()
    assert taint.time_added == NOW


def test_a_time_of_the_backend_counts_as_the_api_server_stores_it():
    device = published("gpu-0", taints=(replace(TAINT, time_added="2026-01-01T00:00:00.9+02:00"),))
    times = {("gpu-0", TAINT.key, TAINT.value, TAINT.effect): SINCE}
    (taint,) = dated(device, times, NOW).taints or ()
    assert taint.time_added == "2025-12-31T22:00:00Z"


def test_a_time_before_the_first_year_is_none():
    device = published("gpu-0", taints=(replace(TAINT, time_added="0001-01-01T00:00:00+01:00"),))
    assert taint_times([device]) == {}


def test_a_time_of_go_that_was_not_set_is_written_with_four_digits_of_the_year():
    device = published("gpu-0", taints=(replace(TAINT, time_added="0001-01-01T00:00:00Z"),))
    (taint,) = dated(device, {}, NOW).taints or ()
    assert taint.time_added == "0001-01-01T00:00:00Z"
