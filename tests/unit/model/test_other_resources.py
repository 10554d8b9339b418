# SPDX-License-Identifier: Apache-2.0
"""Resources of other device plugins are known by what they are, and are no misspelt ones."""

import pytest

from dra_driver.model.other_resources import elsewhere
from dra_driver.model.plugin_resources import (
    is_device_resource,
    is_invented_resource,
    likely_resource,
)


@pytest.mark.parametrize(
    ("names", "what", "is_part"),
    [
        ("aws.amazon.com/neuron aws.amazon.com/neurondevice", "AWS's Neuron devices", False),
        ("aws.amazon.com/neuroncore", "cores of AWS's Neuron devices", False),
        ("google.com/tpu", "Google's TPUs", False),
        ("qualcomm.com/qaic qualcomm.com/qaic-pro", "Qualcomm's Cloud AI cards", False),
        (
            "gpu.intel.com/millicores gpu.intel.com/memory.max gpu.intel.com/tiles",
            "a part of a GPU that Intel's",
            True,
        ),
        (
            "gpu.intel.com/i915_monitoring gpu.intel.com/xe_monitoring gpu.intel.com/monitoring",
            "access to all GPUs",
            False,
        ),
        (
            "volcano.sh/vgpu-number volcano.sh/vgpu-memory volcano.sh/vgpu-cores",
            "a part of a GPU by Volcano's",
            True,
        ),
        (
            "amd.com/gpumem amd.com/gpucores nvidia.com/gpumem-percentage",
            "a part of a GPU by HAMi's",
            True,
        ),
        (
            "nvidia.com/pgpu nvidia.com/vgpu nvidia.com/GRID_T4-1B nvidia.com/NVIDIA_A10-12Q",
            "a GPU or vGPU for a virtual",
            False,
        ),
    ],
)
def test_each_is_one_thing(names: str, what: str, is_part: bool) -> None:
    for name in names.split():
        found = elsewhere(name)
        assert found is not None, name
        assert found.what.startswith(what)
        assert found.is_part is is_part
        assert not is_device_resource(name)
        assert not is_invented_resource(name)
        assert likely_resource(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/gpus",
        "nvidia.com/GPU",
        "nvidia.com/MIG-1g.10gb",
        "cpu",
    ],
)
def test_the_driver_s_own_and_misspelt_ones_are_none_of_them(name: str) -> None:
    assert elsewhere(name) is None
