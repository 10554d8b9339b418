# SPDX-License-Identifier: Apache-2.0
"""Which devices of the simulated machines and of NVIDIA's are the same hardware? A model of its own, which knows nothing of the driver's.

A GPU has eight memory slices. The name of a partition says where it is: `gpu-1-mig-2g-20gb-4`, or `gpu-1-mig-2g10gb-14-4` as NVIDIA's
driver writes it, has two slices of gpu-1, from the fourth on. Every other device is whole.
"""

import re

SLICES = 8
SIZES = {"1g-10gb": 1, "1g-20gb": 2, "2g-20gb": 2, "3g-40gb": 4, "4g-40gb": 4, "7g-80gb": 8}
SIZES |= {"1g5gb": 1, "2g10gb": 2, "3g20gb": 4}
_PARTITION = re.compile(r"(?P<gpu>.+)-mig-(?P<kind>\d+g-?\d+gb)(?:-\d+)?-(?P<start>\d)")


def gpu_of(device: str) -> str:
    """The GPU that the device is, or is a part of."""
    found = _PARTITION.fullmatch(device)
    return found["gpu"] if found else device


def is_partition(device: str) -> bool:
    """Whether the device is a part of a GPU."""
    return _PARTITION.fullmatch(device) is not None


def slices_of(device: str) -> range:
    """The memory slices of its GPU that the device has."""
    found = _PARTITION.fullmatch(device)
    if found is None:
        return range(SLICES)
    start = int(found["start"])
    return range(start, start + SIZES[found["kind"]])


def overlap(one: str, other: str) -> bool:
    """Whether both have a piece of hardware in common."""
    if gpu_of(one) != gpu_of(other):
        return False
    return bool({*slices_of(one)} & {*slices_of(other)})
