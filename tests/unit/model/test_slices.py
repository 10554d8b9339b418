# SPDX-License-Identifier: Apache-2.0
"""What is said of somebody else's slice."""

from msgspec.structs import replace

from dra_driver.model.api.resource_slice import Device, ResourceSliceSpec
from dra_driver.model.slices import SliceHolder, StoredSlice


def test_a_holder_says_whose_the_slice_is():
    holder = SliceHolder(
        "s", "uid-1", "gpu.example.com", "node-2", "pool-2", "2026-01-02T03:04:05Z"
    )
    assert str(holder) == (
        "a slice of driver gpu.example.com for node node-2, pool pool-2, UID uid-1, created 2026-01-02T03:04:05Z"
    )
    assert "for no single node, pool" in str(replace(holder, node=""))


def test_a_slice_of_counters_has_no_devices():
    device = Device(name="gpu-0")
    assert StoredSlice("s", "uid-1", "1", ResourceSliceSpec(devices=[device])).devices == (device,)
    assert StoredSlice("s", "uid-1", "1", ResourceSliceSpec()).devices == ()
