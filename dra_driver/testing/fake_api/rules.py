# SPDX-License-Identifier: Apache-2.0
"""Which ResourceSlices does the API server refuse?

`RULES` has the rules of the real server that the driver relies on. Each is a function from the spec of a slice (v1 form) to the
causes of a refusal. tests/contract checks every rule against this fake and against a real kube-apiserver. The fake does not enforce other rules
(shared counters, taints, binding conditions, capacity policies).
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from dra_driver.model.quantity import Quantity

Spec = dict[str, Any]

MAX_DEVICES = 128
MAX_DEVICES_WITH_TAINTS = 64
MAX_ATTRIBUTES_AND_CAPACITY = 32
MAX_TEXT_BYTES = 64
MAX_NAME = 253

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = r"(0|[1-9][0-9]*)"
_PRE_RELEASE = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
)
_KINDS_OF_VALUE = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_NODE_SELECTIONS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


class Cause(Struct, frozen=True):
    """One entry of a refusal's `details.causes`."""

    field: str
    reason: str
    message: str


def _invalid(field: str, value: object, why: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f'Invalid value: "{value}": {why}')


def _required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def _devices(spec: Spec) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, device in enumerate(spec.get("devices") or []):
        yield f"spec.devices[{index}]", device


def _attributes(spec: Spec) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, device in _devices(spec):
        for name, attribute in (device.get("attributes") or {}).items():
            yield f"{path}.attributes[{name}]", attribute


def driver_is_named(spec: Spec) -> Iterator[Cause]:
    if not spec.get("driver"):
        yield _required("spec.driver")


def pool_is_named(spec: Spec) -> Iterator[Cause]:
    name = spec.get("pool", {}).get("name", "")
    if not name:
        yield _required("spec.pool.name")
    for part in name.split("/") if name else ():
        if not _SUBDOMAIN.fullmatch(part):
            yield _invalid(
                "spec.pool.name",
                part,
                "a lowercase RFC 1123 subdomain must consist of lower case letters",
            )


def pool_generation_is_not_negative(spec: Spec) -> Iterator[Cause]:
    generation = spec.get("pool", {}).get("generation", 0)
    if generation < 0:
        yield Cause(
            "spec.pool.generation",
            "FieldValueInvalid",
            f"Invalid value: {generation}: must be greater than or equal to zero",
        )


def pool_has_slices(spec: Spec) -> Iterator[Cause]:
    count = spec.get("pool", {}).get("resourceSliceCount", 0)
    if count <= 0:
        yield Cause(
            "spec.pool.resourceSliceCount",
            "FieldValueInvalid",
            f"Invalid value: {count}: must be greater than zero",
        )


def exactly_one_node_selection(spec: Spec) -> Iterator[Cause]:
    chosen = [key for key in _NODE_SELECTIONS if spec.get(key)]
    why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not chosen:
        yield _required("spec", why)
    elif len(chosen) > 1:
        yield _invalid("spec", "{" + ", ".join(chosen) + "}", why)


def at_most_128_devices(spec: Spec) -> Iterator[Cause]:
    devices = spec.get("devices") or []
    limited = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = MAX_DEVICES_WITH_TAINTS if limited else MAX_DEVICES
    if len(devices) > limit:
        yield Cause(
            "spec.devices",
            "FieldValueTooMany",
            f"Too many: {len(devices)}: must have at most {limit} items",
        )


def device_names_are_labels(spec: Spec) -> Iterator[Cause]:
    for path, device in _devices(spec):
        name = device.get("name", "")
        if not name:
            yield _required(f"{path}.name")
        elif not _LABEL.fullmatch(name) or len(name) > 63:
            yield _invalid(
                f"{path}.name",
                name,
                "a lowercase RFC 1123 label must consist of lower case letters",
            )


def device_names_are_unique(spec: Spec) -> Iterator[Cause]:
    seen: set[str] = set()
    for path, device in _devices(spec):
        name = device.get("name", "")
        if name in seen:
            yield Cause(path, "FieldValueDuplicate", f'Duplicate value: "{name}"')
        seen.add(name)


def at_most_32_attributes_and_capacities(spec: Spec) -> Iterator[Cause]:
    for path, device in _devices(spec):
        count = len(device.get("attributes") or {}) + len(device.get("capacity") or {})
        if count > MAX_ATTRIBUTES_AND_CAPACITY:
            limit = MAX_ATTRIBUTES_AND_CAPACITY
            why = f"the total number of attributes and capacities must not exceed {limit}"
            yield Cause(path, "FieldValueInvalid", f"Invalid value: {count}: {why}")


def names_are_qualified(spec: Spec) -> Iterator[Cause]:
    for path, device in _devices(spec):
        for field in ("attributes", "capacity"):
            for name in device.get(field) or {}:
                domain, slash, identifier = name.rpartition("/")
                wrong_domain = slash and (not _SUBDOMAIN.fullmatch(domain) or len(domain) > 63)
                if wrong_domain or not _IDENTIFIER.fullmatch(identifier) or len(identifier) > 32:
                    yield _invalid(
                        f"{path}.{field}",
                        name,
                        "a valid C identifier must start with a letter or '_'",
                    )


def attributes_have_one_value(spec: Spec) -> Iterator[Cause]:
    for path, attribute in _attributes(spec):
        kinds = [kind for kind in _KINDS_OF_VALUE if attribute.get(kind) is not None]
        if len(kinds) != 1:
            word = "exactly one of" if kinds else "one of"
            yield _invalid(
                path,
                "{" + ", ".join(kinds) + "}" if kinds else "",
                f"must specify {word}: int, bool, string, version",
            )


def texts_are_short(spec: Spec) -> Iterator[Cause]:
    for path, attribute in _attributes(spec):
        for kind in ("string", "version"):
            if len(str(attribute.get(kind) or "").encode()) > MAX_TEXT_BYTES:
                yield Cause(
                    f"{path}.{kind}",
                    "FieldValueTooLong",
                    f"Too long: may not be more than {MAX_TEXT_BYTES} bytes",
                )


def versions_are_semantic(spec: Spec) -> Iterator[Cause]:
    for path, attribute in _attributes(spec):
        version = attribute.get("version")
        if version is not None and not _SEMVER.fullmatch(version):
            yield _invalid(
                f"{path}.version", version, "must be a string compatible with semver.org spec 2.0.0"
            )


Rule = Callable[[Spec], Iterator[Cause]]

RULES: tuple[Rule, ...] = (
    driver_is_named,
    pool_is_named,
    pool_generation_is_not_negative,
    pool_has_slices,
    exactly_one_node_selection,
    at_most_128_devices,
    device_names_are_labels,
    device_names_are_unique,
    at_most_32_attributes_and_capacities,
    names_are_qualified,
    attributes_have_one_value,
    texts_are_short,
    versions_are_semantic,
)


def check_slice(spec: Spec) -> list[Cause]:
    """Return all causes to refuse this slice; empty if it is valid."""
    return [cause for rule in RULES for cause in rule(spec)]


def check_name(name: str) -> list[Cause]:
    """Return the causes to refuse the name of an object. The rule is the same for all kinds that the fake has."""
    if _SUBDOMAIN.fullmatch(name) and len(name) <= MAX_NAME:
        return []
    why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
    return [_invalid("metadata.name", name, why)]


def normalise_slice(spec: Spec) -> str | None:
    """Replace quantities by their canonical form, as the server does. Returns the first text that is no quantity, if any."""
    for path, device in _devices(spec):
        for name, entry in (device.get("capacity") or {}).items():
            try:
                entry["value"] = str(Quantity.parse(str(entry.get("value", "0"))))
            except ValueError as error:
                return f"{path}.capacity[{name}].value: {error}"
    return None


def fill_in_slice(spec: Spec, *, now: str) -> None:
    """Add the server's defaults to a slice: a taint without a time gets the present time."""
    for _path, device in _devices(spec):
        for taint in device.get("taints") or []:
            taint.setdefault("timeAdded", now)
