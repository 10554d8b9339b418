# SPDX-License-Identifier: Apache-2.0
"""What the mock of NVIDIA's library has seen: a witness that knows nothing of the driver's books.

The mock writes down every setting that somebody changes. Whoever plays the container runtime writes into the same journal which
GPUs a container opened, and which time slice its claim asked for; and it lets a process of the container be on the GPU. Read in order:

* a GPU, or a part of it, is in the hands of one claim at a time;
* a container that starts finds the time slice that its claim asks for, or the usual one; not on a GPU that was gone since its claim
  was prepared: the kernel driver has forgotten the slice, and the kubelet does not have the claim prepared again;
* nobody changes a setting under a container;
* nobody lets a GPU refuse a second process: no claim of the walk asks for that.

At the end of a walk each GPU that no claim has is set as usual (`Seen.unowned`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dra_driver.backends.nvidia.facts import Node, Process
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.testing.nvml.control import Control
from tests.support.hardware import Overridden, Use
from tests.support.nvidia_names import parts, uuids

MEMORY = 1 << 30  # of a process
NOBODY = ClaimUid("nobody")


@dataclass(slots=True)
class Seen:
    """What the hardware knows after some lines of the journal."""

    names: Mapping[str, DeviceName]  # by UUID
    slices: dict[DeviceName, tuple[int, Use]] = field(default_factory=dict)
    """The time slice of each GPU, and which setting it is from: the hardware does not know for whom, so each has a number."""
    settings: int = 0
    reattached: set[DeviceName] = field(
        default_factory=set
    )  # were gone, and nobody has set them since
    open: dict[str, dict[Use, int]] = field(default_factory=dict)
    misuse: list[str] = field(default_factory=list)
    overridden: list[Overridden] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)  # of the simulated hardware only

    @property
    def configured(self) -> set[Use]:
        """The settings of GPUs that are not set as usual."""
        return {setting for value, setting in self.slices.values() if value}

    def unowned(self, owned: Iterable[Use]) -> set[Use]:
        """The settings of GPUs that are not set as usual, and that no claim has."""
        kept = {use.device for use in owned}
        return {use for use in self.configured if use.device not in kept}

    def wrong_modes(self, but: object = ()) -> list[str]:
        """GPUs here have no mode for partitions that the driver switches."""
        del but
        return []

    def without_mode(self) -> set[Use]:
        """As above."""
        return set()

    def take(self, words: list[str]) -> None:
        """The next line."""
        match words:
            case ["time-slice", uuid, value]:
                self._set(self.names[uuid], int(value))
            case ["compute-mode", uuid, value]:
                if value != "0":
                    self.misuse.append(f"{self.names[uuid]} was put into compute mode {value}")
            case ["open", container, claim, device, value]:
                self._open(container, Use(DeviceName(device), ClaimUid(claim)), int(value))
            case ["close", container]:
                self.open.pop(container, None)
            case ["gone", uuid]:
                self.slices.pop(self.names[uuid], None)
                self.reattached.add(self.names[uuid])
            case ["boot"]:
                self.slices.clear()
                self.open.clear()
            case other:
                raise ValueError(f"the journal has a line {other} that nobody writes")

    def _set(self, device: DeviceName, value: int) -> None:
        self.settings += 1
        self.reattached.discard(device)
        self.slices[device] = value, Use(device, ClaimUid(f"setting {self.settings}"))
        for container, uses in self.open.items():
            for use, expected in uses.items():
                if use.device == device and value != expected:
                    self.misuse.append(
                        f"{device} got time slice {value} under container {container}, whose claim asks for {expected}"
                    )

    def _open(self, container: str, use: Use, expected: int) -> None:
        for other, uses in self.open.items():
            if clashes := [one for one in uses if use.excludes(one)]:
                self.misuse.append(f"{container} opened {use} while {other} had {clashes[0]} open")
        found, setting = self.slices.get(use.device, (0, Use(use.device, NOBODY)))
        if found != expected and use.device not in self.reattached:
            how = f"was given with time slice {found} instead of {expected}; this is"
            self.overridden.append(Overridden(use, setting, how))
        self.open.setdefault(container, {})[use] = expected


class NvidiaWitness:
    """Reads the journal as it grows. `look` answers everything that it told so far."""

    def __init__(self, control: Control, facts: Node) -> None:
        self._control = control
        self._taken = 0
        self._seen = Seen({uuid: DeviceName(name) for name, uuid in uuids(facts).items()})

    def look(self) -> Seen:
        """Take what was written since the last look."""
        lines = self._control.journal()
        for line in lines[self._taken :]:
            self._seen.take(line.split())
        self._taken = len(lines)
        return self._seen


class NvidiaRuntime:
    """The container runtime's pen, and the processes of containers on the hardware.

    `asked` is the time slice that a claim with these devices asks for.
    """

    def __init__(
        self, control: Control, facts: Node, asked: Callable[[ClaimUid, Sequence[str]], int]
    ) -> None:
        self._control = control
        self._asked = asked
        self._processes: dict[str, list[int]] = {}
        self._last = 1000
        self._place: dict[str, tuple[int, int | None, int | None]] = {}
        for gpu in facts.gpus:
            self._place[f"gpu-{gpu.minor}"] = (gpu.index, None, None)
            for name, part in parts(gpu).items():
                self._place[name] = (gpu.index, part.gpu_instance, part.compute_instance)

    def opened(self, container: str, uses: Iterable[Use], *, admin: bool = False) -> None:
        """A container started, and computes on its devices; who looks on does not."""
        mine = [] if admin else list(uses)
        for use in mine:
            index, instance, compute = self._place[use.device]
            self._last += 1
            process = Process(
                pid=self._last,
                used_memory=MEMORY,
                gpu_instance=instance,
                compute_instance=compute,
            )
            expected = self._asked(use.claim_uid, [one.device for one in mine])
            self._write(f"open {container} {use.claim_uid} {use.device} {expected}")
            self._control.add_process(index, process)
            self._processes.setdefault(container, []).append(process.pid)

    def closed(self, container: str) -> None:
        """The container's last process is gone."""
        self._write(f"close {container}")
        for pid in self._processes.pop(container, ()):
            self._control.remove_process(pid)

    def booted(self) -> None:
        """The machine started anew: nothing runs, and everything is set as usual."""
        for container in list(self._processes):
            self.closed(container)
        for what in ("compute-mode-*", "time-slice-*"):
            for file in self._control.state.glob(what):
                file.unlink()
        self._write("boot")

    def _write(self, text: str) -> None:
        with (self._control.state / "journal").open("a") as journal:
            journal.write(f"0 {text}\n")
