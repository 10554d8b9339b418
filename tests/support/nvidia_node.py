# SPDX-License-Identifier: Apache-2.0
"""NVIDIA hardware that is made of files: facts of a recording, and the modes that were set. It survives the backend, as hardware does."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import msgspec
from msgspec.structs import replace

from dra_driver.backends import recording
from dra_driver.backends.nvidia.facts import Gpu, HardwareEvent, Node, Process
from dra_driver.backends.nvidia.recorded import RecordedHardware, node_of


def facts_of(name: str) -> Node:
    """The facts of a recording that the driver brings."""
    return node_of(recording.named(name).facts)


def gpu_of(name: str = "t4x2", index: int = 0) -> Gpu:
    """A GPU of a recording."""
    return facts_of(name).gpus[index]


class FileHardware:
    """`door.Hardware` in a folder: `facts.json` is what it answers, `modes.json` is what was set."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def become(self, node: Node) -> None:
        """From now on answer this."""
        (self._folder / "facts.json").write_bytes(msgspec.json.encode(node))

    def look(self) -> Node:
        found = json.loads((self._folder / "facts.json").read_text())
        modes = self.modes()
        node = node_of(found)
        gpus = (replace(one, compute_mode=modes.get(f"{one.uuid} mode", 0)) for one in node.gpus)
        return replace(node, gpus=tuple(gpus))

    def events(self, stop: Event) -> Iterator[HardwareEvent | None]:
        stop.wait()
        yield from ()

    def processes(self, uuid: str) -> tuple[Process, ...]:
        return RecordedHardware(self.look()).processes(uuid)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        self._set(f"{uuid} mode", mode)

    def set_time_slice(self, uuid: str, interval: int) -> None:
        self._set(f"{uuid} slice", interval)

    def let_go(self) -> None:
        """Nothing is open."""

    def modes(self) -> dict[str, int]:
        """What is set and not a default."""
        file = self._folder / "modes.json"
        found: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def _set(self, name: str, value: int) -> None:
        modes = {**self.modes(), name: value}
        kept = {one: number for one, number in modes.items() if number}
        (self._folder / "modes.json").write_text(json.dumps(kept))
