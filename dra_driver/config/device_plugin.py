# SPDX-License-Identifier: Apache-2.0
"""The section `devicePlugin` of the config document: what is said about the device plugin API and has structure.

    devicePlugin:
      timeSlicing:
        nvidia.com/gpu: {replicas: 4}
      memoryUnits: [nvidia.com/gpu-memory]
      paths: {large-gpu: dra}
      migStrategy: mixed
      allocationPolicy: packed
      foreign:
        nvidia.com/gpu: {count: 4}

The settings of the device plugin API that are one word each are in `options.OPTIONS`.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dra_driver.model.decoding import Mistake, below
from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import MOST_REPLICAS, RESOURCE_PATTERN, Path, Sharing
from dra_driver.model.plugin_policy import DeviceChoice, MigStrategy, PluginPolicy, SharingRule

_RESOURCE = "the name of an extended resource, such as nvidia.com/gpu"
_OR_CLASS = rf"{RESOURCE_PATTERN}|^[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?$"
Resource = Annotated[str, Meta(pattern=RESOURCE_PATTERN, description=_RESOURCE)]
ClassOrResource = Annotated[
    str, Meta(pattern=_OR_CLASS, description=f"the name of a DeviceClass, or {_RESOURCE}")
]


class TimeSlicing(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How often each device of a resource is listed. Nothing keeps the containers on one device apart."""

    replicas: Annotated[
        int, Meta(ge=2, le=MOST_REPLICAS, description="How many containers share one device.")
    ]
    rename: Annotated[
        str,
        Meta(
            pattern=rf"^$|{RESOURCE_PATTERN}",
            description=f"The resource under which the shares are listed, {_RESOURCE}.shared; empty: the same",
        ),
    ] = ""
    fail_requests_greater_than_one: Annotated[
        bool,
        Meta(description="Whether a container that asks for several shares is refused."),
    ] = False


class ForeignShare(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The devices of a node that another device plugin gives out. Give either of the fields."""

    devices: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            description="Those that are named: by UUID, name, PCI address, or, for NVIDIA GPUs, index."
        ),
    ] = ()
    count: Annotated[
        int,
        Meta(
            ge=0, description="The first ones of their vendor, in the order of the node's slices."
        ),
    ] = 0


class DevicePlugin(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """How devices are offered through the device plugin API."""

    time_slicing: Annotated[
        Mapping[Resource, TimeSlicing],
        Meta(description="Resources whose devices several containers share, each with its number."),
    ] = msgspec.field(default_factory=dict)
    memory_units: Annotated[
        tuple[Resource, ...],
        Meta(
            description="Resources that are counted in units of a device's memory, not in devices."
        ),
    ] = ()
    paths: Annotated[
        Mapping[ClassOrResource, Literal["dra", "device-plugin"]],
        Meta(
            description="DeviceClasses and resources whose devices are offered through one API, whatever `path` says."
        ),
    ] = msgspec.field(default_factory=dict)
    mig_strategy: Annotated[
        Literal["none", "single", "mixed"] | None,
        Meta(
            description="How parts of a partitioned GPU are offered. none: not at all. single: under the name of whole GPUs. mixed: each "
            "profile under a name of its own. Not set: what a vendor's configuration says, else none."
        ),
    ] = None
    allocation_policy: Annotated[
        Literal["packed", "distributed"] | None,
        Meta(
            description="packed: the shares of one device are given out before those of the next. distributed: containers are spread over "
            "the devices. Not set: what a vendor's configuration says, else distributed."
        ),
    ] = None
    foreign: Annotated[
        Mapping[Resource, ForeignShare],
        Meta(
            description="Resources of other device plugins on the same nodes, each with the devices that are theirs. All other devices are this "
            "driver's. Without an entry this driver offers nothing that such a plugin could give out."
        ),
    ] = msgspec.field(default_factory=dict)


def broken_rules(content: object, path: str) -> Iterator[Mistake]:
    """Yield what each field by itself cannot see. The content may have mistakes of other kinds, which are told elsewhere."""
    found = content if isinstance(content, Mapping) else {}
    slices, units = found.get("timeSlicing"), found.get("memoryUnits")
    slices = slices if isinstance(slices, Mapping) else {}
    units = units if isinstance(units, list) else []
    for name in slices:
        if name in units:
            found_twice = "is in memoryUnits as well: a resource is shared in one way, so remove it here or there"
            yield Mistake(below(f"{path}.timeSlicing", name), found_twice)
    yield from _listed_twice(slices, f"{path}.timeSlicing")
    foreign = found.get("foreign")
    for name, one in foreign.items() if isinstance(foreign, Mapping) else ():
        if isinstance(one, Mapping) and one.get("devices") and one.get("count"):
            both = "has devices and count: give one of them"
            yield Mistake(below(f"{path}.foreign", name), both)


def _listed_twice(slices: Mapping[Any, Any], path: str) -> Iterator[Mistake]:
    """Yield new names that two resources would have."""
    taken: dict[str, str] = {}
    for name, one in slices.items():
        rename = one.get("rename") if isinstance(one, Mapping) else None
        if not rename or not isinstance(rename, str):
            continue
        if rename in taken or (rename in slices and rename != name):
            who = taken.get(rename, rename)
            told = f"{rename!a} is what {who} is listed as: choose another name"
            yield Mistake(f"{below(path, name)}.rename", told)
        taken[rename] = str(name)


def divided_by(section: DevicePlugin) -> Mapping[ResourceName, DeviceChoice]:
    """What the section leaves to the plugins of others."""
    shares = section.foreign.items()
    return {ResourceName(name): DeviceChoice(one.count, one.devices) for name, one in shares}


def policy_of(section: DevicePlugin) -> PluginPolicy:
    """The section as the value that planning reads."""
    replicas = tuple(
        SharingRule(
            ResourceName(name),
            replicas=one.replicas,
            rename=ResourceName(one.rename) if one.rename else None,
            refuses_several=one.fail_requests_greater_than_one,
        )
        for name, one in section.time_slicing.items()
    )
    units = tuple(
        SharingRule(ResourceName(name), Sharing.MEMORY)
        for name in dict.fromkeys(section.memory_units)
    )
    policy = section.allocation_policy
    return PluginPolicy(
        mig_strategy=MigStrategy(section.mig_strategy) if section.mig_strategy else None,
        sharing=replicas + units,
        packed=None if policy is None else policy == "packed",
        paths=MappingProxyType({name: Path(one) for name, one in section.paths.items()}),
    )
