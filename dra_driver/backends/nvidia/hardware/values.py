# SPDX-License-Identifier: Apache-2.0
"""Answers of the library that are no plain numbers: field values, and the fabric's structure in its versions."""

import ctypes
from collections.abc import Sequence
from typing import Any

from dra_driver.backends.nvidia.facts import Fabric
from dra_driver.backends.nvidia.hardware.ask import Asker
from dra_driver.backends.nvidia.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    OTHER_VERSION,
    UNKNOWN,
)

# nvmlValueType_t
_NUMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_FABRIC = "nvmlDeviceGetGpuFabricInfo"
_VERSIONS = {
    3: ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    2: ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    1: ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
}
RECOVERY_ACTION = 230
ECC_UNCORRECTED = 4  # ECC_DBE_VOL_TOTAL
REMAPPED = (142, 143, 144, 145)  # correctable, uncorrectable, pending, failure
RETIRED_PENDING = 31
LINK_COUNT, LINK_STATE = 91, 165
FACTS = {
    RECOVERY_ACTION: "nvmlDeviceGetFieldValues",
    ECC_UNCORRECTED: "nvmlDeviceGetTotalEccErrors",
    REMAPPED[0]: "nvmlDeviceGetRemappedRows",
}
"""In `errors`: the functions that ask for the same, each with a call of its own."""


def field_values(
    asker: Asker, handle: Any, fields: Sequence[int | tuple[int, int]]
) -> list[int | None]:
    """Ask for many fields in one call; a tuple is a field and its scope, for example a link. None where a field failed."""
    for name in FACTS.values():
        asker.errors.pop(name, None)
    values = asker.ask("nvmlDeviceGetFieldValues", handle, list(fields))
    if values is None:
        return [None] * len(fields)
    return [_value(asker, field, value) for field, value in zip(fields, values, strict=True)]


def _value(asker: Asker, field: int | tuple[int, int], value: Any) -> int | None:
    kind = _NUMBERS.get(value.valueType)
    if not value.nvmlReturn and kind is not None:
        return int(getattr(value.value, kind))
    if isinstance(field, int) and field in FACTS:
        asker.errors[FACTS[field]] = value.nvmlReturn or UNKNOWN
    return None


def fabric(nvml: Any, asker: Asker, handle: Any, version: int) -> tuple[Fabric | None, int | None]:
    """Ask in one version of the structure. The other value is the version to ask next time; None: the board has no fabric."""
    function, structure = _VERSIONS[version]
    room = getattr(nvml, structure)()
    if asker.ask(function, handle, ctypes.byref(room), fact=_FABRIC) is None:
        return None, _next(asker.errors[_FABRIC], version)
    return Fabric(
        state=room.state,
        status=room.status,
        cluster_uuid=_uuid(bytes(room.clusterUuid)),
        clique_id=room.cliqueId,
        health_mask=getattr(room, "healthMask", None),
        health_summary=getattr(room, "healthSummary", None),
    ), version


def _next(code: int, version: int) -> int | None:
    if code in {FUNCTION_NOT_FOUND, OTHER_VERSION}:
        return version - 1 or None
    return None if code == NOT_SUPPORTED else version


def _uuid(value: bytes) -> str:
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
