# SPDX-License-Identifier: Apache-2.0
"""The names of the vendors' own plugins, on machines of each vendor."""

from typing import Any

import pytest

from dra_driver.backends.partitions import MIG_80GB, divide
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy, ResourceRule
from dra_driver.planning.plugin.customary import is_customary
from dra_driver.planning.plugin.resources import Resources
from dra_driver.testing.builders import A_DRIVER
from tests.support.plugin_values import a_gpu, gpus, offered, plan_resources, recorded, simulated

NONE, SINGLE, MIXED = MigStrategy.NONE, MigStrategy.SINGLE, MigStrategy.MIXED
GPUS = [f"gpu-{index}" for index in range(8)]


def plan(inventory: Inventory, strategy: MigStrategy | None = None, **policy: Any) -> Resources:
    chosen = PluginPolicy(mig_strategy=strategy, **policy)
    return plan_resources(
        inventory, (), driver=A_DRIVER, domain="a.b", policy=chosen, customary=True
    )


def names(found: Resources) -> dict[str, list[str]]:
    assert found.problems == ()
    return offered(found.resources)


def said(found: Resources) -> list[str]:
    assert found.resources == ()
    return list(map(str, found.problems))


@pytest.mark.parametrize("strategy", [None, NONE, SINGLE, MIXED])
@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("h100x8", {"nvidia.com/gpu": GPUS}),
        ("gb10", {"nvidia.com/gpu": GPUS[:1]}),
        ("mi300x8", {"amd.com/gpu": GPUS}),
        ("b580x2", {"gpu.intel.com/xe": GPUS[:2]}),
        ("gaudi3x8", {"habana.ai/gaudi": GPUS}),
        (
            "mixed",
            {
                "nvidia.com/gpu": GPUS[:4],
                "amd.com/gpu": ["gpu-4"],
                "gpu.intel.com/xe": ["gpu-5"],
            },
        ),
    ],
)
def test_whole_devices_have_the_name_of_their_vendor(
    profile: str, expected: dict[str, list[str]], strategy: MigStrategy | None
) -> None:
    assert names(plan(simulated(profile), strategy)) == expected


def test_the_source_says_where_a_resource_comes_from() -> None:
    (resource,) = plan(simulated("gb10")).resources
    assert resource.source == "customary name for vendor nvidia"


def test_mixed_gives_each_profile_its_name() -> None:
    cards = ("gpu-0", "gpu-1")
    assert names(plan(simulated("a100-mig"), MIXED)) == {
        "nvidia.com/mig-3g.20gb": [f"{card}-mig-3g20gb-9-4" for card in cards],
        "nvidia.com/mig-2g.10gb": [f"{card}-mig-2g10gb-14-0" for card in cards],
        "nvidia.com/mig-1g.5gb": [f"{card}-mig-1g5gb-19-{at}" for card in cards for at in (2, 3)],
    }
    assert names(plan(recorded("h100-mig"), MIXED)) == {
        "nvidia.com/gpu": ["gpu-0"],
        "nvidia.com/mig-3g.40gb": ["gpu-1-mig-3g40gb-9-4"],
        "nvidia.com/mig-1g.20gb": ["gpu-1-mig-1g20gb-15-0"],
        "nvidia.com/mig-1g.10gb.me": ["gpu-1-mig-1g10gb-me-20-2"],
    }


def part(name: str, profile: str, *, gpu: str = "card", memory: str = "5Gi") -> Any:
    said = {"vendor": "nvidia", "type": "mig", "profile": profile}
    return a_gpu(name, said, memory=memory, hardware=Hardware(gpu, (name,)))


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.5gb+me", "nvidia.com/mig-1g.5gb.me"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb+gfx", "nvidia.com/mig-1g.24gb.gfx"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("1c.3g.20gb", "nvidia.com/mig-1c.3g.20gb"),
    ],
)
def test_a_profile_becomes_a_name_by_the_rule_of_nvidias_plugin(
    profile: str, resource: str
) -> None:
    assert names(plan(gpus(part("part-0", profile)), MIXED)) == {resource: ["part-0"]}
    assert is_customary(resource)


def test_single_calls_equal_parts_gpus() -> None:
    alike = gpus(part("part-0", "1g.5gb"), part("part-1", "1g.5gb", gpu="other"))
    assert names(plan(alike, SINGLE)) == {"nvidia.com/gpu": ["part-0", "part-1"]}


NOT_SINGLE = "; no GPU of NVIDIA is offered; make all GPUs of the node alike, or write mixed"


def test_single_refuses_parts_that_are_not_alike() -> None:
    unlike = gpus(part("part-0", "1g.5gb"), part("part-1", "1g.10gb"), part("part-2", "1g.5gb"))
    assert said(plan(unlike, SINGLE)) == [
        "devicePlugin: migStrategy: with single, all parts of GPUs are of one kind; here are part-0 (1g.5gb), part-1 (1g.10gb)"
        + NOT_SINGLE
    ]
    sizes = gpus(part("part-0", "1g.5gb"), part("part-1", "1g.5gb", memory="6Gi"))
    assert len(said(plan(sizes, SINGLE))) == 1


def test_single_refuses_whole_gpus_beside_parts() -> None:
    assert said(plan(recorded("h100-mig"), SINGLE)) == [
        "devicePlugin: migStrategy: with single, all GPUs of a node are divided or none is; here gpu-0 is whole, and "
        "gpu-1-mig-3g40gb-9-4, gpu-1-mig-1g20gb-15-0, gpu-1-mig-1g10gb-me-20-2 is a part"
        + NOT_SINGLE
    ]


@pytest.mark.parametrize("strategy", [None, NONE])
def test_without_a_strategy_parts_have_no_name_and_that_is_told(
    strategy: MigStrategy | None,
) -> None:
    found = plan(recorded("h100-mig"), strategy)
    assert offered(found.resources) == {"nvidia.com/gpu": ["gpu-0"]}
    assert list(map(str, found.problems)) == [
        (
            "devicePlugin: migStrategy: gpu-1-mig-3g40gb-9-4, gpu-1-mig-1g20gb-15-0, gpu-1-mig-1g10gb-me-20-2: with none, parts of GPUs have "
            "no name; they are not offered; write mixed, or single"
        )
    ]


@pytest.mark.parametrize("strategy", [NONE, SINGLE, MIXED])
def test_parts_that_only_could_be_made_leave_their_gpu_whole(strategy: MigStrategy) -> None:
    gpu = a_gpu("gpu-0", {"vendor": "nvidia", "type": "gpu", "memoryMiB": 81920})
    devices, sets = divide([gpu], MIG_80GB)
    assert len(devices) == 19
    assert names(plan(Inventory(devices, counter_sets=sets), strategy)) == {
        "nvidia.com/gpu": ["gpu-0"]
    }


def amd(name: str, compute: str = "", memory: str = "") -> Any:
    modes = {"computePartition": compute, "memoryPartition": memory}
    said = {"vendor": "amd", **{key: mode for key, mode in modes.items() if mode}}
    return a_gpu(name, said)


def test_partitions_of_amd_have_a_name_each_or_one_for_all() -> None:
    alike = gpus(amd("gpu-0", "CPX", "NPS4"), amd("gpu-1", "CPX", "NPS4"))
    assert names(plan(alike)) == {"amd.com/gpu": ["gpu-0", "gpu-1"]}
    assert names(plan(alike, MIXED)) == {"amd.com/cpx_nps4": ["gpu-0", "gpu-1"]}
    unlike = gpus(amd("gpu-0", "CPX", "NPS4"), amd("gpu-1", "SPX", "NPS1"), amd("gpu-2", "SPX"))
    assert names(plan(unlike, MIXED)) == {
        "amd.com/cpx_nps4": ["gpu-0"],
        "amd.com/spx_nps1": ["gpu-1"],
        "amd.com/gpu": ["gpu-2"],
    }
    assert said(plan(unlike, SINGLE)) == [
        (
            "devicePlugin: migStrategy: without mixed, all GPUs of a node are in one partition mode; here are gpu-2 (no mode), gpu-1 (spx_nps1), "
            "gpu-0 (cpx_nps4); no GPU of AMD is offered; give all GPUs one mode, or write mixed"
        )
    ]


def intel(name: str, **said: str) -> Any:
    return a_gpu(name, {"vendor": "intel", **said})


def test_gpus_of_intel_are_called_by_their_kernel_driver() -> None:
    inventory = gpus(
        intel("gpu-0", architecture="Xe2"),
        intel("gpu-1", architecture="Xe-HPC"),
        intel("gpu-2", architecture="Xe2", kernelDriver="i915"),
        intel("gpu-3", kernelDriver="xe"),
        intel("gpu-4", kernelDriver="vfio-pci"),
    )
    found = plan(inventory, resources=(ResourceRule("anything", "a.b/c"),))
    assert offered(found.resources) == {
        "gpu.intel.com/xe": ["gpu-0", "gpu-3"],
        "gpu.intel.com/i915": ["gpu-1", "gpu-2"],
    }
    assert list(map(str, found.problems)) == [
        "customary names: gpu-4: no vendor's plugin has a name for such a device; it is not offered; write a DeviceClass that selects it"
    ]


def test_a_gpu_for_virtual_machines_has_no_name_that_an_admin_could_choose() -> None:
    rule = ResourceRule("*", "a.b/gpu")
    found = plan(gpus(intel("gpu-0"), intel("gpu-1", kernelDriver="vfio-pci")), resources=(rule,))
    assert offered(found.resources) == {"a.b/gpu": ["gpu-0"]}


def test_devices_without_a_known_vendor_have_no_customary_name() -> None:
    assert said(plan(simulated("example"))) == [
        (
            "customary names: gpu-0, gpu-1, gpu-2 and 5 more: no vendor's plugin has a name for such a device; it is not offered; write a "
            "DeviceClass that selects it"
        )
    ]


def test_the_vendor_may_be_a_qualified_attribute() -> None:
    assert names(plan(gpus(a_gpu("gpu-0", {f"{A_DRIVER}/vendor": "habana"})))) == {
        "habana.ai/gaudi": ["gpu-0"]
    }
    assert said(plan(gpus(a_gpu("gpu-0", {"vendor": 5})))) != []


def test_an_admin_can_choose_other_names_for_products_and_profiles() -> None:
    rules = (
        ResourceRule("H200", "nvidia.com/h200"),
        ResourceRule("H100", "nvidia.com/h100"),
        ResourceRule("1g.*gb", "nvidia.com/small", parts=True),
        ResourceRule("*", "no resource", parts=True),
    )
    found = plan(recorded("h100-mig"), MIXED, resources=rules)
    assert offered(found.resources) == {
        "nvidia.com/h100": ["gpu-0"],
        "nvidia.com/mig-3g.40gb": ["gpu-1-mig-3g40gb-9-4"],
        "nvidia.com/small": ["gpu-1-mig-1g20gb-15-0", "gpu-1-mig-1g10gb-me-20-2"],
    }


def test_a_name_for_hardware_that_is_not_here_is_told_where_there_is_other_hardware() -> None:
    rules = (
        ResourceRule("A100", "nvidia.com/a100"),
        ResourceRule("7g", "nvidia.com/whole", parts=True),
    )
    found = plan(recorded("h100-mig"), MIXED, resources=rules)
    assert list(map(str, found.problems)) == [
        (
            "rule for nvidia.com/a100: pattern: 'A100' fits no product of this node; here are NVIDIA H100 80GB HBM3; no device gets this name; correct the "
            "pattern, or remove the rule, unless other nodes have such devices"
        ),
        (
            "rule for nvidia.com/whole: pattern: '7g' fits no profile of a part of this node; here are 1g.10gb+me, 1g.20gb, 3g.40gb; no device gets this "
            "name; correct the pattern, or remove the rule, unless other nodes have such devices"
        ),
    ]
    assert plan(gpus(), MIXED, resources=rules).problems == ()


@pytest.mark.parametrize(
    ("resource", "known"),
    [
        ("nvidia.com/gpu", True),
        ("amd.com/gpu", True),
        ("amd.com/cpx_nps4", True),
        ("gpu.intel.com/i915", True),
        ("habana.ai/gaudi", True),
        ("nvidia.com/gpus", False),
        ("nvidia.com/gpu.shared", False),
        ("example.com/gpu", False),
    ],
)
def test_customary_names_are_known_on_each_machine(resource: str, known: bool) -> None:
    assert is_customary(resource) is known


def test_a_device_that_can_have_no_customary_name_is_told() -> None:
    odd = gpus(part("part-0", "1g 5gb"), part("part-1", ""), amd("gpu-0", "C/X", "NPS4"))
    assert said(plan(odd, MIXED)) == [
        (
            "customary names: part-0, part-1, gpu-0: no vendor's plugin has a name for such a device; it is not offered; write a DeviceClass "
            "that selects it"
        )
    ]


def test_two_vendors_can_have_one_name_and_one_card_has_one() -> None:
    card = Hardware("card")
    twice = [a_gpu(f"gpu-{index}", {"vendor": "habana"}, hardware=card) for index in (1, 2)]
    inventory = gpus(amd("gpu-0"), *twice)
    rule = ResourceRule("*", "a.b/accelerator")
    found = plan(inventory, resources=(rule,))
    assert names(found) == {"a.b/accelerator": ["gpu-0", "gpu-1"]}
    assert [one.source for one in found.resources] == ["customary name for vendor amd"]
