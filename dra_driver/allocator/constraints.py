# SPDX-License-Identifier: Apache-2.0
"""What must the devices of a claim have in common, or not?

`matchAttribute` wants one value that all devices have, `distinctAttribute` wants no two to have the same. With list
attributes a device has a set of values: then all sets must meet in one value, or no two may meet. Without them a device
has a single value, and one that is a list is of an unknown kind: it may stand alone only.

A constraint that does not hold never holds again when more devices come, so the search may stop there.
Source: k8s.io/dynamic-resource-allocation/structured/internal/experimental/{allocator_experimental,constraint}.go.
"""

from collections.abc import Callable

from dra_driver.allocator.devices import Kind, SliceDevice, Values
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.requests import Request, object_name
from dra_driver.allocator.selectors import Selectors
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.resource_slice import DeviceAttribute

UNKNOWN: Values = ("unknown", frozenset())


class Lookup:
    """Finds the values of an attribute: what the request computes goes before what the driver published."""

    def __init__(self, selectors: Selectors, rules: Rules) -> None:
        self._selectors = selectors
        self.read: Callable[[DeviceAttribute], Values] = (
            set_of if rules.list_attributes else scalar_of
        )

    def values(self, request: Request, device: SliceDevice, name: str) -> Values | None:
        """The values, or None if the device does not have the attribute."""
        if name in request.derived:
            attribute = self._selectors.derived_attribute(name, request.derived[name], device)
            return self.read(attribute)
        known = device.compared
        if name not in known:
            found = device.attribute(name)
            known[name] = None if found is None else self.read(found)
        return known[name]


class _Constraint:
    """What the two kinds share."""

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        self.attribute = attribute
        self.requests = requests
        self.held: list[Values] = []
        self._lists = lists

    def applies(self, request: Request) -> bool:
        """Whether the devices of the request are under it."""
        return not self.requests or not self.requests.isdisjoint(request.names)


class MatchAttribute(_Constraint):
    """All devices have one value in common."""

    def admits(self, values: Values) -> Values | None:
        """The values that are still common to all; None if there would be none."""
        if values is UNKNOWN and (self._lists or self.held):
            return None
        if not self.held:
            return values
        kind, common = self.held[-1]
        narrowed = common & values[1]
        return (kind, narrowed) if kind == values[0] and narrowed else None


class DistinctAttribute(_Constraint):
    """No two devices have a value in common."""

    def admits(self, values: Values) -> Values | None:
        """The device's own values; None if another device has one of them."""
        if values is UNKNOWN and (self._lists or self.held):
            return None
        kind, own = values
        if any(kind == other_kind and own & other for other_kind, other in self.held):
            return None
        return values


AnyConstraint = MatchAttribute | DistinctAttribute


def constraints_of(claim: ResourceClaim, rules: Rules) -> list[AnyConstraint]:
    """The constraints of a claim, of kinds that the rules know."""
    found: list[AnyConstraint] = []
    for index, one in enumerate(claim.spec.devices.constraints or ()):
        requests = frozenset(one.requests or ())
        lists = rules.list_attributes
        if one.match_attribute is not None:
            found.append(MatchAttribute(one.match_attribute, requests, lists=lists))
        elif one.distinct_attribute is not None and rules.newer_than_stable:
            found.append(DistinctAttribute(one.distinct_attribute, requests, lists=lists))
        else:
            raise AllocationError(
                f"claim {object_name(claim.metadata)}, constraint #{index}:"
                " empty constraint (unsupported constraint type?)"
            )
    return found


def set_of(attribute: DeviceAttribute) -> Values:
    """The values of an attribute that may be a list."""
    lists: tuple[tuple[Kind, list[int] | list[bool] | list[str] | None], ...] = (
        ("int", attribute.int_values),
        ("bool", attribute.bool_values),
        ("string", attribute.string_values),
        ("version", attribute.version_values),
    )
    for kind, values in lists:
        if values:
            return kind, frozenset(values)
    return scalar_of(attribute)


def scalar_of(attribute: DeviceAttribute) -> Values:
    """The value of an attribute that is no list; versions are compared as text."""
    if attribute.string_value is not None:
        return "string", frozenset({attribute.string_value})
    if attribute.int_value is not None:
        return "int", frozenset({attribute.int_value})
    if attribute.bool_value is not None:
        return "bool", frozenset({attribute.bool_value})
    if attribute.version_value is not None:
        return "version", frozenset({attribute.version_value})
    return UNKNOWN
