# SPDX-License-Identifier: Apache-2.0
"""How does the result of a derived attribute's expression become a DeviceAttribute?

Constraints compare a derived attribute like a published one. So the result must be a bool, an int, a string, a version, or
a list of values of one of these types. An empty list has no element type; it becomes a list of strings, as upstream.
Source: k8s.io/dynamic-resource-allocation/cel/compile.go (valToDeviceAttribute).
"""

import msgspec

from dra_driver.cel import values
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library.semver import Semver
from dra_driver.cel.values import Optional, TypeValue
from dra_driver.model.api.resource_slice import DeviceAttribute

_GO_NAMES = {
    values.INT: "int64",
    values.UINT: "uint64",
    values.DOUBLE: "float64",
    values.BYTES: "[]uint8",
    values.NULL: "structpb.NullValue",
    values.DURATION: "time.Duration",
    values.TIMESTAMP: "time.Time",
    values.LIST: "[]ref.Val",
    values.MAP: "map[ref.Val]ref.Val",
    values.OPTIONAL: "<nil>",
    "kubernetes.Semver": "semver.Version",
    "kubernetes.Quantity": "*resource.Quantity",
    "kubernetes.URL": "*url.URL",
    "kubernetes.NamedFormat": "cel.Format",
    "net.IP": "netip.Addr",
    "net.CIDR": "netip.Prefix",
}


def device_attribute(value: object) -> DeviceAttribute:
    """Return the attribute with this value. Raises EvaluationError if an attribute cannot have a value of this type."""
    if isinstance(value, list):
        return _list(value)
    found = _plain(value)
    if isinstance(found, bool):
        return DeviceAttribute(bool_value=found)
    if type(found) is int:
        return DeviceAttribute(int_value=found)
    if isinstance(found, str):
        return DeviceAttribute(string_value=found)
    if isinstance(found, Semver):
        return DeviceAttribute(version_value=str(found))
    raise EvaluationError(f"unsupported CEL return type: {_go_name(value)}")


def _list(elements: list[object]) -> DeviceAttribute:
    if not elements:
        return DeviceAttribute(string_values=[])
    first = _plain(elements[0])
    for kind, name, field in _LISTS:
        if type(first) is kind:
            return msgspec.convert({field: _all(kind, name, elements)}, DeviceAttribute)
    raise EvaluationError(f"unsupported list element type: {_go_name(elements[0])}")


def _all(kind: type, name: str, elements: list[object]) -> list[object]:
    for index, element in enumerate(elements):
        if type(_plain(element)) is not kind:
            found = _go_name(element)
            message = f"expected list element at index {index} to be {name}, got {found}"
            raise EvaluationError(message)
    return [str(element) if kind is Semver else _plain(element) for element in elements]


_LISTS: tuple[tuple[type, str, str], ...] = (
    (bool, "bool", "bools"),
    (int, "int", "ints"),
    (str, "string", "strings"),
    (Semver, "semver", "versions"),
)


def _plain(value: object) -> object:
    """Return the value without its CEL wrapper: the value of an optional, the name of a type.

    Upstream calls ref.Val.Value(), which returns these.
    """
    while isinstance(value, Optional) and value.present:
        value = value.value
    return value.name if isinstance(value, TypeValue) else value


def _go_name(value: object) -> str:
    """Return the name of the Go type that upstream writes into the error message."""
    plain = _plain(value)
    kind = values.kind(plain)
    return _GO_NAMES.get(kind, kind)
