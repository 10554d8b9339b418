# SPDX-License-Identifier: Apache-2.0
"""Names from the time of device plugins: resources, labels, and what was probably meant."""

import pytest

from dra_driver.model.plugin_resources import (
    asked_in,
    is_device_label,
    is_device_resource,
    is_invented_resource,
    is_memory_resource,
    likely_resource,
    model_in,
)
from dra_driver.planning.plugin.customary import is_customary


@pytest.mark.parametrize(
    "name",
    [
        *("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "amd.com/cpx_nps4"),
        *("gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
    ],
)
def test_what_the_driver_offers_by_its_customary_name_is_known(name: str) -> None:
    assert is_customary(name)
    assert is_device_resource(name)


@pytest.mark.parametrize(
    ("name", "device", "invented", "meant"),
    [
        ("nvidia.com/gpu.shared", True, False, ""),
        ("aliyun.com/gpu-mem", True, False, ""),
        ("nvidia.com/gpu.type", False, True, ""),
        ("nvidia.com/gpus", False, False, "nvidia.com/gpu"),
        ("amd.com/gpus", False, False, "amd.com/gpu"),
        ("nvidia.com/gpu.count", False, False, "nvidia.com/gpu"),
        ("nvidia.com/h100", False, False, "nvidia.com/gpu"),
        ("nvidia.com/gpu-memory", False, False, ""),
        ("nvidia.com/GPU", False, False, "nvidia.com/gpu"),
        ("nvidia.com/GPUs", False, False, "nvidia.com/gpu"),
        ("nvidia.com/gpu.Type", False, False, ""),
        ("nvidia.com/MIG-1g.10gb", False, False, "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig1g.10gb", False, False, "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig_3g.20g", False, False, "nvidia.com/mig-3g.20gb"),
        ("nvidia.com/hostdev", False, False, ""),
        ("nvidia.com/driver", False, False, ""),
        ("cpu", False, False, ""),
        ("requests.nvidia.com/gpu", False, False, ""),
    ],
)
def test_a_resource_is_one_thing(name: str, device: bool, invented: bool, meant: str) -> None:
    found = is_device_resource(name), is_invented_resource(name), likely_resource(name)
    assert found == (device, invented, meant)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("nvidia.com/h100", "H100"),
        ("nvidia.com/gpu-l40s", "L40S"),
        ("nvidia.com/tesla-v100", "V100"),
        ("nvidia.com/a100-sxm4-40gb", "A100"),
        ("nvidia.com/gh200", "GH200"),
        ("nvidia.com/rtx4090", "4090"),
        ("nvidia.com/rtx-a6000", "A6000"),
        ("amd.com/mi300x", "MI300X"),
        *((f"nvidia.com/{name}", "") for name in ("gpu", "gpu-1", "p2p", "hostdev", "4090")),
        ("example.com/h100", ""),
    ],
)
def test_a_model_is_no_resource(name: str, model: str) -> None:
    assert model_in(name) == model


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        *(("nvidia.com/gpu-memory", True), ("amd.com/gpu.vram", True), ("nvidia.com/mem", True)),
        *(("nvidia.com/gpumem", False), ("aliyun.com/gpu-mem", False), ("memory", False)),
    ],
)
def test_an_amount_of_memory_is_known_by_its_name(name: str, memory: bool) -> None:
    assert is_memory_resource(name) is memory
    assert not is_invented_resource(name)


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("accelerator", True),
        ("nvidia.com/gpu.product", True),
        ("nvidia.com/cuda.driver.major", True),
        ("gpu.dra-driver.dev/memory-mib", True),
        ("nvidia.com/mig.config", True),
        ("nvidia.com/gpu.deploy.device-plugin", False),
        ("topology.kubernetes.io/zone", False),
    ],
)
def test_labels_about_devices_are_known(key: str, known: bool) -> None:
    assert is_device_label(key) is known


def test_what_is_nested_too_deeply_is_not_looked_at() -> None:
    content = {"spec": [{"limits": {"nvidia.com/gpu": 1, "cpu": 1}}]}
    assert list(asked_in(content)) == [("spec[0].limits", "nvidia.com/gpu")]
    assert list(asked_in(content, levels=2)) == []
