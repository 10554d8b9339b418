# SPDX-License-Identifier: Apache-2.0
"""Is a GPU that no claim has free of its last user? No process computes on it, and its used memory is at its floor.

An idle GPU uses a few MiB, and every process that computes has a context of about 100 MiB or more. So the memory, which each look at a
GPU reads anyway, says whether to ask for processes. What is found is a sentence that stays the same while nothing changes: amounts are
whole GiB.

Four things are no sign of a process, and are left alone: a desktop (processes of kind "graphics"), memory that the kernel itself uses
(GPUs whose memory is a NUMA node of the machine), memory of a GPU with MIG devices: nothing says which device has it, and used memory
of a library that counts what the kernel driver keeps for itself as used: an idle GPU would never be clean.
"""

from collections.abc import Iterable, Sequence

from dra_driver.backends.nvidia.facts import Gpu, MigDevice, Process

COMPUTES = frozenset({"compute", "mps"})
_ATS = 2  # nvmlDeviceAddressingModeType_t: GPU and CPU share the page tables of the kernel
_GIB = 2**30
_MOST_NAMED = 3


def over_floor(gpu: Gpu, floor: int) -> bool:
    """Whether more memory of the GPU is used than an idle one uses. `floor` is in bytes. A GPU without memory of its own is not over it:
    then nothing is known.
    """
    return gpu.memory is not None and gpu.memory.used > floor


def computing(processes: Iterable[Process], mig: MigDevice | None = None) -> tuple[Process, ...]:
    """The processes that compute on a whole GPU, or on one of its MIG devices."""
    return tuple(
        one for one in processes if one.kind in COMPUTES and (mig is None or _is_on(one, mig))
    )


def left_on(
    gpu: Gpu, processes: Sequence[Process], floor: int, mig: MigDevice | None = None
) -> str:
    """What is left on a device that no claim has, as a sentence; empty if it is clean. `processes` are those of the whole GPU."""
    if found := computing(processes, mig):
        return _of_processes(found)
    if mig is not None or processes or gpu.addressing_mode == _ATS or not over_floor(gpu, floor):
        return ""
    if gpu.memory is None or gpu.memory.reserved is None:
        return ""
    return f"{_gib(gpu.memory.used)} of its memory are used, and no process is seen that does"


def _is_on(one: Process, mig: MigDevice) -> bool:
    return one.gpu_instance == mig.gpu_instance and one.compute_instance in (
        None,
        mig.compute_instance,
    )


def _of_processes(found: Sequence[Process]) -> str:
    pids = sorted({one.pid for one in found})
    named = ", ".join(map(str, pids[:_MOST_NAMED]))
    more = len(pids) - _MOST_NAMED
    if more > 0:
        named += f" and {more} more"
    return f"process {named} uses it" if len(pids) == 1 else f"processes {named} use it"


def _gib(amount: int) -> str:
    whole = round(amount / _GIB)
    return f"about {whole} GiB" if whole else "less than 1 GiB"
