# SPDX-License-Identifier: Apache-2.0
"""The recorded backend: the node of a file of `dra-driver snapshot` again, on any machine.

The backend that took the snapshot plays it, so devices, attributes and container edits are those of the real node. No hardware is
opened: a container that gets such a device finds no device file unless the machine has one.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Annotated

import msgspec
from msgspec import Meta

from dra_driver.backends import recording
from dra_driver.backends.base import BackendContext, config_kinds_of
from dra_driver.backends.recording import Snapshot, take
from dra_driver.backends.registry import played
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease


class RecordedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the recorded backend."""

    file: Annotated[
        str,
        Meta(
            description="A file of `dra-driver snapshot`, or the name of a recording that the driver brings (`h100x8`)."
        ),
    ]


class RecordedBackend:
    """Plays a snapshot through the backend that it was taken with."""

    options = RecordedOptions
    auto = False

    def __init__(self, context: BackendContext) -> None:
        given: RecordedOptions = context.options
        try:
            brought = given.file in recording.shipped()
            snapshot = recording.named(given.file) if brought else recording.read(Path(given.file))
            self._player = played(snapshot.backend, context, snapshot.facts)
        except Permanent as error:
            names = ""
            if isinstance(error.__cause__, FileNotFoundError):
                names = f", or the name of a recording that the driver brings: {', '.join(recording.shipped())}"
            raise Fatal(f"backend recorded cannot play {given.file}: {error}{names}") from error
        self.config_kinds: tuple[ConfigKind, ...] = config_kinds_of(self._player)

    def snapshot(self) -> Snapshot:
        """The same snapshot again, in the form of this release."""
        return take(self._player)

    def scan(self) -> Inventory:
        """The devices of the recorded node."""
        return self._player.scan()

    def watch(self, stop: Event) -> Iterator[None]:
        """A recording does not change."""
        return self._player.watch(stop)

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """The container edits as on the recorded node; modes are remembered only."""
        return self._player.configure(lease)

    def reset(self, lease: Lease, /) -> None:
        """Undo `configure`."""
        self._player.reset(lease)

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether the recorded node had a process on the device."""
        return self._player.in_use(device)
