# SPDX-License-Identifier: Apache-2.0
"""The modes of a GPU that a claim may set: the compute mode, and how long a process runs before another one does.

Both belong to the whole GPU, hold until the kernel driver lets go of it or the node reboots, and can be set again at any time. The
driver keeps no record of them: put back means compute mode DEFAULT and interval Default, whatever was there before.
"""

from dra_driver.backends.nvidia.config import INTERVALS
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.facts import Gpu
from dra_driver.errors import Permanent, Temporary

DEFAULT_MODE = 0
MODES = {0: "DEFAULT", 1: "EXCLUSIVE_THREAD", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
"""The compute modes: nvmlComputeMode_t."""


def take_turns(hardware: Hardware, gpu: Gpu, interval: int) -> None:
    """Let processes share a GPU, each for one time slice. Raises Temporary, or Permanent if the GPU or the node cannot do it."""
    hardware.set_compute_mode(gpu.uuid, DEFAULT_MODE)
    try:
        hardware.set_time_slice(gpu.uuid, interval)
    except Permanent as error:
        name = next(name for name, number in INTERVALS.items() if number == interval)
        raise Permanent(
            f"cannot set the time slice {name} of GPU {gpu.uuid}: {error}; remove timeSlicingConfig and strategy TimeSlicing from the "
            f"claim or its DeviceClass (several containers of a claim share its GPU without them too), or choose other nodes"
        ) from error


def put_back(hardware: Hardware, gpu: Gpu) -> None:
    """Put both modes back. Raises Temporary as long as one of them is not.

    If the time slice of this GPU cannot be set at all, it was never set either. A GPU that does not answer because it has gone keeps no
    mode.
    """
    try:
        hardware.set_compute_mode(gpu.uuid, DEFAULT_MODE)
    except Permanent as error:
        _complain(hardware, gpu.uuid, str(error))
    try:
        hardware.set_time_slice(gpu.uuid, INTERVALS["Default"])
    except Permanent:
        return


def _complain(hardware: Hardware, uuid: str, reason: str) -> None:
    """Raise Temporary if the GPU is there, and has another compute mode than it should."""
    found = next((one for one in hardware.look().gpus if one.uuid == uuid), None)
    mode = None if found is None or found.problem else found.compute_mode
    if mode is None or mode == DEFAULT_MODE:
        return
    raise Temporary(
        f"GPU {uuid} is in compute mode {MODES.get(mode, mode)}, and cannot be put back to DEFAULT: {reason}; the driver tries again. If "
        f"this stays, run `nvidia-smi -i {uuid} -c DEFAULT` on the node"
    )
