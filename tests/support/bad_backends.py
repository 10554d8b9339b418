# SPDX-License-Identifier: Apache-2.0
"""Backends with mistakes, for tests that install them beside the driver. The name of each device says what is wrong with it."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any, cast

import msgspec
from msgspec import structs

from dra_driver.backends.base import BackendContext
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CounterSet,
    Device,
    DeviceCapacity,
)
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice, attributes
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from tests.support.counters import counter_set, uses

PARTITIONS = 60
_LIBRARY = "/opt/acme/libspy.so"
EDITS: Mapping[str, object] = {
    "good": ContainerEdits(env={"ACME": "1"}),
    "upward": ContainerEdits(mounts=(Mount("/opt/acme/../../etc", "/acme"),)),
    "node": ContainerEdits(device_nodes=(DeviceNode("/dev/../etc/shadow"),)),
    "root": ContainerEdits(mounts=(Mount("/", "/host"),)),
    "hook": ContainerEdits(hooks=(Hook("createContainer", "/opt/acme/hook"),)),
    "loader": ContainerEdits(env={"LD_PRELOAD": _LIBRARY}),
    "nothing": None,
    "declared": ContainerEdits(
        env={"LD_PRELOAD": _LIBRARY}, hooks=(Hook("createContainer", "/opt/acme/hook"),)
    ),
}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the backend writes down what was done to its devices."""

    record: str = ""


class Base:
    """A backend without devices that writes down each set-up and each reset, a line for each."""

    options = Options
    config_kinds: tuple[ConfigKind, ...] = ()

    def __init__(self, context: BackendContext) -> None:
        self._record = Path(context.options.record or "/dev/null")

    def scan(self) -> Inventory:
        return Inventory()

    def watch(self, _stop: Event) -> Iterator[None]:
        return iter(())

    def configure(self, lease: Lease, /) -> ContainerEdits:
        self._write("configure", lease)
        return cast("ContainerEdits", EDITS.get(lease.device, EDITS["good"]))

    def reset(self, lease: Lease, /) -> None:
        self._write("reset", lease)

    def in_use(self, _device: DeviceName, /) -> InUse:
        return InUse.CANNOT_TELL

    def _write(self, event: str, lease: Lease) -> None:
        with self._record.open("a") as file:
            file.write(json.dumps([event, lease.device, lease.claim_uid]) + "\n")


class Edits(Base):
    """Returns edits that no container must get; and has a device with 80Gi for several claims."""

    def scan(self) -> Inventory:
        shared = a_device(
            "shared",
            capacity={"memory": DeviceCapacity(value="80Gi")},
            allow_multiple_allocations=True,
        )
        devices = (a_device(name) for name in EDITS if name != "declared")
        declared = AllocatableDevice(
            Device(name="declared"), "uuid-declared", declares=frozenset({"hooks", "LD_PRELOAD"})
        )
        return Inventory((*devices, declared, shared))


class Exits(Base):
    """Its code is the main function of a tool, which ends the process where it sees a fault: at first everywhere, then only for one device."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._exits = {"scan", "watch"}

    def scan(self) -> Inventory:
        self._exit("scan")
        return Inventory((a_device("good"), a_device("exits")))

    def watch(self, stop: Event) -> Iterator[None]:
        self._exit("watch")
        yield
        stop.wait()

    def configure(self, lease: Lease, /) -> ContainerEdits:
        if lease.device == "exits":
            sys.exit("no such device")
        return super().configure(lease)

    def _exit(self, verb: str) -> None:
        if verb in self._exits:
            self._exits.discard(verb)
            sys.exit(f"{verb} failed")


class Counters(Base):
    """Has counters that do not add up, and sets and policies that no API server accepts."""

    def scan(self) -> Inventory:
        large = {f"c{number}": "1" for number in range(33)}
        sets = (
            counter_set("gpu-0", memory="80Gi"),
            counter_set("twice", memory="80Gi"),
            counter_set("twice", memory="40Gi"),
            counter_set("large", **large),
        )
        return Inventory(
            (
                a_device("good", consumes_counters=[uses("gpu-0", memory="80Gi")]),
                a_device("half", consumes_counters=[uses("gpu-0", memory="40Gi")]),
                a_device("beyond", consumes_counters=[uses("gpu-0", memory="81Gi")]),
                a_device("no-set", consumes_counters=[uses("gpu-9", memory="1Gi")]),
                a_device("no-counter", consumes_counters=[uses("gpu-0", slices="1")]),
                a_device("of-two", consumes_counters=[uses("twice", memory="1Gi")]),
                a_device("of-large", consumes_counters=[uses("large", c0="1")]),
                a_device("whole"),
                a_device(
                    "part",
                    attributes=attributes({"parentUUID": "uuid-whole"}),
                    consumes_counters=[uses("gpu-0", memory="1Gi")],
                ),
                _with_policy("no-amount", least="60Gi", most="20Gi"),
                _with_policy("no-default", least="1Gi", most="20Gi", default=None),
            ),
            counter_sets=cast("tuple[CounterSet, ...]", sets),
        )


class Many(Base):
    """Has more partitions of one GPU than Kubernetes 1.34 has room for."""

    def scan(self) -> Inventory:
        names = [f"slice_{number}" for number in range(20)]
        parts = (
            a_device(
                f"part-{number}", consumes_counters=[uses("gpu-0", **dict.fromkeys(names, "1"))]
            )
            for number in range(PARTITIONS)
        )
        sets = (counter_set("gpu-0", **dict.fromkeys(names, "1")),)
        return Inventory((*parts, a_device("good")), counter_sets=sets)


class Empty(msgspec.Struct):
    """A configuration without fields."""


class Twin(Base):
    """Declares a kind of configuration that another backend declares too."""

    config_kinds = (ConfigKind("acme.example.com/v1", "Mode", Empty),)


class Twice(Base):
    """Declares one kind of configuration twice."""

    config_kinds = (*Twin.config_kinds, ConfigKind("acme.example.com/v1", "Mode", Empty))


class OtherTwin(Twin):
    """The other one."""


def a_device(name: str, **fields: Any) -> AllocatableDevice:
    return AllocatableDevice(structs.replace(Device(name=name), **fields), f"uuid-{name}")


def _with_policy(
    name: str, least: str, most: str, default: str | None = "20Gi"
) -> AllocatableDevice:
    limits = CapacityRequestPolicyRange(min=least, max=most)
    policy = CapacityRequestPolicy(default=default, valid_range=limits)
    return a_device(
        name,
        allow_multiple_allocations=True,
        capacity={"memory": DeviceCapacity(value="80Gi", request_policy=policy)},
    )
