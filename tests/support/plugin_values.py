# SPDX-License-Identifier: Apache-2.0
"""Values of the device plugin API in few words: classes, machines, and what a plan offers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from dra_driver.backends.base import BackendContext
from dra_driver.backends.recorded import RecordedBackend, RecordedOptions
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceSelector,
    OpaqueDeviceConfiguration,
)
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.plugin import ClassSource, PluginResource
from dra_driver.model.plugin_policy import PluginPolicy
from dra_driver.model.quantity import Quantity
from dra_driver.planning.plugin.resources import ResourcePlans, Resources
from dra_driver.testing.builders import A_DRIVER
from tests.support.api_values import published

OWN = f'device.attributes["{A_DRIVER}"]'


def a_class(
    name: str,
    *expressions: str,
    resource: str | None = None,
    configs: Iterable[tuple[str, Any]] = (),
    where: str = "classes.yaml document 1",
) -> ClassSource:
    """A class with these selectors; each config is the name of a driver, and its parameters."""
    spec = DeviceClassSpec(
        selectors=[DeviceSelector(cel=CELDeviceSelector(expression=one)) for one in expressions],
        config=[
            DeviceClassConfiguration(
                opaque=OpaqueDeviceConfiguration(driver=driver, parameters=parameters)
            )
            for driver, parameters in configs
        ],
        extended_resource_name=resource,
    )
    return ClassSource(DeviceClass(metadata=ObjectMeta(name=name), spec=spec), where)


def a_gpu(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    uuid: str | None = None,
    memory: str = "80Gi",
    hardware: Hardware | None = None,
    **fields: Any,
) -> AllocatableDevice:
    """A device whose UUID is made of its name; `fields` are those of the API."""
    api = published(name, attributes, {"memory": Quantity.parse(memory)})
    own = f"uuid-{name}" if uuid is None else uuid
    return AllocatableDevice(structs.replace(api, **fields), own, hardware=hardware)


def gpus(*devices: AllocatableDevice, **fields: Any) -> Inventory:
    return Inventory(devices, **fields)


def simulated(profile: str) -> Inventory:
    options = SimulatedOptions(profile=profile)
    return SimulatedBackend(BackendContext("node-1", options)).scan()


def recorded(name: str) -> Inventory:
    return RecordedBackend(BackendContext("node-1", RecordedOptions(file=name))).scan()


def offered(resources: Iterable[PluginResource]) -> dict[str, list[str]]:
    """The devices of each resource, by its name, once for each unit."""
    return {one.name: [unit.device for unit in one.units] for one in resources}


def plan_resources(
    inventory: Inventory,
    classes: Sequence[ClassSource],
    *,
    driver: DriverName,
    domain: str,
    policy: PluginPolicy,
    customary: bool,
) -> Resources:
    """Plan once, with nothing kept from a plan before."""
    plans = ResourcePlans(driver=driver, domain=domain)
    return plans.plan(inventory, classes, policy=policy, customary=customary)
