# SPDX-License-Identifier: Apache-2.0
"""Which attributes and capacities have devices, and of which type is each? From the vocabulary, and from the slices of a cluster."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from dra_driver.cel.reasons.paths import DeviceField, DevicePath, version_in
from dra_driver.cel.reasons.similar import likely_attribute, meant, question
from dra_driver.cel.syntax.amounts import is_memory
from dra_driver.check.given import Known
from dra_driver.model.vocabulary import ATTRIBUTES, CAPACITIES

_STANDARD = "resource.kubernetes.io"
_KINDS = {"int": "int", "bool": "bool", "string": "string", "version": "version"}
_OF_NVIDIA = {
    **dict.fromkeys(("partition1", "partition2", "partition4", "partition8"), "int"),
    "gpuModuleId": "int",
}
"""The attributes that only NVIDIA's own driver has, with its feature gate FabricManagerPartitioning."""
_CAPACITIES_OF_NVIDIA = {"shares": "quantity"}
"""The same with ConsumableShares."""

_ANY_AMOUNT = '.compareTo(quantity("…")) >= 0, with the amount'


class Names(Struct, frozen=True):
    """The names of each domain with their types. A domain that is not in it is somebody else's, and nothing is said about it."""

    attributes: Mapping[str, Mapping[str, str]]
    capacity: Mapping[str, Mapping[str, str]]
    published: frozenset[tuple[DeviceField, str, str]] = frozenset()
    """The names that devices of the cluster have: kind, domain and name."""
    versions: Mapping[DevicePath, Collection[str]] = {}
    """The versions that devices of the cluster have, by attribute."""

    def has(self, path: DevicePath, version: str) -> bool:
        """Return whether a device of the cluster has this version."""
        return version in self.versions.get(path, ())

    def of(self, kind: DeviceField, domain: str) -> Mapping[str, str] | None:
        """Return the names of a domain with their types; None if the domain is not known."""
        return (self.attributes if kind == "attributes" else self.capacity).get(domain)

    def kind_of(self, path: DevicePath) -> str:
        """Return the type of an attribute or capacity; "" if it is not known."""
        return (self.of(path.kind, path.domain) or {}).get(path.name, "")

    def problem(self, path: DevicePath, written: str = "") -> tuple[str, str]:
        """Return why nobody has this name and what was meant; two times "" if somebody may have it.

        `written` is what follows the name as a capacity for the condition that stands there; "" if that is not known.
        """
        known = self.of(path.kind, path.domain)
        what = "attribute" if path.kind == "attributes" else "capacity"
        if known is None:
            return self._domain_problem(path, what)
        if path.name in known:
            return "", ""
        other: DeviceField = "capacity" if path.kind == "attributes" else "attributes"
        elsewhere = self.of(other, path.domain) or {}
        if path.name in elsewhere:
            right = f'device.{other}["{path.domain}"].{path.name}'
            if other == "capacity":  # which cannot be compared with a number
                unit = " and its unit, as in 40Gi" if is_memory(path.name) else ""
                right += written or f"{_ANY_AMOUNT}{unit}"
            return f"{path.name} is no {what}", f"write {right}"
        message = f"no device of {path.domain} has the {what} {path.name}"
        if path.name in (self.of(path.kind, _STANDARD) or {}):
            return message, f'write device.{path.kind}["{_STANDARD}"].{path.name}'
        # What no device of the cluster has was not meant.
        there = [one for one in known if (path.kind, path.domain, one) in self.published]
        there = there or list(known)
        near = question(likely_attribute(path.name, there))
        return message, near or f"known are {', '.join(there)}"

    def _domain_problem(self, path: DevicePath, what: str) -> tuple[str, str]:
        """Return the problem of a domain that nobody has. A domain with a dot may be that of a driver that is not known here."""
        domains = self.attributes if path.kind == "attributes" else self.capacity
        if "." in path.domain:
            near = meant(path.domain, list(domains))
            return (f"no known driver has the domain {path.domain}", near) if near else ("", "")
        for domain, known in domains.items():
            if path.domain in known:
                right = f'device.{path.kind}["{domain}"].{path.domain}'
                return f'"{path.domain}" is no domain', f"write for example {right}"
        return (
            f'"{path.domain}" is no domain of a driver',
            f"write the driver's name before the {what}",
        )


def names_of(known: Known) -> Names:
    """Return all names that devices may have."""
    attributes: dict[str, dict[str, str]] = {_STANDARD: {}}
    capacity: dict[str, dict[str, str]] = {}
    versions: dict[DevicePath, set[str]] = {}
    for driver in known.drivers:
        for term in ATTRIBUTES:
            domain, name = _qualified(term.name, driver)
            attributes.setdefault(domain, {})[name] = term.kind
        capacity[driver] = {term.name: term.kind for term in CAPACITIES}
        if not known.is_ours(driver):
            attributes[driver] |= _OF_NVIDIA
            capacity[driver] |= _CAPACITIES_OF_NVIDIA
    published: set[tuple[DeviceField, str, str]] = set()
    for one in known.state.resource_slices if known.state else ():
        for device in one.spec.devices or ():
            for qualified, value in (device.attributes or {}).items():
                domain, name = _qualified(qualified, one.spec.driver)
                published.add(("attributes", domain, name))
                kind = next(iter(msgspec.to_builtins(value)), "")
                attributes.setdefault(domain, {}).setdefault(name, _KINDS.get(kind, ""))
                if version := version_in(value):
                    path = DevicePath("attributes", domain, name)
                    versions.setdefault(path, set()).add(version)
            for qualified in device.capacity or {}:
                domain, name = _qualified(qualified, one.spec.driver)
                published.add(("capacity", domain, name))
                capacity.setdefault(domain, {}).setdefault(name, "quantity")
    return Names(attributes, capacity, frozenset(published), versions)


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, bare = name.rpartition("/")
    return (domain, bare) if slash else (driver, name)
