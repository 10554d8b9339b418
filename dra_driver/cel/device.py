# SPDX-License-Identifier: Apache-2.0
"""What is the variable `device` for a given device?

It has the fields driver, attributes, capacity and allowMultipleAllocations. Attributes and capacities are grouped by
domain: the part of the name before the slash, or the driver name. An unknown domain is an empty map, not an error. A
cluster has many devices, and most expressions read few fields. So a DeviceValue converts each of its two maps only when
an expression reads it. Versions and quantities repeat on many devices, so the parsers keep their results.
Source: k8s.io/dynamic-resource-allocation/cel/compile.go (DeviceMatches).
"""

from typing import Any, Generic, TypeVar

from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library.quantity import Quantity, parse_quantity
from dra_driver.cel.library.semver import Semver, parse_semver
from dra_driver.cel.values import PublishedList
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

Attribute = bool | int | str | Semver | PublishedList


Value = TypeVar("Value")


_NONE: dict[str, Any] = {}
_NO_DEVICE = Device()
_LONGEST = 64  # bytes of a text; a domain and an identifier are shorter
_LONGEST_NAME = 2 * _LONGEST


class DomainMap(dict[str, dict[str, Value]], Generic[Value]):
    """Values by domain and name. Reading an unknown domain returns an empty map, but `in` is false for this domain (cel.mapper)."""

    __slots__ = ()

    def __missing__(self, domain: str) -> dict[str, Value]:
        return _NONE  # One shared map is safe, because no expression can change it.


class DeviceValue:
    """The variable `device` for one device. One object serves any number of expressions.

    `published` is the device as in its slice, with all fields, also the fields that no expression can read.
    `list_values` says whether the release supports list attributes (`Environment.list_values`).
    """

    __slots__ = (
        "_list_values",
        "allow_multiple_allocations",
        "attributes",
        "capacity",
        "driver",
        "published",
        "short_texts",
    )
    short_texts: bool
    """Whether no name and no text is longer than the API server accepts."""
    attributes: DomainMap[Attribute]
    capacity: DomainMap[Quantity]

    def __init__(
        self,
        driver: str,
        published: Device = _NO_DEVICE,
        *,
        list_values: bool = True,
    ) -> None:
        self.driver = driver
        self.published = published
        self.allow_multiple_allocations = bool(published.allow_multiple_allocations)
        self._list_values = list_values

    def __getattr__(self, name: str) -> object:
        """Convert `attributes` or `capacity` on first use. Python calls this method only while the value does not exist."""
        if name == "attributes":
            self.attributes = self._convert_attributes()
            return self.attributes
        if name == "capacity":
            self.capacity = self._convert_capacity()
            return self.capacity
        if name == "short_texts":
            self.short_texts = (
                _are_short(self.attributes)
                and len(self.driver) <= _LONGEST
                and max(map(len, self.published.capacity or ()), default=0) <= _LONGEST_NAME
            )
            return self.short_texts
        raise AttributeError(name)

    def convert(self) -> None:
        """Convert the attributes now. Raises EvaluationError if one of them is invalid; upstream then fails every expression."""
        _ = self.attributes

    def as_map(self) -> dict[str, object]:
        """Return the device as a map, for expressions that hide its type: dyn(device)."""
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple_allocations,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }

    def _convert_attributes(self) -> DomainMap[Attribute]:
        """Return all attributes by domain and name."""
        # This loop runs for every attribute of every device, so the most common types (int, string) are read without a call.
        domains: DomainMap[Attribute] = DomainMap()
        own: dict[str, Attribute] = {}
        for name, attribute in (self.published.attributes or {}).items():
            value: Attribute | None = attribute.int_value
            if value is None and attribute.bool_value is None:
                value = attribute.string_value
            if (
                value is None
                or attribute.string_values is not None
                or attribute.int_values is not None
                or attribute.bool_values is not None
                or attribute.version_values is not None
            ):
                value = self._value(name, attribute)
            if "/" in name:
                domain, _, identifier = name.partition("/")
                domains.setdefault(domain, {})[identifier] = value
            else:
                own[name] = value
        if own:
            domains.setdefault(self.driver, {}).update(own)
        return domains

    def _value(self, name: str, attribute: DeviceAttribute) -> Attribute:
        try:
            return _with_lists(attribute) if self._list_values else _scalar(attribute)
        except EvaluationError as error:
            raise EvaluationError(f"attribute {name}: {error}") from error

    def _convert_capacity(self) -> DomainMap[Quantity]:
        domains: DomainMap[Quantity] = DomainMap()
        for name, capacity in (self.published.capacity or {}).items():
            _file(domains, name, self.driver, parse_quantity(str(capacity.value)))
        return domains


def _are_short(attributes: DomainMap[Attribute]) -> bool:
    """Return whether all names and texts are short. This can run for each device, so it uses plain loops."""
    for named in attributes.values():
        if max(map(len, named)) > _LONGEST:
            return False
        for value in named.values():
            if type(value) is str:
                if len(value) > _LONGEST:
                    return False
            elif isinstance(value, list) and not all(map(_is_short, value)):
                return False
    return max(map(len, attributes), default=0) <= _LONGEST


def _is_short(element: object) -> bool:
    return type(element) is not str or len(element) <= _LONGEST


def _file(domains: DomainMap[Value], name: str, driver: str, value: Value) -> None:
    if "/" in name:
        domain, _, identifier = name.partition("/")
    else:
        domain, identifier = driver, name
    if domain not in domains:
        domains[domain] = {}
    domains[domain][identifier] = value


def _with_lists(attribute: DeviceAttribute) -> Attribute:
    if attribute.int_values is not None:
        return PublishedList(attribute.int_values)
    if attribute.bool_values is not None:
        return PublishedList(attribute.bool_values)
    if attribute.string_values is not None:
        return PublishedList(attribute.string_values)
    if attribute.version_values is not None:
        return PublishedList(map(_version, attribute.version_values))
    return _scalar(attribute)


def _scalar(attribute: DeviceAttribute) -> Attribute:
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise EvaluationError("unsupported attribute value")


def _version(text: str) -> Semver:
    try:
        return parse_semver(text)
    except EvaluationError as error:
        raise EvaluationError(f"parse semantic version: {error}") from error
