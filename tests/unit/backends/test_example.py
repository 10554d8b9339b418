# SPDX-License-Identifier: Apache-2.0
"""The simulated machines of the example driver have the names, sizes and policies that its manifests ask for."""

from typing import Any

import msgspec
import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.backends.simulated_config import GPU, GPU_OF_LATER_RELEASES, LABEL, NET
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.decoding import Mistake, decode
from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.planning.slices import plan_pool

DRIVER = "gpu.example.com"
RANGES = {
    "memory": {"min": "1Gi", "max": "80Gi", "step": "1Gi"},
    "compute": {"min": "1", "max": "100", "step": "1"},
}


def backend(**options: Any) -> SimulatedBackend:
    given, mistakes = decode({"profile": "example", "example": options}, SimulatedOptions)
    assert given is not None, mistakes
    return SimulatedBackend(BackendContext("node-1", given, DRIVER))


def scan(**options: Any) -> Inventory:
    return backend(**options).scan()


def said(device: AllocatableDevice) -> dict[str, object]:
    return {name: plain(value) for name, value in (device.api.attributes or {}).items()}


def builtins(device: AllocatableDevice) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(device.api)
    return made


def test_without_options_it_plays_eight_whole_gpus():
    bare, mistakes = decode({"profile": "example"}, SimulatedOptions)
    assert bare is not None, mistakes
    assert SimulatedBackend(BackendContext("node-1", bare)).scan() == scan()
    found = scan()
    assert [device.name for device in found.devices] == [f"gpu-{index}" for index in range(8)]
    assert found.counter_sets == ()
    first = found.devices[0]
    assert first.uuid.startswith("gpu-")
    assert first.api == Device(
        name="gpu-0", attributes=first.api.attributes, capacity=first.api.capacity
    )
    assert said(first) == {
        "index": 0,
        "uuid": first.uuid,
        "model": "LATEST-GPU-MODEL",
        "driverVersion": "1.0.0",
    }
    assert builtins(first)["capacity"] == {"memory": {"value": "80Gi"}, "compute": {"value": "100"}}


def test_it_has_as_many_devices_as_are_asked_for():
    assert [device.name for device in scan(devices=2).devices] == ["gpu-0", "gpu-1"]


def test_a_partitioned_gpu_is_there_as_a_whole_and_as_its_partitions():
    found = scan(devices=1, partitions=4)
    names = [f"gpu-0-partition-{number}" for number in range(4)]
    assert [device.name for device in found.devices] == [*names, "gpu-0-full"]
    assert msgspec.to_builtins(list(found.counter_sets)) == [
        {
            "name": "gpu-0-counters",
            "counters": {"memory": {"value": "80Gi"}, "compute": {"value": "100"}},
        }
    ]
    part, whole = found.devices[1], found.devices[-1]
    assert builtins(part)["capacity"] == {"memory": {"value": "20Gi"}, "compute": {"value": "25"}}
    assert builtins(part)["consumesCounters"] == [
        {
            "counterSet": "gpu-0-counters",
            "counters": {"memory": {"value": "20Gi"}, "compute": {"value": "25"}},
        }
    ]
    assert builtins(whole)["consumesCounters"][0]["counters"] == {
        "memory": {"value": "80Gi"},
        "compute": {"value": "100"},
    }


def test_a_partition_and_its_gpu_say_what_they_are():
    found = scan(devices=1, partitions=2)
    first, second, whole = found.devices
    assert len({first.uuid, second.uuid, whole.uuid}) == 3
    assert said(second) == {
        "index": 0,
        "uuid": second.uuid,
        "model": "LATEST-GPU-MODEL",
        "driverVersion": "1.0.0",
        "partition": 1,
        "partitionable": True,
    }
    assert said(whole).items() >= {"full": True, "partitionable": True}.items()
    assert whole.uuid == scan(devices=1).devices[0].uuid
    assert whole.resource == Hardware(whole.uuid)
    assert second.resource == Hardware(whole.uuid, ("partition-1",), "1/2")


def test_a_gpu_for_several_claims_has_ranges_for_what_they_ask():
    (gpu,) = scan(devices=1, multipleAllocations=True).devices
    assert gpu.api.allow_multiple_allocations is True
    policies = {name: one["requestPolicy"] for name, one in builtins(gpu)["capacity"].items()}
    assert policies == {
        name: {"default": wide["max"], "validRange": wide} for name, wide in RANGES.items()
    }


def test_a_partition_for_several_claims_has_the_range_of_its_size():
    first = scan(devices=1, multipleAllocations=True, partitions=4).devices[0]
    assert builtins(first)["capacity"]["memory"]["requestPolicy"] == {
        "default": "20Gi",
        "validRange": {"min": "1Gi", "max": "20Gi", "step": "1Gi"},
    }


@pytest.mark.parametrize("controller", [True, False])
def test_a_gpu_that_waits_to_be_bound_names_its_conditions(controller: bool):
    (gpu,) = scan(devices=1, bindingConditions=True, bindingController=controller).devices
    assert gpu.api.binding_conditions == ["BindingConditions"]
    assert gpu.api.binding_failure_conditions == ["BindingFailureConditions"]
    assert gpu.api.binds_to_node is True
    assert gpu.binds is controller


def test_the_driver_binds_nothing_that_needs_no_binding():
    (gpu,) = scan(devices=1).devices
    assert gpu.binds is False


def test_the_status_of_a_claim_says_what_the_example_driver_says():
    for gpu in scan(devices=1, partitions=2).devices:
        assert gpu.status_data == {
            "uuid": {"string": gpu.uuid},
            "model": {"string": "LATEST-GPU-MODEL"},
            "driverVersion": {"version": "1.0.0"},
        }


def test_network_cards_have_bandwidth_for_several_claims():
    found = scan(profile="net", devices=2)
    assert [device.name for device in found.devices] == ["nic-0", "nic-1"]
    card = found.devices[1]
    assert card.uuid.startswith("net-")
    assert said(card) == {
        "index": 1,
        "uuid": card.uuid,
        "model": "LATEST-NET-MODEL",
        "driverVersion": "1.0.0",
    }
    bandwidth = {
        "value": "100G",
        "requestPolicy": {
            "default": "1G",
            "validRange": {"min": "100M", "max": "100G", "step": "1M"},
        },
    }
    assert builtins(card)["capacity"] == {
        "vfs": {"value": "100", "requestPolicy": {"default": "1", "validValues": ["1"]}},
        "ingressBandwidth": bandwidth,
        "egressBandwidth": bandwidth,
    }
    assert card.api.allow_multiple_allocations is True


def test_numa_nodes_have_cpus_of_the_node():
    found = scan(profile="cpu", devices=2, cpusPerNumaNode=6)
    assert [device.name for device in found.devices] == ["numa-0", "numa-1"]
    node = found.devices[1]
    assert said(node) == {"numaNodeID": 1}
    assert builtins(node)["capacity"] == {"gpu.example.com/cpu": {"value": "6"}}
    assert builtins(node)["nodeAllocatableResources"] == {
        "cpu": {"mapping": {"capacityKey": "gpu.example.com/cpu", "capacityMultiplier": "1"}}
    }
    assert node.api.allow_multiple_allocations is True


def test_each_profile_reads_its_own_configuration():
    assert backend().config_kinds == (LABEL, GPU, GPU_OF_LATER_RELEASES)
    assert backend(profile="net").config_kinds == (NET,)
    assert backend(profile="cpu").config_kinds == ()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"partitions": 3},
        {"partitions": 16, "multipleAllocations": True},
        {"multipleAllocations": True, "bindingConditions": True},
        {"profile": "net"},
        {"profile": "cpu"},
        {"devices": 128, "partitions": 4},
    ],
)
def test_everything_is_within_the_apis_limits(options: dict[str, Any]):
    found = scan(**options)
    planned = plan_pool(found, kept=())
    assert planned.problems == ()
    published = [device.name for one in planned.slices for device in one.devices or ()]
    assert sorted(published) == sorted(device.name for device in found.devices)


def test_names_and_uuids_are_the_same_after_a_restart():
    for options in ({"partitions": 2}, {"profile": "net"}, {"profile": "cpu"}):
        assert scan(**options) == scan(**options)
        uuids = [device.uuid for device in scan(**options).devices]
        assert len(set(uuids)) == len(uuids)


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (
            {"profile": "h100x8", "example": {}},
            Mistake("", "example has options for profile example; remove them from profile h100x8"),
        ),
        (
            {"profile": "example", "example": {"profile": "net", "partitions": 2}},
            Mistake("example", "partitions: only for profile gpu; remove it from profile net"),
        ),
    ],
)
def test_options_of_another_profile_are_refused(options: dict[str, Any], mistake: Mistake):
    assert decode(options, SimulatedOptions) == (None, (mistake,))
