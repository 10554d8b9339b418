# SPDX-License-Identifier: Apache-2.0
"""What a device says of itself."""

from typing import Any

import msgspec
import pytest

from dra_driver.model.api.resource_slice import Device, DeviceAttribute
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice, attributes


class Nothing(msgspec.Struct, frozen=True):
    pass


ANY = ConfigKind("a.example.com/v1", "Any", Nothing)
GPU = ConfigKind("a.example.com/v1", "Gpu", Nothing, device_type="gpu")
PART = ConfigKind("a.example.com/v1", "Part", Nothing, device_type="mig")


def device(found: Any, *kinds: ConfigKind) -> AllocatableDevice:
    return AllocatableDevice(Device(name="gpu-0", attributes=found), "uuid", config_kinds=kinds)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (attributes({"type": "gpu"}), "gpu"),
        (attributes({"type": 5}), ""),
        (attributes({"vendor": "acme"}), ""),
        ({"type": DeviceAttribute()}, ""),
        ({"type": "a backend's mistake"}, ""),
        (None, ""),
    ],
)
def test_the_type_of_a_device_is_an_attribute(found: Any, expected: str) -> None:
    assert device(found).type == expected


def test_a_device_reads_the_kinds_for_its_type_and_those_for_all() -> None:
    kinds = (ANY, GPU, PART)
    assert device(attributes({"type": "gpu"}), *kinds).reads == (ANY, GPU)
    assert device(attributes({"type": "mig"}), *kinds).reads == (ANY, PART)
    assert device(None, *kinds).reads == (ANY,)
    assert device(None, ANY).reads == (ANY,)
    assert device(None).reads == ()
