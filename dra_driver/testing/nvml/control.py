# SPDX-License-Identifier: Apache-2.0
"""Faults and changes of a library that is in use: the control file, and the folder that processes share.

    control = Control(folder)                        # the library was built with control=control.path, state=control.state
    control.lost(0, after_calls=5)                   # GPU 0 answers five calls more, then GPU_IS_LOST
    control.fail("nvmlDeviceGetTemperature", 1, error=999)
    control.xid(2, code=79)
    control.restore("lost", 0); control.clear()

A GPU is the index in the facts that the library was built from. The library reads the file anew when it changes, in all processes.
The file has one line per fault: `<GPU, * or node> <word> key=value …`. A rule that has been met counts per process. The file is
replaced at once, so no process ever reads half of it; several processes may change it, one after the other.
"""

import fcntl
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_driver.backends.nvidia.facts import Gpu, MigDevice, MigProfile, Process
from dra_driver.testing.nvml.tables import mig_values

ALL = "*"
NODE = "node"
_EVENTS = 64  # the library keeps no more
XID, DOUBLE_BIT_ECC, MIG_CHANGE = 8, 2, 256
FALLEN_OFF_THE_BUS, RECOVERY_ACTION_CHANGED = 79, 154

Target = int | str


class Control:
    """The control file `folder/control` and the shared state in `folder/state`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "control"
        self.state = folder / "state"
        self.state.mkdir(exist_ok=True)
        self.state.chmod(0o777)
        self.path.touch()

    def environment(self) -> dict[str, str]:
        """Variables for a process whose library has other paths compiled in, or none."""
        return {"MOCK_NVML_CONTROL": str(self.path), "MOCK_NVML_STATE": str(self.state)}

    # Faults

    def fail(  # noqa: PLR0913 - the fields of a rule
        self,
        function: str = ALL,
        gpu: Target = ALL,
        *,
        error: int = 0,
        delay_ms: int = 0,
        after_calls: int = 0,
        calls: int = 0,
        hang: bool = False,
    ) -> None:
        """Let a function of the library fail, wait, or hang; `*` at the end of its name stands for anything.

        It works `after_calls` times before, and again after `calls` more. A call that hangs holds a lock of its process, so each later
        call hangs, too, until the rule is taken back.
        """
        self._add(
            gpu,
            "fail",
            function=function,
            error=error,
            delay_ms=delay_ms,
            after_calls=after_calls,
            calls=calls,
            hang=int(hang),
        )

    def hang(self, function: str = ALL, gpu: Target = ALL, *, after_calls: int = 0) -> None:
        self.fail(function, gpu, hang=True, after_calls=after_calls)

    def delay(self, milliseconds: int, function: str = ALL) -> None:
        """Let each call of the library take so long."""
        self.fail(function, delay_ms=milliseconds)

    def lost(self, gpu: Target, *, after_calls: int = 0) -> None:
        """Each call on the GPU gives GPU_IS_LOST; its handle can still be had."""
        self._add(gpu, "lost", after_calls=after_calls)

    def fallen_off_bus(self, gpu: Target, *, after_calls: int = 0, xid: bool = True) -> None:
        """Not even the handle of the GPU can be had. As on a real node, XID 79 tells of it."""
        self._add(gpu, "fallen_off_bus", after_calls=after_calls)
        if xid:
            self.xid(gpu, FALLEN_OFF_THE_BUS)

    def vanished(self, gpu: Target) -> None:
        """The GPU is not counted any more, the indices of later ones change, and its old handle gives GPU_IS_LOST."""
        self._add(gpu, "vanished")

    def ecc_uncorrectable(self, gpu: Target, count: int = 1) -> None:
        """Uncorrectable errors of the memory: the counter, the event, and XID 48."""
        self._add(gpu, "ecc_uncorrectable", count=count)
        self.event(gpu, DOUBLE_BIT_ECC, 0)
        self.xid(gpu, 48)

    def xid(self, gpu: Target, code: int, *, mig: MigDevice | None = None) -> None:
        """An XID, of the whole GPU or of one MIG device."""
        self.event(gpu, XID, code, mig=mig)

    def event(self, gpu: Target, kind: int, data: int, *, mig: MigDevice | None = None) -> None:
        """An event of `nvmlEventType`. Only sets that are registered already deliver it."""
        values: dict[str, object] = {"type": kind, "data": data}
        if mig is not None:
            values |= {"gi": mig.gpu_instance, "ci": mig.compute_instance}
        with self._locked() as lines:
            events = [line for line in lines if line.split()[1] == "event"]
            for old in events[: len(events) - _EVENTS + 1] if len(events) >= _EVENTS else ():
                lines.remove(old)
            lines.append(_line(gpu, "event", {"id": time.monotonic_ns(), **values}))

    def recovery_action(self, gpu: Target, action: int) -> None:
        """Field 230 changes, and XID 154 says so."""
        self.set(gpu, recovery_action=action)
        self.xid(gpu, RECOVERY_ACTION_CHANGED)

    def set(self, gpu: Target, **values: int) -> None:
        """Set temperature, memory_used, recovery_action, compute_mode, mig_enabled, mig_pending, rows_correctable, rows_uncorrectable,
        rows_pending or rows_failed; utilization and memory_utilization in percent, power_mw, power_limit_mw, sm_clock_mhz, memory_clock_mhz,
        clock_reasons (bits) or ecc_corrected; of the node cc_feature and cc_ready.
        """
        self._add(gpu, "set", **values)

    def nvlink_down(self, gpu: Target, link: int | None = None) -> None:
        """One link, or all, become inactive."""
        self._add(gpu, "nvlink_down", **({} if link is None else {"link": link}))

    def fabric(self, gpu: Target, **values: int | str) -> None:
        """Set state, status, clique, mask, summary or cluster (a UUID)."""
        changed = {
            name: str(value).replace("-", "") if name == "cluster" else value
            for name, value in values.items()
        }
        self._add(gpu, "fabric", **changed)

    def unloaded(self) -> None:
        """The kernel driver is not loaded: DRIVER_NOT_LOADED at the start, UNKNOWN in processes that have started."""
        self._add(NODE, "unloaded")

    def mismatch(self) -> None:
        """The kernel driver is another version than the library."""
        self._add(NODE, "mismatch")

    def no_permission(self) -> None:
        self._add(NODE, "no_permission")

    # Changes that are no faults

    def add_process(self, gpu: Target, process: Process) -> None:
        """A process that uses the GPU, and its memory."""
        self._add(
            gpu,
            "process",
            pid=process.pid,
            kind=process.kind,
            memory=process.used_memory or 0,
            **({} if process.gpu_instance is None else {"gi": process.gpu_instance}),
            **({} if process.compute_instance is None else {"ci": process.compute_instance}),
        )

    def remove_process(self, pid: int) -> None:
        with self._locked() as lines:
            lines[:] = [line for line in lines if f" pid={pid} " not in f"{line} "]

    def no_processes(self, gpu: Target) -> None:
        """The processes of the facts have ended."""
        self._add(gpu, "no_processes")

    def hide_mig(self, gpu: Target, uuid: str = "") -> None:
        """A MIG device is destroyed; without `uuid` all of the GPU are."""
        self._add(gpu, "mig_hidden", **({"uuid": uuid} if uuid else {}))

    def add_mig(
        self, index: int, device: MigDevice, gpu: Gpu, profiles: tuple[MigProfile, ...]
    ) -> None:
        """A MIG device is created."""
        values: dict[str, object] = dict(mig_values(device, profiles, gpu.memory))
        short = {"gi": values.pop("gpu_instance"), "ci": values.pop("compute_instance")}
        self._add(index, "mig", **short, **values)

    # Taking back

    def restore(self, word: str, gpu: Target | None = None) -> None:
        """Take back all lines with this word (`lost`, `fail`, `set`, …) of one GPU, or of all."""
        with self._locked() as lines:
            lines[:] = [
                line
                for line in lines
                if not (line.split()[1] == word and gpu in {None, _target(line)})
            ]

    def clear(self) -> None:
        """Take back everything. Events that were delivered are not delivered again."""
        with self._locked() as lines:
            lines[:] = [line for line in lines if line.split()[1] == "event"]

    # What processes did

    def count_calls(self) -> None:
        """Let each process write each call down; `calls` reads them."""
        self._add(NODE, "count_calls")

    def calls(self, pid: int | None = None, gpu: int | None = None) -> Counter[str]:
        """How often each function was called: by all processes or by one, for all GPUs or for one."""
        return Counter(
            function
            for process, function, index in (line.split() for line in self._read("calls"))
            if pid in {None, int(process)} and gpu in {None, int(index)}
        )

    def forget_calls(self) -> None:
        (self.state / "calls").unlink(missing_ok=True)

    def journal(self) -> list[str]:
        """Calls that changed something, in their order: `compute-mode <uuid> 3`, `time-slice <uuid> 1`."""
        return [line.split(maxsplit=1)[1] for line in self._read("journal")]

    def compute_mode(self, uuid: str) -> int | None:
        """The mode that a process has set; None if none has."""
        return self._value(f"compute-mode-{uuid}")

    def time_slice(self, uuid: str) -> int | None:
        return self._value(f"time-slice-{uuid}")

    def attached_anew(self, uuid: str) -> None:
        """The kernel driver has found the GPU again after it was gone: its modes are the usual ones. The journal says so: `gone <uuid>`."""
        for mode in ("compute-mode", "time-slice"):
            (self.state / f"{mode}-{uuid}").unlink(missing_ok=True)
        with (self.state / "journal").open("a") as journal:
            journal.write(f"{os.getpid()} gone {uuid}\n")

    def lines(self) -> list[str]:
        """The lines of the control file."""
        return self.path.read_text().splitlines()

    def _value(self, name: str) -> int | None:
        path = self.state / name
        return int(path.read_text()) if path.exists() else None

    def _read(self, name: str) -> list[str]:
        path = self.state / name
        return path.read_text().splitlines() if path.exists() else []

    def _add(self, target: Target, word: str, **values: object) -> None:
        with self._locked() as lines:
            line = _line(target, word, values)
            lines[:] = [one for one in lines if one.partition(" id=")[0] != line]
            numbered = "after_calls" in values  # its calls are counted from now on
            lines.append(f"{line} id={time.monotonic_ns()}" if numbered else line)

    @contextmanager
    def _locked(self) -> Iterator[list[str]]:
        """The lines, to be changed; the file is replaced at the end."""
        with (self.path.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = self.lines()
            yield lines
            fresh = self.path.with_suffix(f".{os.getpid()}")
            fresh.write_text("".join(f"{line}\n" for line in lines))
            fresh.rename(self.path)


def _target(line: str) -> Target:
    word = line.split(maxsplit=1)[0]
    return int(word) if word.isdigit() else word


def _line(target: Target, word: str, values: dict[str, object]) -> str:
    return " ".join([str(target), word, *(f"{name}={value}" for name, value in values.items())])
