# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources, and resources of somebody else."""

from typing import Any

import pytest
import yaml

from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice

Object = dict[str, Any]


def pod(limits: Object) -> Object:
    containers = [{"name": "c", "resources": {"limits": limits}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers},
    }


@pytest.mark.parametrize("amount", [2, "2", "2000m", "2e0", "0.002k"])
def test_an_amount_is_the_number_that_the_api_server_reads(amount: int | str) -> None:
    template, _ = convert(pod({"nvidia.com/gpu": amount}), Choice(), ()).documents
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 2


@pytest.mark.parametrize(
    ("limits", "left", "is_changed"),
    [
        ("{aws.amazon.com/neuron: 2}", "by the class neuron.aws.com", False),
        ("{google.com/tpu: 4}", "by the class tpu.google.com", False),
        ("{qualcomm.com/qaic: 1}", "no DRA driver for them is known", False),
        ("{nvidia.com/pgpu: 1}", "for a virtual machine", False),
        ("{gpu.intel.com/i915: 1, gpu.intel.com/xe_monitoring: 1}", "adminAccess: true", True),
        ("{gpu.intel.com/i915: 1, gpu.intel.com/millicores: 500}", "nobody limits", False),
        ("{amd.com/gpu: 1, amd.com/gpumem: 4096}", "a part of a GPU by HAMi", False),
        ("{volcano.sh/vgpu-number: 1}", "a part of a GPU by Volcano", False),
    ],
)
def test_a_resource_of_somebody_else_stays_and_its_server_is_named(
    limits: str, left: str, is_changed: bool
) -> None:
    found = convert(pod(yaml.safe_load(limits)), Choice(), ())
    (one,) = found.left
    assert left in one.reason
    assert found.is_changed is is_changed
