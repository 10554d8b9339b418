# SPDX-License-Identifier: Apache-2.0
"""What writers of backends and tests import, with the types that they may rely on; checked by mypy, never run."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import assert_type

import msgspec

from dra_driver.backends.base import Backend, BackendContext, BackendFactory
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import Claim, ClaimRef, DeviceConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, InUse, Lease
from dra_driver.testing.builders import a_claim, a_device, an_inventory
from dra_driver.testing.contract import PROMISES, BrokenPromise, Promise, backend_contract
from dra_driver.testing.failpoints import FAILPOINTS, Failpoints
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import FakeKubelet
from dra_driver.testing.kubelet_calls import Plugin
from dra_driver.testing.stage import Stage, temporary_stage


class Speed(msgspec.Struct):
    """A configuration of a claim for a card."""

    speed: int = 1


SPEED = ConfigKind("cards.example.com/v1", "Speed", Speed, default=Speed())


class Cards:
    """A backend needs no base class: these five methods are one."""

    def __init__(self, context: BackendContext) -> None:
        self.node_name: str = context.node_name

    def scan(self) -> Inventory:
        return Inventory((AllocatableDevice(Device(name="card-0"), "uuid"),))

    def watch(self, stop: Event) -> Iterator[None]:
        return iter(())

    def configure(self, lease: Lease, /) -> ContainerEdits:
        return ContainerEdits(env={"CARD": lease.device})

    def reset(self, lease: Lease, /) -> None: ...

    def in_use(self, device: DeviceName, /) -> InUse:
        return InUse.CANNOT_TELL


factory: BackendFactory = Cards
backend: Backend = Cards(BackendContext("node-1"))
assert_type(backend.scan().by_name, Mapping[DeviceName, AllocatableDevice])
assert_type(a_device().api, Device)
assert_type(a_device().resource, Hardware)
assert_type(a_claim(), Claim)
assert_type(a_claim().ref, ClaimRef)
assert_type(an_inventory().devices, tuple[AllocatableDevice, ...])
assert_type(SPEED.config(Speed(speed=2)), DeviceConfig)


def make_backend(folder: Path) -> Cards:
    """The backend under test."""
    return Cards(BackendContext(folder.name))


def settings(folder: Path) -> object:
    """What is set up."""
    return sorted(folder.iterdir())


def vanish(folder: Path, name: DeviceName) -> None:
    """Let a device vanish."""
    (folder / name).unlink()


test_cards = backend_contract(make_backend)
assert_type(test_cards, Callable[..., None])
assert_type(
    backend_contract(
        make_backend,
        hardware=Path.touch,
        settings=settings,
        vanish=vanish,
        configs=[SPEED.config(Speed())],
        code=["cards"],
        patience=2,
    ),
    Callable[..., None],
)
assert_type(PROMISES, tuple[Promise, ...])
assert_type(PROMISES[0].sentence, str)
broken: AssertionError = BrokenPromise("called", "found", "do")
assert_type(FAILPOINTS, tuple[str, ...])
assert_type(Failpoints().passed, tuple[str, ...])
assert_type(FakeKubelet(Path()).register("gpu.dra-driver.dev"), Plugin | None)
assert_type(FakeApi().url, str)
with temporary_stage("--simulated-profile", "h100x8") as stage:
    assert_type(stage, Stage)
    assert_type(stage.start(), int)
    assert_type(stage.claim("one", ["gpu-0"]), ClaimRef)
