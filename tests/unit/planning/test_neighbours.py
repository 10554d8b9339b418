# SPDX-License-Identifier: Apache-2.0
"""Which extended resources are accelerators, and whose."""

import pytest

from dra_driver.model.inventory import Inventory
from dra_driver.planning.neighbours import Neighbour, find_neighbours
from tests.support.api_values import found_device


def inventory(*vendors: str) -> Inventory:
    return Inventory(
        tuple(
            found_device(f"gpu-{index}", "", {"vendor": vendor} if vendor else {})
            for index, vendor in enumerate(vendors)
        )
    )


@pytest.mark.parametrize(
    ("resource", "vendor"),
    [
        ("nvidia.com/gpu", "nvidia"),
        ("nvidia.com/gpu.shared", "nvidia"),
        ("nvidia.com/mig-1g.5gb.me", "nvidia"),
        ("nvidia.com/gpumem", "nvidia"),
        ("nvidia.com/gpumem-percentage", "nvidia"),
        ("nvidia.com/gpucores", "nvidia"),
        ("aliyun.com/gpu-mem", "nvidia"),
        ("aliyun.com/gpu-count", "nvidia"),
        ("amd.com/gpu", "amd"),
        ("amd.com/cpx_nps4", "amd"),
        ("amd.com/spx_nps1", "amd"),
        ("amd.com/gpumem", "amd"),
        ("gpu.intel.com/i915", "intel"),
        ("gpu.intel.com/xe", "intel"),
        ("gpu.intel.com/xe_monitoring", "intel"),
        ("habana.ai/gaudi", "habana"),
    ],
)
def test_accelerators_are_known_by_their_resource(resource: str, vendor: str) -> None:
    assert find_neighbours({resource: 2}, inventory(vendor)) == (
        Neighbour(resource, 2, vendor, overlaps=True),
    )


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpux",
        "nvidia.com/cx7-nic",
        "nvidia.com/sriov_rdma",
        "amd.com/cpu",
        "intel.com/qat",
        "gpu.intel.com/",
        "my.nvidia.com/gpu",
        "nvidiaxcom/gpu",
        "cpu",
        "hugepages-2Mi",
        "rdma/hca_shared_devices",
    ],
)
def test_everything_else_is_not(resource: str) -> None:
    assert find_neighbours({resource: 2}, inventory("nvidia")) == ()


def test_they_are_told_by_name_with_what_they_may_share() -> None:
    resources = {"nvidia.com/gpu": 8, "amd.com/gpu": 1, "habana.ai/gaudi": 0}
    amd, habana, nvidia = find_neighbours(resources, inventory("amd", "habana"))
    assert (amd.overlaps, habana.overlaps, nvidia.overlaps) == (True, True, False)
    assert [str(found) for found in (amd, habana, nvidia)] == [
        "amd.com/gpu (1)",
        "habana.ai/gaudi (0)",
        "nvidia.com/gpu (8)",
    ]


def test_a_device_that_does_not_say_its_vendor_may_be_anybodys() -> None:
    (found,) = find_neighbours({"nvidia.com/gpu": 8}, inventory("", "amd"))
    assert found.overlaps


def test_on_a_node_without_devices_nothing_is_offered_twice() -> None:
    (found,) = find_neighbours({"nvidia.com/gpu": 8}, Inventory())
    assert not found.overlaps
