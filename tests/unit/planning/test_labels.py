# SPDX-License-Identifier: Apache-2.0
"""Which labels does a node get, what is the driver's own among those that it has, and does `Gt` work with them?"""

from typing import Any

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.registry import load_backend
from dra_driver.model.api.resource_slice import DeviceCapacity
from dra_driver.model.ids import NodeName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.planning.label_text import FACTS
from dra_driver.planning.labels import (
    LabelPlan,
    LabelRules,
    facts_of,
    feature_file,
    node_labels,
    plan_labels,
    without_prefix,
)
from tests.support.api_values import found_device

OWN = "gpu.dra-driver.dev/"
ALIASES = {
    "accelerator": "vendor",
    "example.com/accelerator": "model",
    "gpu-count": "count",
    "gpu-memory": "memory-mib",
    "gpu-generation": "generation",
    "gpu-type": "product",
}


def machine(profile: str) -> Inventory:
    context = BackendContext(NodeName("node-1"), {"profile": profile})
    return load_backend("simulated", context).scan()


def inventory(*devices: Any) -> Inventory:
    return Inventory(tuple(devices))


def neutral(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(OWN)}


@pytest.mark.parametrize(
    ("profile", "values"),
    [
        ("h100x8", "nvidia NVIDIA-H100-80GB-HBM3 nvidia-h100-80gb hopper 81559 8"),
        ("h200x8", "nvidia NVIDIA-H200 nvidia-h200-141gb hopper 143771 8"),
        ("a100x8", "nvidia NVIDIA-A100-SXM4-80GB nvidia-a100-80gb ampere 81920 8"),
        ("a100-mig", "nvidia NVIDIA-A100-SXM4-40GB nvidia-tesla-a100 ampere 4864 2"),
        ("t4x2", "nvidia Tesla-T4 nvidia-tesla-t4 turing 15360 2"),
        ("v100x4", "nvidia Tesla-V100-PCIE-16GB nvidia-tesla-v100 volta 16384 4"),
        ("l40sx4", "nvidia NVIDIA-L40S nvidia-l40s ada-lovelace 46068 4"),
        ("mi300x8", "amd AMD-Instinct-MI300X-OAM amd-instinct-mi300x-oam gfx942 196592 8"),
        ("b580x2", "intel Intel-Arc-B580 intel-arc-b580 xe2 12216 2"),
        ("gaudi3x8", "habana Gaudi3-HL-325 gaudi3-hl-325 gaudi3 131072 8"),
    ],
)
def test_what_is_true_of_all_accelerators_is_said_of_the_node(profile: str, values: str) -> None:
    facts = dict(zip(FACTS, values.split(), strict=True))
    assert facts_of(machine(profile)) == facts
    labels = node_labels(machine(profile), LabelRules(aliases=ALIASES))
    assert neutral(labels) == {
        f"{OWN}product": facts["product"],
        f"{OWN}generation": facts["generation"],
        f"{OWN}memory-mib": facts["memory-mib"],
        f"{OWN}count": facts["count"],
    }
    assert {name: labels[name] for name in ALIASES} == {
        "accelerator": facts["vendor"],
        "example.com/accelerator": facts["model"],
        "gpu-count": facts["count"],
        "gpu-memory": facts["memory-mib"],
        "gpu-generation": facts["generation"],
        "gpu-type": facts["product"],
    }
    is_nvidias = facts["vendor"] == "nvidia"
    assert any(name.startswith("nvidia.com/") for name in labels) is is_nvidias


def test_without_aliases_every_label_has_a_domain_of_its_own() -> None:
    for profile in PROFILES:
        assert without_prefix(node_labels(machine(profile))) == ()


def test_of_a_node_with_several_vendors_only_what_holds_for_all_is_said() -> None:
    assert neutral(node_labels(machine("mixed"))) == {
        f"{OWN}count": "6",
        f"{OWN}memory-mib": "12216",
    }


def test_a_node_without_devices_gets_no_label() -> None:
    assert node_labels(Inventory(), LabelRules(aliases=ALIASES)) == {}


def test_a_device_without_attributes_counts() -> None:
    assert node_labels(inventory(found_device("a", "u"))) == {f"{OWN}count": "1"}


def test_the_memory_is_an_attribute_or_a_capacity_or_unknown() -> None:
    """If one device does not tell its memory, no label may say that each has so much."""
    told = found_device("a", "1", {"memoryMiB": 7})
    sized = found_device("b", "2", {}, {"memory": DeviceCapacity(value="80Gi")})
    odd = found_device("c", "3", {}, {"memory": DeviceCapacity(value="much")})
    assert facts_of(inventory(told, sized))["memory-mib"] == "7"
    assert facts_of(inventory(sized))["memory-mib"] == "81920"
    assert "memory-mib" not in facts_of(inventory(told, odd))


def test_partitions_beside_their_whole_device_do_not_count() -> None:
    whole = found_device("gpu", "1", {"memoryMiB": 100}, hardware=Hardware("P"))
    part = found_device("part", "2", {"memoryMiB": 10}, hardware=Hardware("P", ("a",)))
    alone = found_device("alone", "3", {"memoryMiB": 50}, hardware=Hardware("Q", ("a",)))
    assert facts_of(inventory(whole, part)) == {"count": "1", "memory-mib": "100"}
    assert facts_of(inventory(whole, part, alone)) == {"count": "2", "memory-mib": "50"}


# `Gt` and `Lt` of a nodeAffinity: Kubernetes reads both sides as integers of 64 bits (strconv.ParseInt, base 10).


def greater(labels: dict[str, str], key: str, than: str) -> bool:
    value = labels[key]
    assert value == str(int(value)), (
        "only a plain decimal without leading zeros is read so everywhere"
    )
    assert -(2**63) <= int(value) < 2**63
    return int(value) > int(than)


@pytest.mark.parametrize("key", ["gpu-memory", f"{OWN}memory-mib"])
def test_memory_is_compared_as_a_number(key: str) -> None:
    fits = {
        profile: greater(node_labels(machine(profile), LabelRules(aliases=ALIASES)), key, "32000")
        for profile in ("h100x8", "a100-40x8", "v100x1", "t4x2", "mi300x8", "a100-mig", "b580x2")
    }
    assert fits == {
        "h100x8": True,
        "a100-40x8": True,
        "v100x1": False,
        "t4x2": False,  # as texts "15360" and "32000" would be right by chance
        "mi300x8": True,  # and "196592" < "32000" wrong
        "a100-mig": False,
        "b580x2": False,
    }


@pytest.mark.parametrize("profile", PROFILES)
def test_every_number_is_a_plain_decimal(profile: str) -> None:
    labels = node_labels(machine(profile), LabelRules(aliases=ALIASES))
    ends = ("count", "memory", "memory-mib", "replicas", "major", "minor", "multiprocessors")
    numbers = {name: value for name, value in labels.items() if name.endswith(ends)}
    assert len(numbers) >= 3
    assert all(greater(labels, name, "-1") for name in numbers)


# The text for Node Feature Discovery


def test_a_feature_file_has_a_line_for_each_label_with_a_domain() -> None:
    labels = {"b.example.com/x": "2", "accelerator": "nvidia", "a.example.com/y": ""}
    assert feature_file(labels) == "a.example.com/y=\nb.example.com/x=2\n"
    assert without_prefix(labels) == ("accelerator",)
    assert feature_file({}) == feature_file({"accelerator": "nvidia"}) == ""


# What is ours among the labels that the Node has


def test_labels_are_added_changed_kept_and_removed() -> None:
    present = {"a": "1", "b": "old", "gone": "x", "theirs": "y"}
    plan = plan_labels({"a": "1", "b": "2", "c": "3"}, present, {"a", "b", "gone"})
    assert plan == LabelPlan({"a": "1", "b": "2", "c": "3"}, ("b", "c"), ("gone",), ())
    assert not plan.is_done


def test_labels_of_others_stay_as_they_are() -> None:
    plan = plan_labels({"a": "1", "b": "2"}, {"a": "theirs", "b": "2"}, {"b"})
    assert plan == LabelPlan({"b": "2"}, (), (), ("a",))
    assert plan.is_done


def test_a_label_that_somebody_else_wrote_with_the_same_value_becomes_ours_too() -> None:
    """So it stays if they remove it, and goes with the hardware."""
    assert plan_labels({"a": "1"}, {"a": "1"}, ()) == LabelPlan({"a": "1"}, ("a",), (), ())


def test_a_label_that_somebody_removed_is_written_again() -> None:
    assert plan_labels({"a": "1"}, {}, ()).changed == ("a",)


def test_without_hardware_everything_of_ours_goes_and_nothing_else() -> None:
    present = {"a": "1", "theirs": "2"}
    assert plan_labels({}, present, {"a"}) == LabelPlan({}, (), ("a",), ())
    assert plan_labels({}, present, ()).is_done
