# SPDX-License-Identifier: Apache-2.0
"""The machines of the Kubernetes project's example driver: GPUs, network cards and NUMA nodes with CPUs.

The simulated backend plays them with the profile `example`, so that a manifest for the example driver runs with this driver too, if the
driver has the name that the manifest expects (`--driver-name gpu.example.com`). Names of devices, attributes, capacities and counters
are those of the example driver; docs/example-driver.md shows its demos.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    NodeAllocatableMapping,
    NodeAllocatableResource,
)
from dra_driver.model.device import AllocatableDevice, AttributeValue, Version, attributes
from dra_driver.model.health import Health
from dra_driver.model.lease import Hardware

NAMESPACE = uuid.UUID("6f1c0c1e-7d0b-4c55-9f7e-0d4a3a6f2b11")
"""Of the UUIDs of all simulated devices."""
GPU_GIBIBYTES = 80
GPU_COMPUTE = 100
BINDING_CONDITION = "BindingConditions"
BINDING_FAILURE_CONDITION = "BindingFailureConditions"
_VERSION = Version("1.0.0")


class ExampleOptions(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """What the profile `example` plays, as the options of the example driver say it."""

    profile: Annotated[
        Literal["gpu", "net", "cpu"], Meta(description="GPUs, network cards, or NUMA nodes.")
    ] = "gpu"
    devices: Annotated[int, Meta(ge=1, le=128, description="How many devices there are.")] = 8
    partitions: Annotated[
        int, Meta(ge=0, le=16, description="Partitions of each GPU; 0: only whole GPUs.")
    ] = 0
    multiple_allocations: Annotated[
        bool, Meta(description="Several claims can have shares of one GPU.")
    ] = False
    binding_conditions: Annotated[
        bool, Meta(description="A pod is bound only when each of its GPUs has a condition.")
    ] = False
    binding_controller: Annotated[
        bool, Meta(description="With bindingConditions: the driver itself sets the condition.")
    ] = True
    cpus_per_numa_node: Annotated[
        int, Meta(ge=1, le=1024, description="How many CPUs each NUMA node has.")
    ] = 4

    def __post_init__(self) -> None:
        gpu_only = {
            "partitions": self.partitions,
            "multipleAllocations": self.multiple_allocations,
            "bindingConditions": self.binding_conditions,
        }
        stray = [name for name, value in gpu_only.items() if value and self.profile != "gpu"]
        if stray:
            raise ValueError(
                f"{', '.join(stray)}: only for profile gpu; remove it from profile {self.profile}"
            )


class Machine(Struct, frozen=True):
    """The devices of one machine, and the counters that they consume."""

    devices: tuple[AllocatableDevice, ...]
    counter_sets: tuple[CounterSet, ...] = ()


def machine(options: ExampleOptions, node_name: str, driver_name: str, health: Health) -> Machine:
    """Return the machine that the options describe."""
    match options.profile:
        case "net":
            devices = (_nic(index, node_name, health) for index in range(options.devices))
            return Machine(tuple(devices))
        case "cpu":
            amount, key = options.cpus_per_numa_node, cpu_capacity(driver_name)
            return Machine(
                tuple(
                    _numa_node(index, key, amount, node_name, health)
                    for index in range(options.devices)
                )
            )
        case _:
            return _gpus(options, node_name, health)


def cpu_capacity(driver_name: str) -> str:
    """The name of the capacity with a NUMA node's CPUs. It has the driver's domain, because claims must write it as it is published."""
    return f"{driver_name}/cpu" if driver_name else "cpu"


def _gpus(options: ExampleOptions, node_name: str, health: Health) -> Machine:
    whole = [_gpu(index, node_name, health, options) for index in range(options.devices)]
    if not options.partitions:
        return Machine(tuple(whole))
    divided = (one for device in whole for one in _divided(device, options))
    return Machine(tuple(divided), tuple(_counter_set(device) for device in whole))


def _gpu(index: int, node_name: str, health: Health, options: ExampleOptions) -> AllocatableDevice:
    identity = _identity("gpu", f"{node_name}/{index}")
    said = _said(index, identity, "LATEST-GPU-MODEL")
    both = {"memory": GPU_GIBIBYTES, "compute": GPU_COMPUTE}
    device = Device(
        name=f"gpu-{index}",
        attributes=attributes(said),
        capacity=_gpu_capacity(
            both["memory"], both["compute"], shared=options.multiple_allocations
        ),
        allow_multiple_allocations=options.multiple_allocations or None,
    )
    if options.binding_conditions:
        device = structs.replace(
            device,
            binding_conditions=[BINDING_CONDITION],
            binding_failure_conditions=[BINDING_FAILURE_CONDITION],
            binds_to_node=True,
        )
    binds = options.binding_conditions and options.binding_controller
    told = _told(device.attributes)
    return AllocatableDevice(device, identity, health, binds=binds, status_data=told)


def _divided(gpu: AllocatableDevice, options: ExampleOptions) -> Iterator[AllocatableDevice]:
    """Yield the partitions of a GPU, and the whole of it, which excludes them."""
    shared, count = options.multiple_allocations, options.partitions
    memory, compute = GPU_GIBIBYTES // count, GPU_COMPUTE // count
    for number in range(count):
        name = f"{gpu.name}-partition-{number}"
        identity = _identity("gpu", f"{gpu.uuid}/{number}")
        said: Mapping[str, AttributeValue] = {
            "uuid": identity,
            "partition": number,
            "partitionable": True,
        }
        api = _with(gpu.api, name, said, _consumed(gpu, memory, compute))
        api = structs.replace(api, capacity=_gpu_capacity(memory, compute, shared=shared))
        told = _told(api.attributes)
        hardware = Hardware(gpu.uuid, (f"partition-{number}",), f"1/{count}")
        yield replace(gpu, api=api, uuid=identity, hardware=hardware, status_data=told)
    said = {"partitionable": True, "full": True}
    api = _with(gpu.api, f"{gpu.name}-full", said, _consumed(gpu, GPU_GIBIBYTES, GPU_COMPUTE))
    yield replace(gpu, api=api, hardware=Hardware(gpu.uuid))


def _with(
    device: Device,
    name: str,
    said: Mapping[str, AttributeValue],
    consumed: DeviceCounterConsumption,
) -> Device:
    everything = {**(device.attributes or {}), **attributes(said)}
    return structs.replace(device, name=name, attributes=everything, consumes_counters=[consumed])


def _counters(memory: int, compute: int) -> dict[str, Counter]:
    return {"memory": Counter(value=f"{memory}Gi"), "compute": Counter(value=str(compute))}


def _counter_set(gpu: AllocatableDevice) -> CounterSet:
    counters = _counters(GPU_GIBIBYTES, GPU_COMPUTE)
    return CounterSet(name=f"{gpu.name}-counters", counters=counters)


def _consumed(gpu: AllocatableDevice, memory: int, compute: int) -> DeviceCounterConsumption:
    counters = _counters(memory, compute)
    return DeviceCounterConsumption(counter_set=f"{gpu.name}-counters", counters=counters)


def _gpu_capacity(memory: int, compute: int, *, shared: bool) -> dict[str, DeviceCapacity]:
    """With `shared`, a claim that names no amount gets all of it."""
    amounts = {"memory": (f"{memory}Gi", "1Gi"), "compute": (str(compute), "1")}
    return {
        name: DeviceCapacity(
            value=all_of_it,
            request_policy=_range(all_of_it, step, step, all_of_it) if shared else None,
        )
        for name, (all_of_it, step) in amounts.items()
    }


def _range(default: str, least: str, step: str, most: str) -> CapacityRequestPolicy:
    valid = CapacityRequestPolicyRange(min=least, max=most, step=step)
    return CapacityRequestPolicy(default=default, valid_range=valid)


def _nic(index: int, node_name: str, health: Health) -> AllocatableDevice:
    identity = _identity("net", f"{node_name}/{index}")
    one = CapacityRequestPolicy(default="1", valid_values=["1"])
    bandwidth = DeviceCapacity(
        value="100G", request_policy=_range(default="1G", least="100M", step="1M", most="100G")
    )
    device = Device(
        name=f"nic-{index}",
        attributes=attributes(_said(index, identity, "LATEST-NET-MODEL")),
        capacity={
            "vfs": DeviceCapacity(value="100", request_policy=one),
            "ingressBandwidth": bandwidth,
            "egressBandwidth": bandwidth,
        },
        allow_multiple_allocations=True,
    )
    return AllocatableDevice(device, identity, health)


def _numa_node(
    index: int, capacity: str, cpus: int, node_name: str, health: Health
) -> AllocatableDevice:
    mapping = NodeAllocatableMapping(capacity_key=capacity, capacity_multiplier="1")
    device = Device(
        name=f"numa-{index}",
        attributes=attributes({"numaNodeID": index}),
        capacity={capacity: DeviceCapacity(value=str(cpus))},
        allow_multiple_allocations=True,
        node_allocatable_resources={"cpu": NodeAllocatableResource(mapping=mapping)},
    )
    return AllocatableDevice(device, _identity("numa", f"{node_name}/{index}"), health)


def _said(index: int, identity: str, model: str) -> dict[str, AttributeValue]:
    return {"index": index, "uuid": identity, "model": model, "driverVersion": _VERSION}


def _told(said: Mapping[str, DeviceAttribute] | None) -> Mapping[str, object]:
    """What a claim's status.devices says of a GPU: some attributes, as they are in the slice."""
    names = ("uuid", "model", "driverVersion")
    return {name: msgspec.to_builtins((said or {})[name]) for name in names}


def _identity(kind: str, seed: str) -> str:
    """A UUID that is the same after a restart."""
    seed = seed if kind == "gpu" else f"{kind} {seed}"
    return f"{kind}-{uuid.uuid5(NAMESPACE, seed)}"
