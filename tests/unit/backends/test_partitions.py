# SPDX-License-Identifier: Apache-2.0
"""GPUs and all their partitions: what is published, and what the scheduler makes of it."""

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.partitions import MEMORY_SLICES, MIG_80GB, TYPE_ATTRIBUTE, divide, places
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.model.api.resource_slice import Counter
from dra_driver.model.device import plain
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.planning.slices import PoolPlan, plan_pool
from dra_driver.planning.unrestricted import ServerRules

DRIVER = "gpu.dra-driver.dev"


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    gpus = SimulatedBackend(BackendContext("node-1", SimulatedOptions(profile="h100x8"))).scan()
    devices, sets = divide(gpus.devices[:2], MIG_80GB)
    return Inventory(devices, counter_sets=sets, partition_type_attribute=TYPE_ATTRIBUTE)


def plan_of(inventory: Inventory, minor: int = 37) -> PoolPlan:
    return plan_pool(inventory, kept=(), driver=DRIVER, rules=ServerRules(minor))


def test_each_gpu_is_there_as_a_whole_and_as_18_partitions(inventory: Inventory):
    assert len(list(places(MIG_80GB))) == 18
    assert [device.name for device in inventory.devices[:3]] == [
        "gpu-0",
        "gpu-0-mig-1g-10gb-0",
        "gpu-0-mig-1g-10gb-1",
    ]
    assert len(inventory.by_name) == 2 * 19
    assert len({device.uuid for device in inventory.devices}) == 2 * 19


@pytest.mark.parametrize(("minor", "slices"), [(37, 2), (34, 1)])
def test_everything_is_published_as_it_is(inventory: Inventory, minor: int, slices: int):
    plan = plan_of(inventory, minor)
    assert (len(plan.slices), plan.problems) == (slices, ())
    assert plan.devices == {device.name: device.api for device in inventory.devices}
    assert plan.slices[0].partition_type_attribute == f"{DRIVER}/profile"


def test_the_whole_device_consumes_its_whole_counter_set(inventory: Inventory):
    whole = inventory.devices[0].api
    (consumed,) = whole.consumes_counters or ()
    counters = inventory.counter_sets[0]
    assert (consumed.counter_set, consumed.counters) == (counters.name, counters.counters)
    assert counters.name == "gpu-0-counter-set"
    assert (counters.counters or {}).keys() == {
        "memory",
        "multiprocessors",
        "copy-engines",
        *(f"memory-slice-{number}" for number in range(MEMORY_SLICES)),
    }


def test_a_partition_names_its_kind_its_gpu_and_what_it_takes(inventory: Inventory):
    part = inventory.by_name["gpu-1-mig-2g-20gb-4"].api  # type: ignore[index]
    gpu = inventory.by_name["gpu-1"]  # type: ignore[index]
    said = {name: plain(value) for name, value in (part.attributes or {}).items()}
    assert said["profile"] == "2g.20gb"
    assert said["parentUUID"] == gpu.uuid
    assert said["memoryMiB"] == 20388
    assert (said["type"], said["productName"]) == ("mig", "NVIDIA H100 80GB HBM3")
    assert said["resource.kubernetes.io/pciBusID"] == "0000:1b:00.0"
    assert not said.keys() & {"index", "minor"}
    sizes = {name: size.value for name, size in (part.capacity or {}).items()}
    assert sizes == {"memory": "20388Mi", "multiprocessors": "32", "copyEngines": "2"}
    (consumed,) = part.consumes_counters or ()
    assert consumed.counter_set == "gpu-1-counter-set"
    assert consumed.counters == {
        "memory": Counter(value="20388Mi"),
        "multiprocessors": Counter(value="32"),
        "copy-engines": Counter(value="2"),
        "memory-slice-4": Counter(value="1"),
        "memory-slice-5": Counter(value="1"),
    }


def test_a_device_without_a_size_has_partitions_without_memory():
    gpus = SimulatedBackend(BackendContext("node-1", SimulatedOptions(profile="example"))).scan()
    devices, _ = divide(gpus.devices[:1], MIG_80GB)
    assert {str((part.api.capacity or {})["memory"].value) for part in devices[1:]} == {"0"}


def test_a_partition_occupies_its_memory_slices_of_the_gpu(inventory: Inventory):
    whole, part = inventory.devices[0], inventory.by_name["gpu-0-mig-2g-20gb-4"]
    assert whole.resource == Hardware(whole.uuid)
    assert part.resource == Hardware(whole.uuid, ("memory-slice-4", "memory-slice-5"), "2g.20gb")
