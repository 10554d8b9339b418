# SPDX-License-Identifier: Apache-2.0
"""Which attributes and capacities of a device does an expression read?

Most selectors read a few attributes by name; such a read is a path here. If an expression reads `device` only by paths, two
devices with equal values at these paths have the same result. So one evaluation is enough for both.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    StructLiteral,
)
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

DeviceField = Literal["driver", "attributes", "capacity", "allowMultipleAllocations"]
_INDEX = ("_[_]", "_[?_]")


class DevicePath(Struct, frozen=True, order=True):
    """A read of a device in an expression: `device.driver`, or `device.attributes["domain"].name`."""

    kind: DeviceField
    domain: str = ""
    name: str = ""

    def shown(self, driver: str) -> str:
        """Return the name for messages. If the domain equals `driver`, the name is without the domain."""
        if not self.name:
            return self.kind
        return self.name if self.domain in (driver, "") else f"{self.domain}/{self.name}"


def path_of(part: Expr) -> DevicePath | None:
    """Return the path if the expression is exactly one path, else None."""
    outer = _step(part)
    if outer is None:
        return None
    operand, name = outer
    if _is_device(operand):
        if name == "driver":
            return DevicePath("driver")
        return (
            DevicePath("allowMultipleAllocations") if name == "allowMultipleAllocations" else None
        )
    middle = _step(operand)
    inner = None if middle is None else _step(middle[0])
    if middle is None or inner is None or not _is_device(inner[0]):
        return None
    if inner[1] == "attributes":
        return DevicePath("attributes", middle[1], name)
    return DevicePath("capacity", middle[1], name) if inner[1] == "capacity" else None


def domain_of(part: Expr) -> tuple[DeviceField, str] | None:
    """Return the kind and the domain if the expression is a whole domain, as in `"x" in device.attributes["domain"]`."""
    outer = _step(part)
    inner = None if outer is None else _step(outer[0])
    if outer is None or inner is None or not _is_device(inner[0]):
        return None
    if inner[1] == "attributes":
        return "attributes", outer[1]
    return ("capacity", outer[1]) if inner[1] == "capacity" else None


def paths(root: Expr) -> frozenset[DevicePath] | None:
    """Return all paths that the expression reads. Returns None if it also uses `device` in another way."""
    found: set[DevicePath] = set()
    todo = [root]
    while todo:
        part = todo.pop()
        path = path_of(part)
        if path is not None:
            found.add(path)
        elif _is_device(part):
            return None
        else:
            todo.extend(children(part))
    return frozenset(found)


def children(part: Expr) -> Iterator[Expr]:
    """Return the direct children of a node."""
    match part:
        case Select():
            yield part.operand
        case Call():
            if part.target is not None:
                yield part.target
            yield from part.args
        case ListLiteral():
            yield from part.elements
        case MapLiteral():
            for entry in part.entries:
                yield from (entry.key, entry.value)
        case StructLiteral():
            yield from (field.value for field in part.fields)
        case Comprehension():
            yield from (part.iter_range, part.accu_init, part.loop_condition)
            yield from (part.loop_step, part.result)
        case _:
            return


def names(kind: DeviceField, domain: str, driver: str, device: Device) -> dict[str, object]:
    """Return the published values of a device in one domain, by the name in expressions."""
    published = device.attributes if kind == "attributes" else device.capacity
    answer: dict[str, object] = {}
    for qualified, value in (published or {}).items():
        prefix, slash, bare = qualified.partition("/")
        if (prefix if slash else driver) == domain:
            answer[bare if slash else prefix] = value
    return answer


def value_at(path: DevicePath, driver: str, device: Device) -> object:
    """Return the published value at a path. Returns None if the device does not have it."""
    if path.kind == "driver":
        return driver
    if path.kind == "allowMultipleAllocations":
        return bool(device.allow_multiple_allocations)
    published = device.attributes if path.kind == "attributes" else device.capacity
    if not published:
        return None
    found: object = published.get(f"{path.domain}/{path.name}")
    if found is None and path.domain == driver:
        found = published.get(path.name)
    return found


def is_version(published: object) -> bool:
    """Return whether a published value is an attribute that is a version."""
    return isinstance(published, DeviceAttribute) and published.version_value is not None


def version_in(published: object) -> str:
    """Return the version of a published attribute; "" if it has another value."""
    return (published.version_value or "") if isinstance(published, DeviceAttribute) else ""


def _is_device(part: Expr) -> bool:
    return isinstance(part, Identifier) and part.name in ("device", ".device")


def _step(part: Expr) -> tuple[Expr, str] | None:
    """Return the operand and the name of `.name`, `["name"]`, `.?name` or `[?"name"]`. Returns None for other expressions."""
    match part:
        case Select(operand=operand, field=field):
            return operand, field
        case Call(function=function, args=(operand, Constant(value=str(key))), target=None) if (
            function in _INDEX or function == "_?._"
        ):
            return operand, key
    return None
