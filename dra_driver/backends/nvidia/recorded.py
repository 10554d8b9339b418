# SPDX-License-Identifier: Apache-2.0
"""Facts of a snapshot in the place of hardware. Nothing is opened; a mode that is set is remembered until the process ends."""

from collections.abc import Iterator, Mapping
from threading import Event, Lock

import msgspec
from msgspec.structs import replace

from dra_driver.backends.nvidia.facts import Gpu, HardwareEvent, Node, Process, Usage
from dra_driver.errors import Permanent


def node_of(facts: object) -> Node:
    """Return the facts of a snapshot. A GPU that cannot be read costs itself. Raises Permanent, which names the place that is wrong."""
    if not isinstance(facts, Mapping):
        raise Permanent(f"the facts of the snapshot must be a mapping, and are a {_kind(facts)}")
    gpus = facts.get("gpus", [])
    if not isinstance(gpus, list):
        raise Permanent(f"`gpus` of the snapshot must be a list, and is a {_kind(gpus)}")
    rest = {name: value for name, value in facts.items() if name != "gpus"}
    try:
        node = msgspec.convert(rest, Node)
    except msgspec.ValidationError as error:
        raise Permanent(f"the facts of the snapshot cannot be read: {error}") from error
    return replace(node, gpus=tuple(_gpu(one, index) for index, one in enumerate(gpus)))


def _kind(value: object) -> str:
    return type(value).__name__


def _gpu(value: object, index: int) -> Gpu:
    try:
        return msgspec.convert(value, Gpu)
    except msgspec.ValidationError as error:
        return Gpu(index=index, problem=f"gpus[{index}] of the snapshot cannot be read: {error}")


class RecordedHardware:
    """`door.Hardware` by the facts of a snapshot."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._modes: dict[str, int] = {}
        self._mutex = Lock()

    def look(self) -> Node:
        """Return the facts, with the modes that were set since."""
        with self._mutex:
            modes = dict(self._modes)
        gpus = (
            replace(gpu, compute_mode=modes.get(gpu.uuid, gpu.compute_mode))
            for gpu in self._node.gpus
        )
        return replace(self._node, gpus=tuple(gpus))

    def events(self, stop: Event) -> Iterator[HardwareEvent | None]:
        """Wait until `stop` is set: nothing happens in a recording."""
        stop.wait()
        yield from ()

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Return the processes that the snapshot has."""
        for gpu in self._node.gpus:
            if gpu.uuid == uuid:
                return gpu.processes or ()
            for one in gpu.mig.devices if gpu.mig else ():
                if one.uuid == uuid:
                    return tuple(
                        process
                        for process in gpu.processes or ()
                        if process.gpu_instance == one.gpu_instance
                        and process.compute_instance in (None, one.compute_instance)
                    )
        return ()

    def usage(self, uuid: str) -> Usage:
        """Return the memory and the temperature that the snapshot has."""
        for gpu in self._node.gpus:
            if gpu.uuid == uuid:
                return Usage(memory=gpu.memory, temperature=gpu.temperature)
        return Usage()

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """Remember the mode."""
        with self._mutex:
            self._modes[uuid] = mode

    def set_time_slice(self, uuid: str, interval: int) -> None:
        """Do nothing: no fact has the interval."""

    def let_go(self) -> None:
        """Do nothing: nothing is open."""


class PlayedHardware(RecordedHardware):
    """A recording that is played: what ran when it was made does not run here, and keeps no device from a claim."""

    def processes(self, uuid: str) -> tuple[Process, ...]:  # noqa: ARG002  of the interface
        """Return nothing: nobody uses a GPU that is not there."""
        return ()
