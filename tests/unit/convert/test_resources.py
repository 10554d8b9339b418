# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources, and resources of somebody else."""

from typing import Any

import pytest
import yaml

from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice
from dra_driver.model.plugin_resources import is_converted

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
    assert left in found.left[-1].reason
    assert found.is_changed is is_changed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mig-1g5gb", "no plugin offers it (did you mean nvidia.com/mig-1g.5gb?); it stays"),
        ("mig-1g.5gb.shared", "time-shared parts are no claims here: ask for nvidia.com/mig-1g.5gb"),
        ("mig-half", "it names no profile, which looks like 1g.5gb; it stays"),
    ],
)  # fmt: skip
def test_what_names_no_profile_stays_with_what_to_write(name: str, reason: str) -> None:
    (one,) = convert(pod({f"nvidia.com/{name}": 1}), Choice(), ()).left
    assert one.reason.startswith(reason)


def test_a_profile_that_no_known_gpu_has_is_converted_and_told() -> None:
    """A new GPU may have it."""
    found = convert(pod({"nvidia.com/mig-1g.50gb": 1}), Choice(), ())
    told = "no GPU that is known here has the profile 1g.50gb (did you mean nvidia.com/mig-1g.5gb?)"
    assert (found.is_changed, found.notes[0], found.left) == (True, told, ())


@pytest.mark.parametrize(
    ("amount", "question"),
    [
        ("4Gi", " (did you mean 4?)"),
        ("512Mi", " (did you mean 1?)"),
        ("4096", " (did you mean 4?)"),
        ("4E", ""),
    ],
)
def test_an_amount_of_gib_that_no_gpu_has_is_asked_about(amount: str, question: str) -> None:
    found = convert(pod({"aliyun.com/gpu-mem": amount}), Choice(), ())
    (one,) = found.left
    assert one.reason == (
        f"it counts GiB, and no GPU has so many: write their number without a unit{question}; it stays"
    )
    assert not found.is_changed


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("GPU", "gpu"),
        ("MIG-1g.10gb", "mig-1g.10gb"),
        ("mig1g.10gb", "mig-1g.10gb"),
    ],
)
def test_a_name_with_another_case_or_without_its_hyphen_is_asked_about(
    name: str, near: str
) -> None:
    (one,) = convert(pod({f"nvidia.com/{name}": 1}), Choice(), ()).left
    assert one.reason == f"no plugin offers it (did you mean nvidia.com/{near}?); it stays"


def test_what_a_whole_pod_asks_for_stays_and_is_told() -> None:
    asking = pod({"nvidia.com/gpu": 1})
    asking["spec"]["resources"] = {"limits": {"cpu": 1, "nvidia.com/gpu": 2, "nvidia.com/GPU": 1}}
    found = convert(asking, Choice(), ())
    assert found.is_changed
    assert [one.what for one in found.left] == ["nvidia.com/gpu: 2", "nvidia.com/GPU: 1"]
    told = "the API server refuses it in the resources of a whole pod: ask for it in those of the container"
    assert all(one.reason.startswith(told) for one in found.left)


_CONVERTED = ("gpu", "gpu.shared", "mig-1g.5gb", "mig-1g.5gb.me", "mig-1g.5gb.shared", "mig-half")
_OTHERS = (
    *("amd.com/gpu", "amd.com/cpx_nps1", "gpu.intel.com/xe", "gpu.intel.com/i915"),
    *("habana.ai/gaudi", "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "nvidia.com/gpus"),
)


@pytest.mark.parametrize("name", [*(f"nvidia.com/{one}" for one in _CONVERTED), *_OTHERS])
def test_explain_names_convert_for_the_resources_that_it_converts(name: str) -> None:
    assert convert(pod({name: 1}), Choice(), ()).is_changed is is_converted(name)
