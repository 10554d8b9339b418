# SPDX-License-Identifier: Apache-2.0
"""A program: does a field of the API's Device pass through every room? Run by tests/unit/test_new_field.py.

It imports a copy of the package in which `Device` has the field `newField`, and walks it from a backend to a selector.
Arguments: the folder of the copy, and an empty one. It ends with an AssertionError in the first room that loses the field.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

from msgspec import structs

import dra_driver
from dra_driver.allocator.devices import PoolSlice
from dra_driver.backends.base import BackendContext
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.cel.compile import compile_selector
from dra_driver.kube.discovery import WIRES
from dra_driver.kube.slices import Author, read_slice, write_slice
from dra_driver.kube.wire.objects import load
from dra_driver.model.api.resource_slice import (
    Device,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.events import DriverEvent, FieldsDropped
from dra_driver.model.ids import NodeName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import SliceContent, StoredSlice, UpdateSlice
from dra_driver.node.memory import PublishedMemory
from dra_driver.node.state import StateStore
from dra_driver.planning.reconcile import dropped_fields, plan_changes, slice_name
from dra_driver.planning.scanned import as_scanned
from dra_driver.planning.slices import plan_pool
from dra_driver.planning.taints import vanished
from dra_driver.services.publish import Publisher
from dra_driver.services.vanished import PublisherInputs
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_PLACE, A_POOL
from tests.support.scripted_api import ScriptedApi

NAME = slice_name(0, A_DRIVER, A_NODE)
HEAD = ResourceSliceSpec(driver=A_DRIVER, node_name=A_POOL, pool=ResourcePool(name=A_POOL))


class NewBackend(SimulatedBackend):
    """A backend whose devices have the new field."""

    said = "one"

    def scan(self) -> Inventory:
        first = super().scan().devices[0]
        return Inventory((AllocatableDevice(with_field(first.api, self.said), first.uuid),))

    def watch(self, _stop: Event) -> Iterator[None]:
        yield from ()


def with_field(device: Device, said: str) -> Device:
    changes: dict[str, Any] = {"new_field": said}
    return structs.replace(device, **changes)


def field_of(device: Device) -> object:
    return getattr(device, "new_field", None)


def walk(folder: Path) -> None:
    backend = NewBackend(BackendContext("node-1", SimulatedOptions()))
    inventory = as_scanned(backend.scan())
    (device,) = plan_pool(inventory, kept=()).slices[0].devices or ()
    assert field_of(device) == "one", "planning.slices loses a field of a device"
    assert field_of(vanished(device)) == "one", "a vanished device loses a field"
    kept = plan_pool(Inventory(()), kept=(device,)).devices
    assert [field_of(each) for each in kept.values()] == ["one"], "a kept device loses a field"
    remembers(device, folder / "state.db")
    for version in range(len(WIRES)):
        writes_and_reads(device, version)
    compares(device)
    publishes(backend)
    selects(device)


def remembers(device: Device, path: Path) -> None:
    with closing(StateStore(path, boot_id="boot-1")) as store:
        PublishedMemory(store, A_POOL).write([device])
    with closing(StateStore(path, boot_id="boot-1")) as store:
        assert PublishedMemory(store, A_POOL).read() == (device,), "node forgets a field"


def writes_and_reads(device: Device, version: int) -> None:
    wire, author = WIRES[version], Author(A_DRIVER, NodeName(A_POOL), "uid-node")
    (spec,) = (change.spec for change in plan([device]))
    text = json.dumps(write_slice(wire, {"name": NAME}, spec, author))
    assert '"newField": "one"' in text, f"{wire.version} does not write a field"
    stored = read_slice(wire, json.loads(text), author)
    assert (stored.devices, stored.unlike) == ((device,), {}), f"{wire.version} reads otherwise"
    found = load(ResourceSlice, json.loads(text), version=wire.version).spec
    assert found == stored.spec, f"explain reads {wire.version} otherwise"


def plan(devices: list[Device], *present: StoredSlice) -> tuple[Any, ...]:
    return plan_changes([SliceContent(devices=devices)], present, head=HEAD, names=(NAME,))


def compares(device: Device) -> None:
    (created,) = plan([device])
    stored = StoredSlice(NAME, "uid", "1", created.spec)
    assert plan([device], stored) == (), "reconcile sees a change where there is none"
    other = with_field(device, "two")
    assert plan([other], stored) == (
        UpdateSlice(stored, structs.replace(created.spec, devices=[other])),
    ), "reconcile does not see that a field changed"
    path = f"devices.{device.name}.newField"
    assert dropped_fields(SliceContent(devices=[device]), SliceContent(devices=[other])) == (
        path,
    ), "a dropped field is not named"


def publishes(backend: NewBackend) -> None:
    """The publisher writes the field, writes its change, and tells a server that drops it."""
    api, told, now = ScriptedApi(), list[DriverEvent](), [5000.0]
    inputs = PublisherInputs(backend.scan, frozenset, lambda _names: None)
    publisher = Publisher(api, inputs, place=A_PLACE, observe=told.append, clock=lambda: now[0])

    def looks() -> None:
        now[0] += 100
        publisher.wake()
        publisher.step()

    def changes() -> None:
        backend.said = "two"
        looks()

    def drops() -> None:
        api.stores = lambda spec: structs.replace(
            spec, devices=[with_field(one, "dropped") for one in spec.devices or ()]
        )
        backend.said = "three"
        looks()

    def stored() -> list[object]:
        return [field_of(one) for one in api.slices[NAME].devices]

    api.follow(publisher.watch, looks)
    assert stored() == ["one"], "the publisher does not write a field"
    api.follow(publisher.watch, looks, changes)
    assert stored() == ["two"], "the publisher does not write that a field changed"
    api.follow(publisher.watch, looks, drops, looks)
    fields = [event.fields for event in told if isinstance(event, FieldsDropped)]
    assert fields == [("devices.gpu-0.newField",)], "a server that drops a field is not told of"


def selects(device: Device) -> None:
    """What a selector is asked with is the device of the slice."""
    (found,) = PoolSlice(ResourceSlice(spec=structs.replace(HEAD, devices=[device]))).devices
    value = found.value
    assert field_of(value.published) == "one", "cel loses a field"
    assert compile_selector(f'device.driver == "{A_DRIVER}"').matches(value)


if __name__ == "__main__":
    copy, empty = map(Path, sys.argv[1:])
    assert Path(dra_driver.__file__).is_relative_to(copy), dra_driver.__file__
    assert "new_field" in Device.__struct_fields__
    walk(empty)
