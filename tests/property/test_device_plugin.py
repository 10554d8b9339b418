# SPDX-License-Identifier: Apache-2.0
"""Whatever classes and rules an admin writes: no hardware is listed twice. Whatever the kubelet asks: it gets so many units."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cel.compile import compile_selector
from dra_driver.model.api.resource_slice import Counter as Amount
from dra_driver.model.api.resource_slice import CounterSet, DeviceCounterConsumption
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import LONGEST_UNIT_ID, Path, PluginResource, Sharing
from dra_driver.model.plugin_policy import (
    DeviceChoice,
    MigStrategy,
    PluginPolicy,
    ResourceRule,
    SharingRule,
)
from dra_driver.model.vocabulary import NUMA_NODE, PCIE_ROOT
from dra_driver.planning.plugin.preferred import prefer
from dra_driver.planning.plugin.resources import Resources
from dra_driver.planning.plugin.sides import sides
from dra_driver.planning.plugin.units import UnitIds
from dra_driver.testing.builders import A_DRIVER
from tests.support.examples import examples
from tests.support.plugin_values import OWN, a_class, a_gpu, plan_resources

# The parser raises Python's recursion limit once, where it is first used: before hypothesis looks at it.
compile_selector("true")

CARD = CounterSet(name="card", counters={"memory": Amount(value="4")})
NAMES = st.sampled_from(
    [
        "a.b/one",
        "a.b/two",
        "a.b/one-memory",
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "amd.com/gpu",
    ]
)


def consumes(amount: int) -> Any:
    if not amount:
        return None
    counters = {"memory": Amount(value=str(amount))}
    return [DeviceCounterConsumption(counter_set="card", counters=counters)]


devices = st.builds(
    lambda said, uuid, memory, hardware, amount: (said, uuid, memory, hardware, amount),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["gpu", "mig"])},
        optional={
            "vendor": st.sampled_from(["nvidia", "amd", "intel", "habana", "other"]),
            "profile": st.sampled_from(["1g.5gb", "1g.5gb+me", "odd one"]),
            "productName": st.sampled_from(["A100", "H100"]),
            "computePartition": st.sampled_from(["SPX", "CPX"]),
            "memoryPartition": st.just("NPS1"),
            "linkIsland": st.sampled_from("ab"),
            NUMA_NODE: st.integers(0, 1),
            PCIE_ROOT: st.sampled_from("xyz"),
        },
    ),
    st.sampled_from(["", "same", "gpu-1", "x" * 62, "a::1", "own-1", "own-2", "own-3"]),
    st.sampled_from(["1Gi", "3Gi", "100Mi", "5000Gi"]),
    st.none()
    | st.builds(
        Hardware,
        st.sampled_from(["card-1", "card-2"]),
        st.lists(st.sampled_from("1234"), unique=True).map(tuple),
    ),
    st.integers(0, 5),
)
inventories = st.lists(devices, max_size=7).map(
    lambda found: Inventory(
        tuple(
            a_gpu(
                f"gpu-{index}",
                said,
                uuid=uuid,
                memory=memory,
                hardware=hardware,
                consumes_counters=consumes(amount),
            )
            for index, (said, uuid, memory, hardware, amount) in enumerate(found)
        ),
        counter_sets=(CARD,),
    )
)
expressions = st.sampled_from(
    ["true", "false", f'{OWN}.type == "gpu"', f'{OWN}.vendor == "nvidia"', "wrong", "1"]
)
classes = st.lists(
    st.builds(
        lambda name, selectors, resource: a_class(name, *selectors, resource=resource),
        st.sampled_from(["one", "two", "three"]),
        st.lists(expressions, max_size=2),
        st.none() | NAMES | st.sampled_from(["bad", "a.b/" + "x" * 63]),
    ),
    max_size=4,
)
choices = st.none() | st.builds(
    DeviceChoice, st.integers(0, 3), st.lists(st.sampled_from(["0", "0:0", "own-1"])).map(tuple)
)
rules = st.builds(
    SharingRule,
    NAMES,
    st.sampled_from(Sharing),
    st.integers(0, 12),
    st.none() | NAMES,
    st.booleans(),
    choices,
)
policies = st.builds(
    PluginPolicy,
    mig_strategy=st.none() | st.sampled_from(MigStrategy),
    sharing=st.lists(rules, max_size=3).map(tuple),
    resources=st.lists(
        st.builds(ResourceRule, st.sampled_from(["*", "A100", "1g"]), NAMES, st.booleans()),
        max_size=2,
    ).map(tuple),
    packed=st.none() | st.booleans(),
)


def plan(inventory: Inventory, some: Any, policy: PluginPolicy) -> Resources:
    return plan_resources(
        inventory, some, driver=A_DRIVER, domain="a.b", policy=policy, customary=True
    )


@examples(300)
@given(inventories, classes, policies)
def test_no_device_is_counted_twice(inventory: Inventory, some: Any, policy: PluginPolicy) -> None:
    found = plan(inventory, some, policy)
    names = Counter(one.name for one in found.resources)
    units = Counter(unit.id for one in found.resources for unit in one.units)
    shares = Counter((unit.device, unit.share) for one in found.resources for unit in one.units)
    assert {*names.values(), *units.values(), *shares.values()} <= {1}
    assert all(len(unit) <= LONGEST_UNIT_ID for unit in units)
    # A device is in one resource, whole or in shares.
    resources = Counter(
        device for one in found.resources for device in {unit.device for unit in one.units}
    )
    assert set(resources.values()) <= {1}
    _no_hardware_twice(inventory, list(resources))
    ids = UnitIds(inventory)
    for one in found.resources:
        for unit in one.units:
            device = ids.device_of(unit.id)
            assert device is not None
            assert device.name == unit.device


def _no_hardware_twice(inventory: Inventory, names: list[Any]) -> None:
    listed = [inventory.by_name[name] for name in names]
    for index, one in enumerate(listed):
        for other in listed[:index]:
            mine, others = one.resource, other.resource
            apart = mine.parts and others.parts and not {*mine.parts} & {*others.parts}
            assert mine.parent != others.parent or apart
    used = [
        int(str(counter.value))
        for one in listed
        for part in one.api.consumes_counters or ()
        for counter in (part.counters or {}).values()
    ]
    assert sum(used) <= 4


@examples(50)
@given(inventories, classes, policies)
def test_a_second_look_at_the_same_node_finds_the_same(
    inventory: Inventory, some: Any, policy: PluginPolicy
) -> None:
    assert plan(inventory, some, policy) == plan(inventory, some, policy)


@examples(200)
@given(
    inventories,
    st.sampled_from(Sharing),
    st.booleans(),
    st.data(),
)
def test_the_kubelet_gets_so_many_units_with_those_that_it_needs(
    inventory: Inventory, sharing: Sharing, packed: bool, data: Any
) -> None:
    rule = SharingRule("a.b/one", sharing, 3)
    chosen = PluginPolicy(sharing=(rule,), packed=packed)
    found = plan(inventory, [a_class("one", resource="a.b/one")], chosen)
    resource = (*found.resources, PluginResource("a.b/one", (), "", sharing))[0]
    known = [unit.id for unit in resource.units] + ["odd", "odd::1", "::", ""]
    available = data.draw(st.lists(st.sampled_from(known), unique=True), "available")
    must = data.draw(
        st.lists(st.sampled_from(available), unique=True) if available else st.just([]), "must"
    )
    size = data.draw(st.integers(len(must), len(available)), "size")
    taken = data.draw(st.lists(st.sampled_from(known)), "taken")
    said = prefer(
        resource, inventory, available=available, must_include=must, size=size, taken=taken
    )
    assert len(said) == len(set(said)) == size
    assert set(must) <= set(said) <= set(available)
    again = prefer(
        resource,
        inventory,
        available=available[::-1],
        must_include=must[::-1],
        size=size,
        taken=taken[::-1],
    )
    assert again == said


paths = st.sampled_from(Path)


@examples(200)
@given(inventories, st.data())
def test_a_free_device_is_never_beside_its_own_hardware_on_the_other_side(
    inventory: Inventory, data: Any
) -> None:
    names = st.sampled_from(list(inventory.by_name) or ["none"])
    wanted = data.draw(st.dictionaries(names, st.none() | paths), "wanted")
    owners = data.draw(st.dictionaries(names, st.frozensets(paths)), "owners")
    found = sides(inventory, wanted, owners)
    for name, path in found.paths.items():
        mine = inventory.by_name[name].resource
        if owners.get(name):
            assert path in owners[name]
            continue
        for other, side in found.paths.items():
            others = inventory.by_name[other].resource
            apart = mine.parts and others.parts and not {*mine.parts} & {*others.parts}
            assert side is path or mine.parent != others.parent or apart
