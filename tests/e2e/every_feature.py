# SPDX-License-Identifier: Apache-2.0
"""A program that publishes a node with every feature of a slice, as the driver does: it prints what was published and left out.

    python tests/e2e/every_feature.py KUBECONFIG NODE

It runs inside the namespaces of the test bed, because the API server's address exists only there. `inventory` is the machine.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dra_driver.config.options import DEFAULT_DRIVER_NAME
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from dra_driver.model.device import AllocatableDevice, attributes
from dra_driver.model.events import DriverEvent, PublicationProblem
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import NodeName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.publish import Publisher
from dra_driver.services.vanished import PublisherInputs

DEADLINE_SECONDS = 60.0


def inventory() -> Inventory:
    """Devices named after the feature that they show."""
    devices = (
        _device("whole", consumes_counters=[_uses("gpu", "80Gi")]),
        _device("half-0", consumes_counters=[_uses("gpu", "40Gi")]),
        _device("half-1", consumes_counters=[_uses("gpu", "40Gi")]),
        _device("mode-a", consumes_counters=[_uses("modes", "1Gi", ["a"])]),
        _device("mode-b", consumes_counters=[_uses("modes", "1Gi", ["b"])]),
        _device("shared", allow_multiple_allocations=True, capacity={"slots": _slots()}),
        _device("ill", health=Health(HealthStatus.UNHEALTHY, "too hot")),
        _device(
            "bound",
            binding_conditions=["example.com/ready"],
            binding_failure_conditions=["example.com/failed"],
            binds_to_node=True,
        ),
        _device("list", numbers=DeviceAttribute(int_values=[0, 1])),
        _device(
            "node-memory",
            node_allocatable_resources={
                "memory": NodeAllocatableResource(overhead=NodeAllocatableOverhead(per_pod="1Mi"))
            },
        ),
    )
    sets = tuple(
        CounterSet(name=name, counters={"memory": Counter(value="80Gi")})
        for name in ("gpu", "modes")
    )
    return Inventory(
        devices,
        counter_sets=sets,
        partition_type_attribute="kind",
        skip_node_operations=("NodeUnprepareResources",),
    )


def _device(
    name: str,
    *,
    health: Health | None = None,
    numbers: DeviceAttribute | None = None,
    **fields: Any,
) -> AllocatableDevice:
    said = attributes({"kind": name.partition("-")[0], "name": name})
    if numbers is not None:
        said["numbers"] = numbers
    healthy = health or Health(HealthStatus.HEALTHY)
    return AllocatableDevice(
        Device(name=name, attributes=said, **fields), f"uuid-of-{name}", health=healthy
    )


def _uses(name: str, memory: str, groups: list[str] | None = None) -> DeviceCounterConsumption:
    counters = {"memory": Counter(value=memory)}
    return DeviceCounterConsumption(
        counter_set=name, counters=counters, compatibility_groups=groups
    )


def _slots() -> DeviceCapacity:
    policy = CapacityRequestPolicy(default="1", valid_values=["1", "2"])
    return DeviceCapacity(value="4", request_policy=policy)


def publish(kubeconfig: Path, node: NodeName) -> dict[str, Any]:
    """Publish the inventory, and wait until the slices are written."""
    told: list[DriverEvent] = []
    kube = HttpKubeApi(connect(kubeconfig), driver=DEFAULT_DRIVER_NAME, node=node)
    inputs = PublisherInputs(inventory, frozenset, lambda _names: None)
    place = NodePlace(DEFAULT_DRIVER_NAME, PoolName(node))
    publisher = Publisher(kube, inputs, place=place, observe=told.append)
    stop = threading.Event()
    threads = [
        threading.Thread(target=work, args=(stop,), daemon=True)
        for work in (publisher.watch, publisher.run)
    ]
    for thread in threads:
        thread.start()
    publisher.published_once.wait(DEADLINE_SECONDS)
    time.sleep(1.0)  # what a second look would change is written by now
    stop.set()
    slices = kube.list_slices().slices
    return {
        "published": publisher.published_once.is_set(),
        "devices": sorted(device.name for one in slices for device in one.devices),
        "problems": {
            event.problem.device: str(event.problem)
            for event in told
            if isinstance(event, PublicationProblem)
        },
        "events": [repr(event) for event in told],
    }


if __name__ == "__main__":
    print(json.dumps(publish(Path(sys.argv[1]), NodeName(sys.argv[2]))))
