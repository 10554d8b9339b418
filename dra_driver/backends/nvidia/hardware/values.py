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
)

# nvmlValueType_t
_NUMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_VERSIONS = {
    3: ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    2: ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    1: ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
}
_FIELDS = "nvmlDeviceGetFieldValues"


def field_values(
    asker: Asker, handle: Any, fields: Sequence[int | tuple[int, int]]
) -> list[int | None]:
    """Ask for many fields in one call; a tuple is a field and its scope, for example a link. None where a field failed."""
    values = asker.ask(_FIELDS, handle, list(fields))
    if values is None:
        return [None] * len(fields)
    return [_value(asker, field, value) for field, value in zip(fields, values, strict=False)]


def _value(asker: Asker, field: int | tuple[int, int], value: Any) -> int | None:
    name = f"{_FIELDS}:{field[0] if isinstance(field, tuple) else field}"
    if value.nvmlReturn:
        asker.errors[name] = value.nvmlReturn
        return None
    asker.errors.pop(name, None)
    kind = _NUMBERS.get(value.valueType)
    return None if kind is None else int(getattr(value.value, kind))


def fabric(nvml: Any, asker: Asker, handle: Any, version: int) -> tuple[Fabric | None, int | None]:
    """Ask in one version of the structure. The other value is the version to ask next time; None: the board has no fabric."""
    function, structure = _VERSIONS[version]
    room = getattr(nvml, structure)()
    if asker.ask(function, handle, ctypes.byref(room)) is None:
        return None, _next(asker.errors[function], version)
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
    """A UUID as text; empty if it is all zeros."""
    digits = value.hex()
    if not any(value):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
