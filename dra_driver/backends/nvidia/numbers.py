# SPDX-License-Identifier: Apache-2.0
"""What do NVML's numbers mean? The words are those of NVIDIA's driver, because DeviceClasses compare with them.

A number that this release does not know gives UNKNOWN: a new board costs no attribute and no device.
"""

import re
from collections.abc import Mapping

UNKNOWN = "Unknown"
NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED: the board has no such thing."""
FUNCTION_NOT_FOUND = 13
"""NVML_ERROR_FUNCTION_NOT_FOUND: the library is older than the function."""

BRANDS: Mapping[int, str] = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
ARCHITECTURES: Mapping[int, str] = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
ADDRESSING_MODES: Mapping[int, str] = {0: "None", 1: "HMM", 2: "ATS"}
FABRIC_COMPLETED = 3
GPU_LINK, SWITCH_LINK = 0, 2
"""nvmlIntNvLinkDeviceType_t: what is at the other end of a link."""

GRAPHICS = "+gfx"
MIG_ATTRIBUTES: Mapping[int, str] = {
    7: "+me",
    8: "+me",
    10: GRAPHICS,
    11: GRAPHICS,
    12: GRAPHICS,
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: GRAPHICS,
}
"""By the number of a GPU instance profile (nvml.h: NVML_GPU_INSTANCE_PROFILE_…): what its name has after the size."""

_PARTS = 3
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,2}", re.ASCII)


def semver(text: str) -> str:
    """Return a driver version as a semantic version: 535.183.06 is 535.183.6; empty if it is no version of at most three numbers."""
    if not _VERSION.fullmatch(text):
        return ""
    numbers = [int(part) for part in text.split(".")]
    numbers += [0] * (_PARTS - len(numbers))
    return ".".join(map(str, numbers))


def cuda_version(number: int) -> str:
    """Return NVML's number of a CUDA version as a semantic version: 12040 is 12.4.0."""
    return f"{number // 1000}.{number % 1000 // 10}.0"
