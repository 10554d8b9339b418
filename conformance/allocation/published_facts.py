# SPDX-License-Identifier: Apache-2.0
"""Does upstream's allocator allocate from the slices that this driver publishes? One small problem for each feature of a slice.

The slices are made by the driver from an inventory: a GPU with partitions and counters, shares, groups, conditions, taints, lists.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from conformance.allocation.build import (
    DRIVER,
    NODE,
    amount,
    cel,
    claim,
    every,
    exactly,
    problem,
)
from conformance.allocation.counter_facts import GROUPS, PARTS
from dra_driver.backends.base import BackendContext
from dra_driver.backends.partitions import MIG_80GB, TYPE_ATTRIBUTE, divide
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    ResourcePool,
)
from dra_driver.model.device import AllocatableDevice, attributes
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.reconcile import slice_name
from dra_driver.planning.slices import plan_pool, with_times

Json = dict[str, Any]

TAINTS, SHARES, LISTS = ["DRADeviceTaints"], ["DRAConsumableCapacity"], ["DRAListTypeAttributes"]
BINDING = ["DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"]
SKIPS = ["DRAOptionalNodeOperations"]
FIRST_ATTRIBUTES = (
    *("index", "minor", "uuid", "type", "vendor", "productName", "brand", "architecture"),
    *("cudaComputeCapability", "cudaDriverVersion", "driverVersion", "memoryMiB"),
    *(
        "resource.kubernetes.io/pciBusID",
        "resource.kubernetes.io/pcieRoot",
        "resource.kubernetes.io/numaNode",
    ),
)
SINCE = "2026-05-04T03:02:01Z"


def published(inventory: Inventory) -> list[Json]:
    """The slices of the node, as the driver writes them on 1.35 and later."""
    plan = with_times(plan_pool(inventory, kept=(), driver=DRIVER), {}, SINCE)
    if plan.problems:
        raise ValueError(f"the driver leaves out: {', '.join(map(str, plan.problems))}")
    pool = ResourcePool(name=NODE, generation=1, resource_slice_count=len(plan.slices))
    return [
        {
            "metadata": {"name": slice_name(index, DriverName(DRIVER), NodeName(NODE))},
            "spec": msgspec.to_builtins(
                msgspec.structs.replace(content, driver=DRIVER, node_name=NODE, pool=pool)
            ),
        }
        for index, content in enumerate(plan.slices)
    ]


def halved() -> Inventory:
    """A GPU as a whole and as its large partitions."""
    found = SimulatedBackend(BackendContext(NODE, SimulatedOptions(profile="h100x8"))).scan()
    whole = [_with_few_attributes(one) for one in found.devices[:1]]
    large = replace(MIG_80GB, kinds=MIG_80GB.kinds[3:])
    devices, sets = divide(whole, large)
    return Inventory(devices, counter_sets=sets)


def _with_few_attributes(device: AllocatableDevice) -> AllocatableDevice:
    """The device as the first release published it: its allocation does not depend on names that came later."""
    said = device.api.attributes or {}
    kept = {name: one for name, one in said.items() if name in FIRST_ATTRIBUTES}
    return replace(device, api=msgspec.structs.replace(device.api, attributes=kept))


def device(
    name: str, health: HealthStatus = HealthStatus.HEALTHY, **fields: Any
) -> AllocatableDevice:
    """A device that has its name as an attribute."""
    said = attributes({"name": name}) | fields.pop("more", {})
    return AllocatableDevice(
        Device(name=name, attributes=said, **fields), f"uuid-of-{name}", health=Health(health)
    )


def named(request: str, attribute: str, value: str, count: int = 1, **more: Any) -> Json:
    """A request for devices with this value of an attribute."""
    selector = cel(f'device.attributes["{DRIVER}"].{attribute} == "{value}"')
    return exactly(request, count, selectors=[selector], **more)


def of(inventory: Inventory, *claims: Json, **more: Any) -> Json:
    """The problem of allocating these claims on the node."""
    return problem([], *claims, slices=published(inventory), **more)


def partitions() -> Iterator[tuple[str, Json]]:
    """A whole device and its partitions exclude each other."""
    inventory = halved()

    def kind(request: str, value: str, count: int = 1) -> Json:
        return named(request, TYPE_ATTRIBUTE, value, count)

    for what, requests in (
        ("the whole of a published GPU", [kind("a", "whole")]),
        ("both halves of a published GPU", [kind("a", "3g.40gb", 2)]),
        ("three halves of a published GPU", [kind("a", "3g.40gb", 3)]),
        ("a published GPU and a half of it", [kind("a", "whole"), kind("b", "3g.40gb")]),
        ("two kinds of partitions side by side", [kind("a", "4g.40gb"), kind("b", "3g.40gb")]),
        ("all kinds of partitions at once", [every("a")]),
    ):
        yield what, of(inventory, claim(*requests), features=PARTS)
    half = [f"{DRIVER}/{NODE}/gpu-0-mig-3g-40gb-0"]
    for value in ("whole", "3g.40gb", "4g.40gb"):
        yield (
            f"{value} of a published GPU of which a half is in use",
            of(inventory, claim(kind("a", value)), features=PARTS, allocatedDevices=half),
        )


def modes() -> Iterator[tuple[str, Json]]:
    """Devices of one counter set without a common group exclude each other."""

    def mode(name: str, *groups: str) -> AllocatableDevice:
        consumed = DeviceCounterConsumption(
            counter_set="modes",
            counters={"memory": Counter(value="1Gi")},
            compatibility_groups=list(groups),
        )
        return device(name, consumes_counters=[consumed])

    inventory = Inventory(
        (mode("a", "mig"), mode("b", "mps"), mode("c", "mig", "mps")),
        counter_sets=(CounterSet(name="modes", counters={"memory": Counter(value="80Gi")}),),
    )
    for first, second in ("ab", "ac", "bc"):
        wanted = claim(named("one", "name", first), named("two", "name", second))
        yield f"published modes {first} and {second}", of(inventory, wanted, features=GROUPS)


def others() -> Iterator[tuple[str, Json]]:
    """Shares, taints of the driver's own, conditions, lists, and operations that are skipped."""
    policy = CapacityRequestPolicy(default="1Gi", valid_values=["1Gi", "2Gi"])
    size = DeviceCapacity(value="4Gi", request_policy=policy)
    shared = Inventory(
        (device("shared", allow_multiple_allocations=True, capacity={"memory": size}),)
    )
    for share, count in (("1Gi", 4), ("1500Mi", 2), ("2Gi", 3)):
        claims = [claim(amount("a", share), name=f"c{at}") for at in range(count)]
        yield f"{count} shares of {share}", of(shared, *claims, features=SHARES)
    ill = Inventory((device("ill", HealthStatus.UNHEALTHY), device("well")))
    yield "an ill device and a well one", of(ill, claim(exactly("a")), features=TAINTS)
    yield "two devices of which one is ill", of(ill, claim(exactly("a", 2)), features=TAINTS)
    tolerated = [{"key": "gpu.dra-driver.dev/unhealthy", "operator": "Exists"}]
    yield (
        "an ill device for somebody who repairs it",
        of(ill, claim(exactly("a", 2, tolerations=tolerated)), features=TAINTS),
    )
    bound = device("bound", binding_conditions=["a.example.com/ready"], binding_failure_conditions=["a.example.com/failed"], binds_to_node=True)  # fmt: skip
    yield "a device with conditions", of(Inventory((bound,)), claim(exactly("a")), features=BINDING)
    numbers = {"numbers": DeviceAttribute(int_values=[0, 1])}
    alike = Inventory((device("one", more=numbers), device("two", more=numbers)))
    same = {"constraints": [{"requests": [], "matchAttribute": f"{DRIVER}/numbers"}]}
    yield "published lists that match", of(alike, claim(exactly("a", 2), **same), features=LISTS)
    skipped = Inventory((device("one"),), skip_node_operations=("*",))
    yield "a kubelet that can skip nothing", of(skipped, claim(exactly("a")), features=SKIPS)
    skips = {"metadata": {"name": NODE}, "status": {"declaredFeatures": SKIPS}}
    yield (
        "operations that are skipped",
        of(skipped, claim(exactly("a")), features=SKIPS, node=skips),
    )


def facts() -> Iterator[Json]:
    """All of them, each for every implementation that has its features."""
    for group in (partitions, modes, others):
        for sentence, made in group():
            yield made | {"name": sentence}
