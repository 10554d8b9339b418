# SPDX-License-Identifier: Apache-2.0
"""A small backend that keeps all its promises, for hardware in a folder, and the functions that `backend_contract` wants of its author.

A card has two parts and one mode that its leases share. Tests derive backends from it that break one promise each.
"""

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from threading import Event
from typing import Annotated

import msgspec

from dra_driver.errors import Permanent
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice, attributes
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, InUse, Lease

SPEEDS = 3


class CardOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    poll_seconds: float = 60.0


class Speed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    speed: Annotated[int, msgspec.Meta(ge=1, le=SPEEDS)] = 1


SPEED = ConfigKind("cards.example.com/v1", "Speed", Speed, default=Speed())


class Cards:
    """`folder` has one folder for each card, with `owner-part0`, `owner-part1` and `mode`."""

    options = CardOptions
    config_kinds = (SPEED,)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scan(self) -> Inventory:
        return Inventory(
            tuple(
                self.device(card, part)
                for card in sorted(self.folder.glob("card*"))
                for part in ("part0", "part1")
            )
        )

    def device(self, card: Path, part: str) -> AllocatableDevice:
        name = f"{card.name}-{part}"
        return AllocatableDevice(
            Device(name=name, attributes=attributes({"vendor": "example"})),
            name,
            hardware=Hardware(card.name, (part,)),
        )

    def watch(self, stop: Event) -> Iterator[None]:
        while not stop.wait(60):
            yield

    def configure(self, lease: Lease, /) -> ContainerEdits:
        card, owner = self.place(lease.device)
        if not card.exists():
            raise Permanent(f"device {lease.device} has gone")
        if not (lease.admin_access or lease.may_run):
            speed = lease.config.value.speed if isinstance(lease.config.value, Speed) else 1
            self.write(card / "mode", "divided")
            self.write(owner, f"{lease.claim_uid} at {speed}")
        return self.edits(lease)

    def edits(self, lease: Lease) -> ContainerEdits:
        return ContainerEdits(device_nodes=(DeviceNode(f"/dev/{lease.device}"),))

    def reset(self, lease: Lease, /) -> None:
        card, owner = self.place(lease.device)
        if owner.exists() and owner.read_text().startswith(lease.claim_uid):
            owner.unlink()
        if lease.is_alone:
            (card / "mode").unlink(missing_ok=True)

    def in_use(self, device: DeviceName, /) -> InUse:
        return InUse.NO

    def place(self, device: DeviceName) -> tuple[Path, Path]:
        card, _, part = device.rpartition("-")
        return self.folder / card, self.folder / card / f"owner-{part}"

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)


def two_cards(folder: Path) -> None:
    for number in range(2):
        (folder / f"card{number}").mkdir()


def what_is_set_up(folder: Path) -> object:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def pull_out(folder: Path, device: DeviceName) -> None:
    rmtree(folder / device.split("-")[-2])
