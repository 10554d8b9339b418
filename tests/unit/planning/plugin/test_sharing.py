# SPDX-License-Identifier: Apache-2.0
"""Devices become several units by the admin's rules, and a rule that is wrong leaves them whole."""

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import ClassSource, PluginResource, Sharing, Unit
from dra_driver.model.plugin_policy import DeviceChoice, MigStrategy, PluginPolicy, SharingRule
from dra_driver.planning.plugin.resources import Resources
from dra_driver.testing.builders import A_DRIVER
from tests.support.plugin_values import (
    OWN,
    a_class,
    a_gpu,
    gpus,
    offered,
    plan_resources,
    simulated,
)

TWO = gpus(
    a_gpu("gpu-0", {"index": 0}, memory="3Gi"), a_gpu("gpu-1", {"index": 1}, memory="2047Mi")
)
GPU = a_class("gpu", resource="a.b/gpu")
SOURCE = "DeviceClass gpu, classes.yaml document 1"
WHOLE = {"a.b/gpu": ["gpu-0", "gpu-1"]}
KEPT = "; the rule is not carried out, and each device is one unit"


def replicas(resource: str = "a.b/gpu", count: int = 2, **more: Any) -> SharingRule:
    return SharingRule(resource, replicas=count, **more)


def memory(resource: str = "a.b/gpu", **more: Any) -> SharingRule:
    return SharingRule(resource, Sharing.MEMORY, **more)


def plan(
    *rules: SharingRule,
    classes: tuple[ClassSource, ...] = (GPU,),
    inventory: Inventory = TWO,
    **policy: Any,
) -> Resources:
    return plan_resources(
        inventory,
        classes,
        driver=A_DRIVER,
        domain="a.b",
        policy=PluginPolicy(sharing=rules, **policy),
        customary=True,
    )


def good(found: Resources) -> dict[str, list[str]]:
    assert found.problems == ()
    return offered(found.resources)


def test_replicas_are_units_of_each_device() -> None:
    found = plan(replicas(refuses_several=True), packed=True)
    units = tuple(
        Unit(f"uuid-{device}::{number}", device, f"replica-{number}")
        for device in ("gpu-0", "gpu-1")
        for number in (0, 1)
    )
    assert found.resources == (
        PluginResource(
            "a.b/gpu",
            units,
            SOURCE,
            Sharing.REPLICAS,
            refuses_several=True,
            packed=True,
        ),
    )
    assert found.classes == {"a.b/gpu": "gpu"}


def test_memory_is_counted_in_whole_gibibytes_under_a_name_of_its_own() -> None:
    found = plan(memory(refuses_several=True))
    amounts = {"memory": "1Gi"}
    units = (
        *(Unit(f"uuid-gpu-0::{at}", "gpu-0", f"memory-{at}", amounts) for at in range(3)),
        Unit("uuid-gpu-1::0", "gpu-1", "memory-0", amounts),
    )
    assert found.resources == (PluginResource("a.b/gpu-memory", units, SOURCE, Sharing.MEMORY),)
    assert found.classes == {"a.b/gpu-memory": "gpu"}


def test_the_rule_for_memory_may_name_what_is_divided_or_what_it_becomes() -> None:
    expected = {"a.b/gpu-memory": ["gpu-0", "gpu-0", "gpu-0", "gpu-1"]}
    assert good(plan(memory("a.b/gpu-memory"))) == expected
    own = a_class("gpu", resource="a.b/gpu-memory")
    assert good(plan(memory("a.b/gpu-memory"), classes=(own,))) == expected
    assert list(good(plan(memory(rename="a.b/vram")))) == ["a.b/vram"]


def test_shares_can_have_another_name() -> None:
    assert good(plan(replicas(rename="a.b/gpu.shared"))) == {
        "a.b/gpu.shared": ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]
    }


def test_without_a_rule_devices_stay_whole() -> None:
    assert good(plan()) == WHOLE
    assert good(plan(SharingRule("a.b/gpu", Sharing.WHOLE), packed=True)) == WHOLE
    other = a_class("other", f"{OWN}.index == 1")
    assert good(plan(replicas(), classes=(other, GPU))) == {
        "a.b/other": ["gpu-1"],
        "a.b/gpu": ["gpu-0", "gpu-0"],
    }


@pytest.mark.parametrize("count", [-1, 0, 1, 1001])
def test_a_number_of_replicas_that_shares_nothing_is_told(count: int) -> None:
    found = plan(replicas(count=count))
    assert offered(found.resources) == WHOLE
    assert list(map(str, found.problems)) == [
        f"sharing of a.b/gpu: replicas: {count} units of a device cannot be; write a number from 2 to 1000{KEPT}"
    ]


def test_a_rule_for_a_resource_that_no_node_has_is_told() -> None:
    found = plan(replicas("a.b/gpus"))
    assert offered(found.resources) == WHOLE
    assert list(map(str, found.problems)) == [
        f"sharing of a.b/gpus: resource: no resource has this name; here are a.b/gpu{KEPT}"
    ]
    assert "here are none;" in str(plan(replicas("x.y/gpu"), classes=()).problems[-1])


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/cpx_nps4"])
def test_one_configuration_can_be_for_nodes_of_many_kinds(resource: str) -> None:
    intel = simulated("b580x2")
    assert good(
        plan(
            replicas(resource), memory("nvidia.com/mig-1g.5gb-memory"), classes=(), inventory=intel
        )
    ) == {"gpu.intel.com/xe": ["gpu-0", "gpu-1"]}
    assert len(plan(replicas(resource), inventory=intel).problems) == 1


def test_a_class_without_devices_here_is_no_mistake_of_the_rule() -> None:
    absent = a_class("absent", "false", resource="a.b/other")
    assert good(plan(replicas("a.b/other"), classes=(absent, GPU))) == WHOLE
    bad = a_class("bad", "wrong", resource="a.b/other")
    assert [one.where for one in plan(replicas("a.b/other"), classes=(bad, GPU)).problems] == [
        "DeviceClass bad, classes.yaml document 1"
    ]


@pytest.mark.parametrize(
    "rules",
    [
        (replicas(), memory()),
        (replicas(), memory("a.b/gpu-memory")),
        (replicas(count=2), replicas(count=3)),
    ],
)
def test_a_resource_that_would_be_shared_in_two_ways_stays_whole(
    rules: tuple[SharingRule, ...],
) -> None:
    found = plan(*rules)
    assert offered(found.resources) == WHOLE
    assert list(map(str, found.problems)) == [
        f"sharing of {rule.resource}: a.b/gpu has 2 rules; write one{KEPT}" for rule in rules
    ]


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ("gpu", "'gpu' has no domain; write <domain>/<name>, such as example.com/gpu"),
        ("a.b/other", "a.b/other is another resource already"),
    ],
)
def test_shares_without_a_good_name_of_their_own_are_not_made(rename: str, said: str) -> None:
    other = a_class("other", f"{OWN}.index == 1")
    found = plan(replicas(rename=rename), classes=(other, GPU))
    assert offered(found.resources) == {"a.b/other": ["gpu-1"], "a.b/gpu": ["gpu-0"]}
    assert list(map(str, found.problems)) == [f"sharing of a.b/gpu: rename: {said}{KEPT}"]


def test_two_resources_cannot_become_one() -> None:
    other = a_class("other", f"{OWN}.index == 1")
    rules = (replicas(rename="a.b/one"), replicas("a.b/other", rename="a.b/one"))
    found = plan(*rules, classes=(other, GPU))
    assert offered(found.resources) == {"a.b/one": ["gpu-1", "gpu-1"], "a.b/gpu": ["gpu-0"]}
    assert len(found.problems) == 1


def test_units_of_memory_can_have_a_name_that_is_too_long() -> None:
    name = f"a.b/{'x' * 60}"
    found = plan(memory(name), classes=(a_class("gpu", resource=name),))
    assert offered(found.resources) == {name: ["gpu-0", "gpu-1"]}
    assert [problem.field for problem in found.problems] == ["rename"]


@pytest.mark.parametrize("size", ["1023Mi", "4097Gi", "0", "-5Gi"])
def test_a_device_that_cannot_be_counted_in_gibibytes_is_not_offered(size: str) -> None:
    inventory = gpus(TWO.devices[0], a_gpu("gpu-1", memory=size))
    found = plan(memory(), inventory=inventory)
    assert offered(found.resources) == {"a.b/gpu-memory": ["gpu-0"] * 3}
    (problem,) = found.problems
    assert problem.where == "device gpu-1"
    assert problem.field == "capacity.memory"
    assert problem.found.endswith(" is not between 1Gi and 4096Gi")
    assert problem.action == (
        "the device is not offered; remove the rule for a.b/gpu, or select the device with another class"
    )


def test_without_any_memory_there_is_no_resource() -> None:
    bare = a_gpu("gpu-0")
    inventory = gpus(replace_api(bare, capacity=None))
    found = plan(memory(), inventory=inventory)
    assert found.resources == ()
    assert [problem.found for problem in found.problems] == ["it has none"]


def replace_api(device: Any, **changes: Any) -> Any:
    return type(device)(structs.replace(device.api, **changes), device.uuid)


def test_some_devices_can_be_shared_and_the_others_stay_whole_under_one_name() -> None:
    found = plan(replicas(devices=DeviceChoice(named=("uuid-gpu-1",))))
    assert found.problems == ()
    (resource,) = found.resources
    assert [unit.id for unit in resource.units] == [
        "uuid-gpu-0",
        "uuid-gpu-1::0",
        "uuid-gpu-1::1",
    ]
    assert resource.sharing is Sharing.REPLICAS


def test_some_devices_can_be_shared_under_another_name() -> None:
    rule = replicas(rename="a.b/gpu.shared", devices=DeviceChoice(count=1))
    assert good(plan(rule)) == {"a.b/gpu": ["gpu-1"], "a.b/gpu.shared": ["gpu-0", "gpu-0"]}
    assert good(plan(memory(devices=DeviceChoice(named=("1",))))) == {
        "a.b/gpu": ["gpu-0"],
        "a.b/gpu-memory": ["gpu-1"],
    }
    assert good(plan(replicas(devices=DeviceChoice()))) == WHOLE


def test_parts_are_named_by_the_index_of_their_gpu_and_their_own() -> None:
    rule = replicas("nvidia.com/mig-1g.5gb", devices=DeviceChoice(named=("1:3", "0:2")))
    found = plan(rule, classes=(), inventory=simulated("a100-mig"), mig_strategy=MigStrategy.MIXED)
    assert good(found)["nvidia.com/mig-1g.5gb"] == [
        "gpu-0-mig-1g5gb-19-2",
        "gpu-0-mig-1g5gb-19-2",
        "gpu-0-mig-1g5gb-19-3",
        "gpu-1-mig-1g5gb-19-2",
        "gpu-1-mig-1g5gb-19-3",
        "gpu-1-mig-1g5gb-19-3",
    ]
    part = a_gpu("part-0", hardware=Hardware("card", ("slice",)))
    beside = gpus(a_gpu("gpu-0"), part)
    chosen = replicas(devices=DeviceChoice(named=("0",)))
    assert good(plan(chosen, inventory=beside)) == {"a.b/gpu": ["gpu-0", "gpu-0", "part-0"]}


def test_each_backend_counts_its_own_gpus() -> None:
    others = [replace(a_gpu(f"amd-{at}", {"index": 0}), backend="amd") for at in range(2)]
    inventory = gpus(*others, *TWO.devices)
    amd = a_class("amd", f"{OWN}.index == 0", resource="a.b/first")
    rules = [
        replicas(name, devices=DeviceChoice(named=("1",))) for name in ("a.b/gpu", "a.b/first")
    ]
    assert good(plan(*rules, classes=(amd, GPU), inventory=inventory)) == {
        "a.b/first": ["amd-0", "amd-1", "amd-1", "gpu-0"],
        "a.b/gpu": ["gpu-1", "gpu-1"],
    }


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (DeviceChoice(count=3), "it is for 3 devices, and the resource has 2 here"),
        (
            DeviceChoice(named=("0", "GPU-9", "2")),
            "the resource has no device 'GPU-9', '2' here",
        ),
        (DeviceChoice(named=("gpu-0",)), "the resource has no device 'gpu-0' here"),
    ],
)
def test_a_choice_of_devices_that_are_not_there_leaves_all_whole(
    choice: DeviceChoice, said: str
) -> None:
    found = plan(replicas(rename="a.b/gpu.shared", devices=choice))
    assert offered(found.resources) == WHOLE
    assert list(map(str, found.problems)) == [f"sharing of a.b/gpu: devices: {said}{KEPT}"]
