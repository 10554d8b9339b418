# SPDX-License-Identifier: Apache-2.0
"""A device as a backend found it: what it is, how big it is, and what a container needs to use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.health import UNCHECKED, Health
from dra_driver.model.ids import DeviceName
from dra_driver.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Version:
    """A version attribute as the hardware reports it.

    The API takes strict semver only. Whether `text` is one is decided before publication
    (`dra_driver.planning.slices`), where a bad one costs this attribute and nothing else.
    """

    text: str


AttributeValue = bool | int | str | Version


@dataclass(frozen=True, slots=True)
class Device:
    """One allocatable device.

    `name` is a DNS label, stable across restarts and reboots: claims are allocated by it. `uuid` identifies the
    hardware and is what containers see. `attributes` and `capacity` are what DeviceClasses and claims select by, under
    bare names (the driver's own domain) or qualified ones ("resource.kubernetes.io/pcieRoot"); they are checked against
    the API's limits when they are published. `edits` is the vendor's part of what a container gets.
    """

    name: DeviceName
    uuid: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    health: Health = UNCHECKED
