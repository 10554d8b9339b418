# SPDX-License-Identifier: Apache-2.0
"""A machine of the random walk whose hardware is a mock of NVIDIA's library: eight A100s, of which two are cut into MIG devices.

The library is built with `cc`, and the driver's own hardware process loads it. What vanishes, hangs or dies here does so
in that process.
"""

from __future__ import annotations

import os
import re
import signal
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dra_driver.backends.nvidia.config import API_VERSION, INTERVALS
from dra_driver.backends.nvidia.facts import Node
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import MIG_CHANGE, Control
from dra_driver.testing.nvml.kernel_files import cap_minor
from dra_driver.testing.nvml.node import OPERATOR, MockNode
from dra_driver.testing.oci import inject
from dra_driver.testing.stage import DRIVER
from tests.faults.armed import empty_disks
from tests.faults.bed import Bed
from tests.faults.machines import Equal
from tests.support.nvidia_hardware import NvidiaRuntime, NvidiaWitness
from tests.support.nvidia_names import parts, uuids
from tests.support.physical import is_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.walk import Walk

FACTS: Node = machine.node(
    boards.A100_40, 8, mig=dict.fromkeys((6, 7), "3g.20gb 2g.10gb 1g.5gb 1g.5gb")
)
ASKED = ("", *INTERVALS)  # a fifth of the claims asks for nothing


@dataclass(frozen=True, slots=True)
class Nvidia(Equal):
    """GPUs and MIG devices; the scheduler takes any that no allocated claim has."""

    flags: tuple[str, ...] = ("--backend", "nvidia")
    devices: tuple[str, ...] = tuple(uuids(FACTS))


class NvidiaBed(Bed):
    """A bed on which the hardware is the mock."""

    def __init__(self, root: Path, api: FakeApi, *flags: str) -> None:
        super().__init__(root, api, *flags)
        self.mock = Control(root / "mock")
        host = root / "host"
        library = build.library(
            FACTS, dev=host / "dev", control=self.mock.path, state=self.mock.state
        )
        MockNode(host, FACTS, layout=OPERATOR, library=library, nvidia_smi=build.nvidia_smi())
        self.host = host
        self.gone: set[str] = (
            set()
        )  # UUIDs of GPUs that are not cut into MIG devices, which have no modes
        self.hung = False  # once: a GPU that hung is asked again only minutes later

    def hardware_flags(self) -> tuple[str, ...]:
        return ("--backend-option", f"hostRoot={self.host}")

    def hardware(self) -> tuple[Any, Any]:
        def asked(uid: ClaimUid, devices: Sequence[str]) -> int:
            return INTERVALS.get(interval(uid, devices), 0)

        return NvidiaRuntime(self.mock, FACTS, asked), NvidiaWitness(self.mock, FACTS)

    def config(self, claim: ClaimRef, devices: Sequence[str]) -> list[dict[str, Any]]:
        name = interval(claim.uid, devices)
        if not name:
            return []
        slicing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": name}}
        parameters = {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": slicing}
        opaque = {"driver": DRIVER, "parameters": parameters}
        return [{"source": "FromClaim", "requests": [], "opaque": opaque}]

    def opened_devices(self, uid: ClaimUid) -> list[str]:
        """The devices whose files a container that starts now has, by their numbers."""
        config = inject({}, self.kubelet.cdi_ids(uid), self.cdi_dir)
        paths = {device["path"] for device in config["linux"]["devices"]}
        gpus = {
            int(found[1]) for path in paths if (found := re.fullmatch(r"/dev/nvidia(\d+)", path))
        }
        caps = {int(path.rpartition("cap")[2]) for path in paths if "/nvidia-caps/" in path}
        found = []
        for gpu in FACTS.gpus:
            minor = gpu.minor or 0
            mine = {
                name
                for name, part in parts(gpu).items()
                if {
                    cap_minor(minor, part.gpu_instance),
                    cap_minor(minor, part.gpu_instance, part.compute_instance),
                }
                <= caps
            }
            if minor in gpus:
                found += sorted(mine) or [f"gpu-{minor}"]
        return found

    # Faults.

    def vanish(self, *devices: str) -> None:
        """Whole GPUs are not counted any more, MIG devices are destroyed; all others are there, and nothing hangs.

        One that was gone comes back as it is after a boot of the machine.
        """
        for uuid in self.gone:
            self.mock.attached_anew(uuid)
        self.gone.clear()
        for word in ("vanished", "mig_hidden", "fail"):
            self.mock.restore(word)
        gone = set(devices)
        for gpu in FACTS.gpus:
            mine = parts(gpu)
            if f"gpu-{gpu.minor}" in gone or (mine and mine.keys() <= gone):
                self.mock.vanished(gpu.index)
                self.gone |= set() if mine else {gpu.uuid}
                continue
            for name in mine.keys() & gone:
                self.mock.hide_mig(gpu.index, mine[name].uuid)
        self.troubled = bool(gone) or self.hung
        self.hangs = False
        self._look()

    def hang(self, *devices: str) -> None:
        """Setting these devices up does not end, until `vanish` says otherwise."""
        for gpu in FACTS.gpus:
            if f"gpu-{gpu.minor}" in devices:
                self.mock.hang("nvmlDeviceSetComputeMode", gpu.index)
        self.hung = self.troubled = True

    def fall_ill(self, *devices: str) -> frozenset[str]:
        """Nobody falls ill: how long a taint stays then is a matter of its own (tests/integration/test_nvidia_health.py)."""
        del devices
        return frozenset()

    def empty_disks(self) -> None:
        """Writes succeed again, also those of hardware processes that were started meanwhile."""
        super().empty_disks()
        for process in self.hardware_processes():
            with suppress(ProcessLookupError):
                empty_disks(process)

    def hardware_processes(self) -> list[int]:
        """The processes of the drivers that call the library."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if str(self.host).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return sorted(found)

    def _look(self) -> None:
        """The driver looks at once, and not only ten seconds later."""
        self.mock.event(FACTS.gpus[-1].index, MIG_CHANGE, 0)


def interval(uid: ClaimUid, devices: Sequence[str]) -> str:
    """The time slice that a claim asks for with these devices, the same each time. The kind of configuration fits no MIG device."""
    if any(map(is_partition, devices)):
        return ""
    return ASKED[zlib.crc32(uid.encode()) % len(ASKED)]


def kill_hardware(walk: Walk) -> None:
    """The hardware process dies, as by a fault of the vendor's library."""
    assert isinstance(walk.bed, NvidiaBed)
    processes = walk.bed.hardware_processes()
    if processes:
        victim = walk.chance.choice(processes)
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def hang_hardware(walk: Walk) -> None:
    """A look at one GPU does not end, until the hardware process is replaced or the GPU answers again."""
    assert isinstance(walk.bed, NvidiaBed)
    index = walk.chance.randrange(len(FACTS.gpus))
    walk.note(str(index))
    walk.bed.mock.hang("nvmlDeviceGetMemoryInfo*", index)
    walk.bed.hung = walk.bed.troubled = walk.bed.hangs = True


def heal_hardware(walk: Walk) -> None:
    """No GPU hangs, and none is gone."""
    walk.bed.vanish()


# How often each happens on this machine, beside all that happens on every one.
NVIDIA: dict[str, tuple[Any, float]] = {
    "kill_hardware": (kill_hardware, 3),
    "hang_hardware": (hang_hardware, 0.3),
    "heal_hardware": (heal_hardware, 1),
}
