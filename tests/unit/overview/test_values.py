# SPDX-License-Identifier: Apache-2.0
"""What is a device called, and how much memory does it have, in the words of each vendor's driver?"""

import msgspec
import pytest

from dra_driver.allocator.amounts import amount
from dra_driver.model.api.resource_slice import Device
from dra_driver.overview.values import memory_of, product

# The attributes and capacities that the drivers publish of themselves; those that say neither are left out.
VENDORS = {
    "nvidia": (
        {"productName": "NVIDIA A100-SXM4-40GB", "type": "gpu", "architecture": "Ampere"},
        {"memory": "40Gi"},
        ("NVIDIA A100-SXM4-40GB", "40Gi"),
    ),
    "nvidia, MIG": (
        {"productName": "NVIDIA A100-SXM4-40GB", "type": "mig", "profile": "1g.5gb"},
        {"memory": "4864Mi", "multiprocessors": "14"},
        ("NVIDIA A100-SXM4-40GB 1g.5gb", "4864Mi"),
    ),
    "nvidia, domain": (
        {"gpu.nvidia.com/productName": "NVIDIA L4", "gpu.nvidia.com/profile": "x"},
        {"gpu.nvidia.com/memory": "23034Mi"},
        ("NVIDIA L4 x", "23034Mi"),
    ),
    "nvidia, vfio": (
        {"productName": "GH100 [H100 SXM5 80GB]", "type": "vfio"},
        {"addressableMemory": "128Gi"},
        ("GH100 [H100 SXM5 80GB]", "128Gi"),
    ),
    "amd": (
        {"productName": "AMD_Instinct_MI300X_OAM", "partitionProfile": "cpx_nps4"},
        {"memory": "24Gi", "computeUnits": "38"},
        ("AMD_Instinct_MI300X_OAM cpx_nps4", "24Gi"),
    ),
    "intel": (
        {"model": "Flex 170", "family": "Data Center Flex"},
        {"memory": "14248Mi", "millicores": "1000"},
        ("Flex 170", "14248Mi"),
    ),
    "gaudi": ({"model": "Gaudi3", "serial": "x"}, {}, ("Gaudi3", "")),
    "example": (
        {"driver.example.com/model": "LATEST-GPU-MODEL"},
        {"driver.example.com/memory": "80Gi"},
        ("LATEST-GPU-MODEL", "80Gi"),
    ),
    "dranet": ({"dra.net/ifName": "eth0", "dra.net/type": "device"}, {}, ("", "")),
    "own name first": (
        {"a.example.com/model": "other", "model": "own", "z.example.com/productName": "best"},
        {"a.example.com/memory": "1Gi", "memory": "2Gi"},
        ("best", "2Gi"),
    ),
    "own of two": ({"a.example.com/model": "other", "model": "own"}, {}, ("own", "")),
    "empty": ({"productName": "", "model": "m", "profile": "1g"}, {}, ("m 1g", "")),
    "only a profile": ({"profile": "1g"}, {}, ("1g", "")),
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_words_of_each_vendor(vendor: str) -> None:
    said, capacity, expected = VENDORS[vendor]
    listed = {name: {"string": value} for name, value in said.items()}
    device = msgspec.convert({"name": "d", "attributes": listed}, Device)
    memory = memory_of({name: amount(value) for name, value in capacity.items()})
    assert (product(device), str(memory) if memory else "") == expected
