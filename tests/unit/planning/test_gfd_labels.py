# SPDX-License-Identifier: Apache-2.0
"""Which labels of NVIDIA's GPU feature discovery does a node get? The expected ones are written out, as GFD would write them."""

from typing import Any

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.model.api.resource_slice import DeviceCapacity
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import NodeName
from dra_driver.model.lease import Hardware
from dra_driver.planning.gfd_labels import GfdRules, Sharing, gfd_labels
from tests.support.api_values import found_device

VERSIONS = {
    "nvidia.com/cuda.driver.major": "550",
    "nvidia.com/cuda.driver.minor": "54",
    "nvidia.com/cuda.driver.rev": "15",
    "nvidia.com/cuda.driver-version.major": "550",
    "nvidia.com/cuda.driver-version.minor": "54",
    "nvidia.com/cuda.driver-version.revision": "15",
    "nvidia.com/cuda.driver-version.full": "550.54.15",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "4",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "4",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/mig.strategy": "mixed",
}
H100 = {
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
}
MIG_GPUS = {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/mig.capable": "true",
}


def mig(resource: str, profile: str, count: int, *numbers: int) -> dict[str, str]:
    """The labels of one profile: memory, multiprocessors, slices, then engines in GFD's order."""
    names = (
        *("memory", "multiprocessors", "slices.gi", "slices.ci", "engines.copy"),
        *("engines.decoder", "engines.encoder", "engines.jpeg", "engines.ofa"),
    )
    return {
        f"{resource}.count": str(count),
        f"{resource}.product": f"NVIDIA-A100-SXM4-40GB-MIG-{profile}",
        f"{resource}.replicas": "1",
        f"{resource}.sharing-strategy": "none",
        **{f"{resource}.{name}": str(number) for name, number in zip(names, numbers, strict=True)},
    }


MIG_MIXED = {
    **mig("nvidia.com/mig-3g.20gb", "3g.20gb", 2, 19968, 42, 3, 3, 3, 2, 0, 0, 0),
    **mig("nvidia.com/mig-2g.10gb", "2g.10gb", 2, 9856, 28, 2, 2, 2, 1, 0, 0, 0),
    **mig("nvidia.com/mig-1g.5gb", "1g.5gb", 4, 4864, 14, 1, 1, 1, 0, 0, 0, 0),
}


def machine(profile: str) -> tuple[AllocatableDevice, ...]:
    context = BackendContext(NodeName("node-1"), {"profile": profile})
    return load_backend("simulated", context).scan().devices


def gpu(name: str = "gpu-0", **attributes: Any) -> AllocatableDevice:
    return found_device(name, f"uuid-{name}", {"vendor": "nvidia", "type": "gpu", **attributes})


def test_a_node_with_whole_gpus() -> None:
    assert gfd_labels(machine("h100x8"), GfdRules()) == VERSIONS | H100


def test_a_node_with_mig_devices_of_several_profiles() -> None:
    assert gfd_labels(machine("a100-mig"), GfdRules()) == VERSIONS | MIG_GPUS | MIG_MIXED


def test_a_node_with_small_gpus() -> None:
    assert gfd_labels(machine("t4x2"), GfdRules("none")) == {
        **{name: value for name, value in VERSIONS.items() if name != "nvidia.com/mig.strategy"},
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.family": "turing",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
    }


@pytest.mark.parametrize("profile", ["mi300x8", "b580x2", "gaudi3x8", "example"])
def test_devices_of_others_get_none(profile: str) -> None:
    assert gfd_labels(machine(profile), GfdRules()) == {}


def test_beside_devices_of_others_only_nvidias_count() -> None:
    labels = gfd_labels(machine("mixed"), GfdRules())
    assert labels == VERSIONS | H100 | {"nvidia.com/gpu.count": "2"}


def test_a_drivers_version_keeps_its_leading_zeros() -> None:
    labels = gfd_labels(machine("v100x1"), GfdRules())
    assert labels["nvidia.com/cuda.driver-version.full"] == "535.183.06"
    assert labels["nvidia.com/cuda.driver-version.revision"] == "06"


def test_gpus_of_one_fabric_name_their_clique() -> None:
    labels = gfd_labels(machine("gb200x4"), GfdRules())
    assert labels["nvidia.com/gpu.clique"] == "4aebda25-c05a-5acf-8c21-7441a0368613.32766"
    two = [gpu("gpu-0", fabricID="a.1"), gpu("gpu-1", fabricID="a.2")]
    assert "nvidia.com/gpu.clique" not in gfd_labels(two, GfdRules())


# Sharing


@pytest.mark.parametrize(
    ("sharing", "product", "strategy", "mps"),
    [
        (Sharing(4, "time-slicing"), "NVIDIA-H100-80GB-HBM3-SHARED", "time-slicing", "false"),
        (Sharing(4, "mps"), "NVIDIA-H100-80GB-HBM3-SHARED", "mps", "true"),
        (Sharing(4, "time-slicing", renamed=True), "NVIDIA-H100-80GB-HBM3", "time-slicing", "false"),
        (Sharing(1, "time-slicing"), "NVIDIA-H100-80GB-HBM3", "none", "false"),
    ],
)  # fmt: skip
def test_shared_gpus(sharing: Sharing, product: str, strategy: str, mps: str) -> None:
    labels = gfd_labels(machine("h100x8"), GfdRules(sharing={"nvidia.com/gpu": sharing}))
    assert labels == VERSIONS | H100 | {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.replicas": str(sharing.replicas),
        "nvidia.com/gpu.sharing-strategy": strategy,
        "nvidia.com/mps.capable": mps,
    }


def test_shared_mig_devices_of_one_profile() -> None:
    rules = GfdRules(sharing={"nvidia.com/mig-1g.5gb": Sharing(2, "mps")})
    assert gfd_labels(machine("a100-mig"), rules) == {
        **VERSIONS,
        **MIG_GPUS,
        **MIG_MIXED,
        "nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED",
        "nvidia.com/mig-1g.5gb.replicas": "2",
        "nvidia.com/mig-1g.5gb.sharing-strategy": "mps",
    }


# The strategies for MIG devices


def test_without_a_strategy_mig_devices_are_not_named() -> None:
    labels = gfd_labels(machine("a100-mig"), GfdRules("none"))
    assert labels == {
        name: value for name, value in (VERSIONS | MIG_GPUS).items() if "strategy" not in name
    } | {"nvidia.com/gpu.sharing-strategy": "none"}


def only(profile: str) -> list[AllocatableDevice]:
    return [one for one in machine("a100-mig") if f"-{profile}-" in one.name]


def test_mig_devices_of_one_profile_stand_for_gpus() -> None:
    assert gfd_labels(only("3g20gb"), GfdRules("single")) == {
        **VERSIONS,
        **MIG_GPUS,
        **mig("nvidia.com/gpu", "3g.20gb", 2, 19968, 42, 3, 3, 3, 2, 0, 0, 0),
        "nvidia.com/mig.strategy": "single",
    }


def test_where_they_cannot_the_product_says_so() -> None:
    invalid = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID",
        "nvidia.com/gpu.count": "0",
        "nvidia.com/gpu.replicas": "0",
        "nvidia.com/gpu.memory": "0",
    }
    for devices in (list(machine("a100-mig")), [*only("3g20gb"), *machine("a100-40x8")]):
        assert invalid.items() <= gfd_labels(devices, GfdRules("single")).items()
    whole = gfd_labels(machine("h100x8"), GfdRules("single"))
    assert whole == VERSIONS | H100 | {"nvidia.com/mig.strategy": "single"}


def test_the_words_of_a_profile_are_those_of_the_device_plugin() -> None:
    part = Hardware("GPU-1", ("gi-1",))
    device = found_device(
        "mig-0",
        "MIG-1",
        {"vendor": "nvidia", "type": "mig", "profile": "1c.2g.10gb+me"},
        {"copyEngines": DeviceCapacity(value="two"), "decoders": DeviceCapacity(value="1")},
        hardware=part,
    )
    labels = gfd_labels([device], GfdRules())
    assert labels["nvidia.com/mig-1c.2g.10gb.me.slices.ci"] == "1"
    assert labels["nvidia.com/mig-1c.2g.10gb.me.slices.gi"] == "2"
    assert labels["nvidia.com/mig-1c.2g.10gb.me.engines.decoder"] == "1"
    assert [name for name in labels if "engines.copy" in name or "memory" in name] == []
    odd = found_device("mig-0", "MIG-1", {"vendor": "nvidia", "type": "mig"}, hardware=part)
    assert [name for name in gfd_labels([odd], GfdRules()) if "slices" in name] == []


def test_a_gpu_counts_once_whether_whole_or_in_partitions() -> None:
    whole = gpu(productName="A", memoryMiB=100)
    same = found_device(
        "mig-0", "m", {"vendor": "nvidia", "type": "mig"}, hardware=Hardware(whole.resource.parent, ("x",))
    )  # fmt: skip
    other = found_device(
        "mig-1", "n", {"vendor": "nvidia", "type": "mig", "productName": "A"}, hardware=Hardware("B", ("x",))
    )  # fmt: skip
    labels = gfd_labels([whole, same, other], GfdRules("none"))
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.replicas"]) == ("2", "1")
    assert labels["nvidia.com/gpu.memory"] == "100"


def test_of_several_models_the_first_one_is_named() -> None:
    devices = [gpu("a", productName="First"), gpu("b", productName="Second"), gpu("c", productName="Second")]  # fmt: skip
    labels = gfd_labels(devices, GfdRules())
    assert (labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.count"]) == ("First", "1")


@pytest.mark.parametrize(
    ("version", "family"),
    [
        ("1.3.0", "tesla"),
        ("2.0.0", "fermi"),
        ("3.7.0", "kepler"),
        ("5.2.0", "maxwell"),
        ("6.1.0", "pascal"),
        ("7.0.0", "volta"),
        ("7.2.0", "volta"),
        ("7.5.0", "turing"),
        ("8.0.0", "ampere"),
        ("8.6.0", "ampere"),
        ("8.9.0", "ada-lovelace"),
        ("9.0.0", "hopper"),
        ("10.0.0", "blackwell"),
        ("12.1.0", "blackwell"),
        ("13.0.0", "rubin"),
        ("4.0.0", "undefined"),
        ("99.0.0", "undefined"),
    ],
)
def test_the_family_follows_from_the_compute_capability(version: str, family: str) -> None:
    labels = gfd_labels([gpu(cudaComputeCapability=version)], GfdRules())
    assert labels["nvidia.com/gpu.family"] == family
    assert labels["nvidia.com/gpu.compute.major"] == version.partition(".")[0]


def test_what_no_attribute_says_has_no_label() -> None:
    assert gfd_labels([gpu()], GfdRules("none")) == {
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mps.capable": "false",
    }


@pytest.mark.parametrize("version", ["550", "550.54.15.1", "550.x", ""])
def test_a_version_of_another_form_has_no_label(version: str) -> None:
    device = gpu(driverVersion=version, cudaDriverVersion=version[:3], cudaComputeCapability="x")
    names = gfd_labels([device], GfdRules())
    assert [name for name in names if "cuda" in name or "compute" in name] == []


def test_a_version_of_two_numbers_has_an_empty_revision() -> None:
    labels = gfd_labels([gpu(driverVersion="570.86")], GfdRules())
    assert labels["nvidia.com/cuda.driver.rev"] == ""
    assert labels["nvidia.com/cuda.driver-version.full"] == "570.86"
