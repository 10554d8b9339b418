# SPDX-License-Identifier: Apache-2.0
"""Do the devices of a claim satisfy its matchAttribute and distinctAttribute constraints?

`matchAttribute`: all devices have one value in common. `distinctAttribute`: no two devices have a value in common. With
the feature DRAListTypeAttributes each device has a set of values: all sets must have a common value, or no two sets may
have one. Without the feature each device has one value. A list is then a value of unknown type, which equals nothing: a
device with a list satisfies the constraint only if it is the first device.

More devices cannot repair a violated constraint. So the search stops at the first violation.
Source: k8s.io/dynamic-resource-allocation/structured/internal/experimental/{allocator_experimental,constraint}.go.
"""

from collections.abc import Callable

from dra_driver.allocator.devices import AttributeValues, SliceDevice, ValueType
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.requests import Request, object_name
from dra_driver.allocator.selectors import Selectors
from dra_driver.cel.cancellation import Check
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.resource_slice import DeviceAttribute

UNKNOWN: AttributeValues = ("unknown", frozenset())
"""The value of an attribute whose type this implementation does not know."""


class AttributeLookup:
    """Finds the values of an attribute. If the request derives an attribute, its value is used instead of a published one (lookupAttribute)."""

    def __init__(self, selectors: Selectors, rules: Rules, cancelled: Check) -> None:
        self._selectors = selectors
        self._cancelled = cancelled
        self.read: Callable[[DeviceAttribute], AttributeValues] = (
            set_of if rules.list_attributes else scalar_of
        )

    def values(self, request: Request, device: SliceDevice, name: str) -> AttributeValues | None:
        """Return the values of the attribute `name`. None if the device does not have the attribute."""
        if name in request.derived:
            # Another request may derive the attribute by another expression, so this value is not kept in the device.
            attribute = self._selectors.derived_attribute(
                name, request.derived[name], device, self._cancelled
            )
            return self.read(attribute)
        known = device.compared
        if name not in known:
            found = device.attribute(name)
            known[name] = None if found is None else self.read(found)
        return known[name]


class _Constraint:
    """A constraint on one attribute for some requests of a claim, or for all of them if `requests` is empty."""

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        self.attribute = attribute
        self.requests = requests
        # One entry for each device that the search added. The search removes the last entry when it goes back.
        self.accepted: list[AttributeValues] = []
        self._lists = lists

    def applies(self, request: Request) -> bool:
        """Return whether the constraint applies to the devices of the request."""
        return not self.requests or not self.requests.isdisjoint(request.names)


class MatchAttribute(_Constraint):
    """All devices have one value in common. `accepted[-1]` is the set of values that are still possible."""

    def admits(self, values: AttributeValues) -> AttributeValues | None:
        """Return the common values if a device with these values is added. None if the device violates the constraint."""
        # Without list attributes, upstream stores the first attribute and does not check its type. Only the comparison with
        # the second device fails for an unknown type.
        if values is UNKNOWN and (self._lists or self.accepted):
            return None
        if not self.accepted:
            return values
        kind, common = self.accepted[-1]
        narrowed = common & values[1]
        return (kind, narrowed) if kind == values[0] and narrowed else None


class DistinctAttribute(_Constraint):
    """No two devices have a value in common. `accepted` has the values of each device."""

    def admits(self, values: AttributeValues) -> AttributeValues | None:
        """Return the same values if a device with these values can be added. None if another device has one of them."""
        if values is UNKNOWN and (self._lists or self.accepted):
            return None
        kind, own = values
        if any(kind == other_kind and own & other for other_kind, other in self.accepted):
            return None
        return values


AnyConstraint = MatchAttribute | DistinctAttribute


def constraints_of(claim: ResourceClaim, rules: Rules) -> list[AnyConstraint]:
    """Return the constraints of a claim. Raises AllocationError if the implementation does not know the type of a constraint."""
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


def set_of(attribute: DeviceAttribute) -> AttributeValues:
    """Return the set of values of an attribute: the elements of a list, or the single value (attributeAsSet)."""
    lists: tuple[tuple[ValueType, list[int] | list[bool] | list[str] | None], ...] = (
        ("int", attribute.int_values),
        ("bool", attribute.bool_values),
        ("string", attribute.string_values),
        ("version", attribute.version_values),
    )
    for kind, values in lists:
        if values:
            return kind, frozenset(values)
    return scalar_of(attribute)


def scalar_of(attribute: DeviceAttribute) -> AttributeValues:
    """Return the single value of an attribute, as a set of one. UNKNOWN for a list. Upstream compares versions as strings."""
    if attribute.string_value is not None:
        return "string", frozenset({attribute.string_value})
    if attribute.int_value is not None:
        return "int", frozenset({attribute.int_value})
    if attribute.bool_value is not None:
        return "bool", frozenset({attribute.bool_value})
    if attribute.version_value is not None:
        return "version", frozenset({attribute.version_value})
    return UNKNOWN
