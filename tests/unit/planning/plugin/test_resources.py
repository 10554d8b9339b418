# SPDX-License-Identifier: Apache-2.0
"""Which resources a node offers: what classes select, each device once, and a wrong class costs only itself."""

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceSelector
from dra_driver.model.api.resource_slice import Counter, CounterSet, DeviceCounterConsumption
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import ClassSource, PluginResource, Unit
from dra_driver.model.plugin_policy import PluginPolicy
from dra_driver.planning.plugin.problems import ResourceProblem, wrong_resource
from dra_driver.planning.plugin.resources import Resources
from dra_driver.testing.builders import A_DRIVER
from tests.support.plugin_values import OWN, a_class, a_gpu, gpus, offered, plan_resources

DOMAIN = "gpu.example.com"
WHERE = "DeviceClass bad, classes.yaml document 1"
LOST = "the class offers nothing, all others do"
TWO = gpus(a_gpu("gpu-0", {"index": 0}), a_gpu("gpu-1", {"index": 1}))
EVERY = a_class("every")


def plan(inventory: Inventory, *classes: ClassSource, customary: bool = True) -> Resources:
    return plan_resources(
        inventory,
        classes,
        driver=A_DRIVER,
        domain=DOMAIN,
        policy=PluginPolicy(),
        customary=customary,
    )


def test_a_class_offers_the_devices_that_all_its_selectors_select() -> None:
    inventory = gpus(*TWO.devices, a_gpu("gpu-2", {"index": 2}))
    config = {"apiVersion": "v1", "kind": "DeviceConfig"}
    large = a_class(
        "large",
        f"{OWN}.index > 0",
        f"{OWN}.index < 2",
        configs=[("other.example.com", {}), (A_DRIVER, config)],
    )
    assert plan(inventory, large) == Resources(
        (
            PluginResource(
                "gpu.example.com/large",
                (Unit("uuid-gpu-1", "gpu-1"),),
                "DeviceClass large, classes.yaml document 1",
                configs=(OpaqueConfig(1, "FromClass", (), A_DRIVER, config),),
            ),
        ),
        classes={"gpu.example.com/large": "large"},
    )


def test_the_class_can_name_its_resource() -> None:
    found = plan(TWO, a_class("every", resource="nvidia.com/gpu"))
    assert offered(found.resources) == {"nvidia.com/gpu": ["gpu-0", "gpu-1"]}
    assert found.classes == {"nvidia.com/gpu": "every"}


def test_the_source_of_a_class_of_the_cluster_names_it_once() -> None:
    where = "DeviceClass every of the cluster"
    assert [one.source for one in plan(TWO, a_class("every", where=where)).resources] == [where]


def test_a_device_goes_to_the_first_class_that_selects_it() -> None:
    first, rest = a_class("first", f"{OWN}.index == 0"), a_class("rest")
    found = plan(TWO, first, rest)
    assert offered(found.resources) == {
        "gpu.example.com/first": ["gpu-0"],
        "gpu.example.com/rest": ["gpu-1"],
    }
    found = plan(TWO, rest, first)
    assert offered(found.resources) == {"gpu.example.com/rest": ["gpu-0", "gpu-1"]}
    assert found.empty == {"first": "it selects no device of this node that no class before it has"}
    assert found.problems == ()


def test_a_class_sees_the_device_as_it_is_published() -> None:
    """A value that the API server would refuse must not stop a class, and is told."""
    odd = a_gpu("gpu-0", {"version": "x" * 65, "index": 0})
    found = plan(
        gpus(odd), a_class("every", f"!has({OWN}.version) && device.driver == '{A_DRIVER}'")
    )
    assert offered(found.resources) == {"gpu.example.com/every": ["gpu-0"]}
    assert [problem.subject for problem in found.left_out] == ["attribute version"]
    unpublished = plan(gpus(a_gpu("GPU 0")), EVERY)
    assert unpublished.resources == ()
    assert [problem.subject for problem in unpublished.left_out] == ["name"]


def test_the_capacity_is_what_the_scheduler_sees() -> None:
    large = a_class(
        "large", f'device.capacity["{A_DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    )
    found = plan(gpus(a_gpu("gpu-0"), a_gpu("gpu-1", memory="16Gi")), large)
    assert offered(found.resources) == {"gpu.example.com/large": ["gpu-0"]}


@pytest.mark.parametrize(
    ("expression", "found", "advice"),
    [
        ("device.foo", "1:7: undefined field 'foo'", " device has allowMultipleAllocations,"),
        ("1", "must evaluate to bool or the unknown type, not int", ""),
        ("", "1:1: Syntax error: mismatched input '<EOF>' expecting a value,", " Here a value,"),
    ],
)
def test_an_expression_that_does_not_compile_costs_its_class(
    expression: str, found: str, advice: str
) -> None:
    planned = plan(TWO, a_class("bad", "true", expression), EVERY)
    assert offered(planned.resources) == {"gpu.example.com/every": ["gpu-0", "gpu-1"]}
    (problem,) = planned.problems
    assert (problem.where, problem.field) == (WHERE, "spec.selectors[1].cel.expression")
    assert problem.found.startswith(found)
    assert problem.action.startswith(f"{LOST}; correct the expression.{advice}")


def test_a_selector_without_an_expression_is_wrong_too() -> None:
    bad = a_class("bad", "true")
    spec = structs.replace(bad.device_class.spec, selectors=[DeviceSelector()])
    empty = replace(bad, device_class=structs.replace(bad.device_class, spec=spec))
    assert [problem.field for problem in plan(TWO, empty).problems] == [
        "spec.selectors[0].cel.expression"
    ]


def test_an_expression_that_fails_on_a_device_costs_this_device_in_this_class() -> None:
    with_brand = [a_gpu(f"gpu-{index}", {"brand": "a"}) for index in range(2)]
    without = [a_gpu(f"old-{index}") for index in range(5)]
    branded = a_class("bad", f'{OWN}.brand == "a"')
    found = plan(gpus(*with_brand, *without), branded, EVERY)
    assert offered(found.resources) == {
        "gpu.example.com/bad": ["gpu-0", "gpu-1"],
        "gpu.example.com/every": [f"old-{index}" for index in range(5)],
    }
    assert found.problems == (
        ResourceProblem(
            WHERE,
            "spec.selectors[0].cel.expression",
            "fails on devices old-0, old-1, old-2 and 2 more: no such key: brand",
            "the class does not get it, a later class may; on clusters with DRA pods of this class would be stuck. Ask with has() "
            "before an attribute is read that not every device has",
        ),
    )
    assert "fails on device old-0: no" in str(plan(gpus(without[0]), branded).problems[0])


def test_of_two_classes_with_one_resource_the_later_one_is_refused() -> None:
    first = a_class("first", f"{OWN}.index == 0", resource="a.b/gpu")
    found = plan(TWO, first, a_class("bad", resource="a.b/gpu"), EVERY)
    assert offered(found.resources) == {
        "a.b/gpu": ["gpu-0"],
        "gpu.example.com/every": ["gpu-1"],
    }
    assert str(*found.problems) == (
        f"{WHERE}: spec.extendedResourceName: a.b/gpu is the resource of DeviceClass first, classes.yaml document 1 already; "
        f"{LOST}; write another extendedResourceName in one of the two"
    )


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("gpu", "has no domain; write <domain>/<name>, such as example.com/gpu"),
        ("kubernetes.io/gpu", "is in a domain of Kubernetes; write a domain of your own"),
        ("a.kubernetes.io/gpu", "is in a domain of Kubernetes; write a domain of your own"),
        ("requests.a.b/gpu", "begins with 'requests.', as only quotas do; write another domain"),
        (f"{'a' * 245}/gpu", "the domain has 245 characters; write at most 244"),
        (f"a.b/{'x' * 64}", "has 64 characters; write at most 63 after the domain"),
        ("A.b/gpu", "is no name of a resource; write a lower-case DNS name, a slash,"),
        ("a.b/gpu\n", "is no name of a resource; write a lower-case DNS name, a slash,"),
        ("a.b/-gpu", "is no name of a resource; write a lower-case DNS name, a slash,"),
        ("a.b/c/d", "is no name of a resource; write a lower-case DNS name, a slash,"),
    ],
)
def test_a_resource_that_the_kubelet_would_refuse_is_not_offered(resource: str, said: str) -> None:
    (problem,) = plan(TWO, a_class("bad", resource=resource)).problems
    assert (problem.where, problem.field) == (WHERE, "spec.extendedResourceName")
    assert said in problem.found
    assert problem.action == f"{LOST}; write a good name"


def test_the_longest_names_are_good() -> None:
    domain = ".".join(["a" * 60] * 4)
    assert len(domain) == 243
    for name in (f"{domain}a/{'x' * 63}", "nvidia.com/mig-1g.5gb.me", "a/B_c"):
        assert wrong_resource(name) == ""


def test_a_class_whose_own_name_is_too_long_for_a_resource_needs_another() -> None:
    name = "a" * 64
    (problem,) = plan(TWO, a_class(name)).problems
    assert problem.field == "metadata.name"
    assert problem.action == f"{LOST}; write a good name in spec.extendedResourceName"


@pytest.mark.parametrize("parameters", [None, "text", 5])
def test_a_class_is_not_offered_without_its_configuration(parameters: object) -> None:
    bad = a_class("bad", configs=[("other.example.com", None), (A_DRIVER, parameters)])
    assert plan(TWO, bad) == Resources(
        problems=(
            ResourceProblem(
                WHERE,
                "spec.config[1].opaque.parameters",
                f"{parameters!r} is no mapping of fields",
                f"{LOST}; write apiVersion, kind and fields",
            ),
        )
    )


def parts(*numbers: int) -> Hardware:
    return Hardware("card", tuple(f"slice-{number}" for number in numbers))


def partitioned(**fields: Any) -> Inventory:
    """A GPU, and the partitions that could be made of it; all of it is the same hardware."""
    return gpus(
        a_gpu("gpu-0", {"type": "gpu"}, hardware=Hardware("card"), **fields),
        a_gpu("half-0", {"type": "half"}, hardware=parts(0, 1), **fields),
        a_gpu("half-1", {"type": "half"}, hardware=parts(2, 3), **fields),
        a_gpu("part-1", {"type": "part"}, hardware=parts(1), **fields),
        a_gpu("part-2", {"type": "part"}, hardware=parts(4), **fields),
    )


def of_type(name: str) -> ClassSource:
    return a_class(name, f'{OWN}.type == "{name}"')


def test_hardware_is_listed_once_the_first_class_that_gets_some_of_it_counts() -> None:
    found = plan(partitioned(), of_type("part"), of_type("half"), of_type("gpu"))
    assert offered(found.resources) == {
        "gpu.example.com/part": ["part-1", "part-2"],
        "gpu.example.com/half": ["half-1"],
    }
    assert found.empty == {
        "gpu": "it selects gpu-0, and devices of classes before it are the same hardware"
    }
    found = plan(partitioned(), of_type("gpu"), of_type("half"))
    assert offered(found.resources) == {"gpu.example.com/gpu": ["gpu-0"]}
    assert found.empty == {
        "half": "it selects half-0, half-1, and devices of classes before it are the same hardware"
    }


def test_in_one_class_the_first_device_of_the_inventory_counts() -> None:
    assert offered(plan(partitioned(), EVERY).resources) == {"gpu.example.com/every": ["gpu-0"]}


def consuming(name: str, amount: str, kind: str) -> Any:
    counters = {"memory": Counter(value=amount)}
    used = DeviceCounterConsumption(counter_set="card", counters=counters)
    return a_gpu(name, {"type": kind}, consumes_counters=[used])


def test_devices_are_listed_together_only_if_the_counters_allow_all_of_them() -> None:
    """A backend may say by counters alone that devices are the same hardware."""
    card = CounterSet(name="card", counters={"memory": Counter(value="80Gi")})
    inventory = gpus(
        consuming("gpu-0", "80Gi", "gpu"),
        consuming("part-0", "40Gi", "part"),
        consuming("part-1", "40Gi", "part"),
        consuming("part-2", "20Gi", "part"),
        counter_sets=(card,),
    )
    assert offered(plan(inventory, of_type("part"), of_type("gpu")).resources) == {
        "gpu.example.com/part": ["part-0", "part-1"]
    }
    assert offered(plan(inventory, EVERY).resources) == {"gpu.example.com/every": ["gpu-0"]}


def test_a_device_that_waits_for_a_controller_is_not_offered() -> None:
    waits = {"binding_conditions": ["attached"], "binding_failure_conditions": ["failed"]}
    other = a_gpu("gpu-0", **waits)
    own = replace(a_gpu("gpu-1", **waits), binds=True)
    found = plan(gpus(other, own), EVERY)
    assert offered(found.resources) == {"gpu.example.com/every": ["gpu-1"]}
    assert str(*found.problems) == (
        "device gpu-0: bindingConditions: a controller has to set attached for a pod, and this API has no step for that; the device is "
        "not offered through the device plugin API; offer it through DRA"
    )


def test_before_the_first_scan_nothing_is_offered() -> None:
    assert plan(Inventory(scanned=False), EVERY).resources == ()


def test_a_problem_without_a_field_is_a_sentence_too() -> None:
    assert str(ResourceProblem("MIG", "", "is odd", "write less")) == "MIG: is odd; write less"


def test_without_a_class_nothing_is_offered_unless_customary_names_are_wanted() -> None:
    nvidia = gpus(a_gpu("gpu-0", {"vendor": "nvidia"}))
    assert plan(nvidia, customary=False) == Resources()
    assert offered(plan(nvidia).resources) == {"nvidia.com/gpu": ["gpu-0"]}
    assert plan(nvidia).classes == {}


def test_a_class_replaces_all_customary_names_even_a_wrong_one() -> None:
    nvidia = gpus(a_gpu("gpu-0", {"vendor": "nvidia"}))
    assert plan(nvidia, a_class("none", "false")).resources == ()
    assert plan(nvidia, a_class("bad", "wrong")).resources == ()
