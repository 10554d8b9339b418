# SPDX-License-Identifier: Apache-2.0
"""Where does a stored slice differ from the one that the driver would write?

The whole object is compared, also fields that are newer than this driver: the scheduler obeys a field no matter who wrote it.
Two things are left out: what the server sets itself (UIDs, versions, times), and labels and annotations, which anybody may add.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.model.quantity import Quantity

SERVER_MADE = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
        "generateName",
    }
)
EVERYBODYS = frozenset({"labels", "annotations"})
ABSENT = ""  # instead of JSON text: the driver would write something here, and the stored slice has nothing


def find_unlike(found: Mapping[str, Any], ours: Mapping[str, Any]) -> Mapping[str, str]:
    """By path, the value in `found` as JSON text, for each place where `ours` has another value."""
    return dict(_differences("", _compared(found), _compared(ours)))


def _compared(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    kept = {
        key: value
        for key, value in (metadata if isinstance(metadata, Mapping) else {}).items()
        if key not in SERVER_MADE | EVERYBODYS
    }
    # Items of a list have no kind and apiVersion, so these are not compared. Every other key is.
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {**rest, "metadata": kept}


def _differences(path: str, found: object, ours: object) -> Iterator[tuple[str, str]]:
    if _is_nothing(found) and _is_nothing(ours):
        return  # null, [] and {} mean the same to the API server
    if isinstance(found, Mapping) and isinstance(ours, Mapping):
        for key in sorted(found.keys() | ours.keys()):
            yield from _differences(_below(path, key), found.get(key), ours.get(key))
    elif isinstance(found, list) and isinstance(ours, list) and len(found) == len(ours):
        for index, (entry, our) in enumerate(zip(found, ours, strict=True)):
            yield from _differences(f"{path}[{_name(entry, index)}]", entry, our)
    elif not _same(path, found, ours):
        yield path, ABSENT if _is_nothing(found) else json.dumps(found, sort_keys=True)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _name(entry: object, index: int) -> str | int:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else index


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, list | Mapping) and not value)


def _same(path: str, found: object, ours: object) -> bool:
    if type(found) is not type(ours):
        return False  # Python says True == 1, JSON does not
    return found == ours or (path.endswith(".value") and _same_quantity(str(found), str(ours)))


def _same_quantity(found: str, ours: str) -> bool:
    try:
        return Quantity.parse(found) == Quantity.parse(ours)
    except ValueError:
        return False
