# SPDX-License-Identifier: Apache-2.0
"""How is a DeviceClass read that an admin wrote into a file? Strictly: no API server has looked at it.

A field with a wrong name would be a missing one, and a class without its selector selects every device. So each mistake is told, with
the path of its field. All versions have the same form. The metadata may have any field: people also copy objects from a cluster.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.kube.wire.objects import Unreadable, load
from dra_driver.model.api.resource_claim import GROUP, DeviceClass, DeviceClassSpec
from dra_driver.model.decoding import Mistake, decode, shown
from dra_driver.model.plugin import RESOURCE_PATTERN

VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
KIND = "DeviceClass"
_OTHER_KINDS = (
    *("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
    *("DeviceTaintRule", "ResourcePoolStatusRequest"),
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_class(document: Mapping[str, Any]) -> bool:
    """Whether it is meant as a DeviceClass: an object of another group has another meaning."""
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    return document.get("kind") == KIND and group in ("", GROUP)


def is_mistyped(document: Mapping[str, Any]) -> bool:
    """Whether it is of the group of DeviceClasses, and of a kind that this group does not have."""
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    return group == GROUP and document.get("kind") not in (KIND, *_OTHER_KINDS)


def read_class(document: Mapping[str, Any]) -> tuple[DeviceClass | None, tuple[Mistake, ...]]:
    """The class, or None and all mistakes."""
    known = {"apiVersion", "kind", "metadata", "spec"}
    mistakes = [
        Mistake(shown(name)[1:-1], f"unknown field; known are {', '.join(sorted(known))}")
        for name in document
        if name not in known
    ]
    mistakes += _of_head(document)
    spec = document.get("spec") or {}
    mistakes += decode(spec, DeviceClassSpec, "spec")[1] or _of_spec(spec)
    if mistakes:
        return None, tuple(mistakes)
    try:
        return load(DeviceClass, document), ()
    except Unreadable as error:
        return None, (Mistake("", str(error)),)


def _of_head(document: Mapping[str, Any]) -> Iterator[Mistake]:
    version = document.get("apiVersion")
    allowed = [f"{GROUP}/{each}" for each in VERSIONS]
    if version not in allowed:
        found = "missing;" if version is None else f"{shown(version)}"
        yield Mistake("apiVersion", f"{found} must be one of {', '.join(allowed)}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        found = "missing;" if name is None else shown(name)
        yield Mistake("metadata.name", f"{found} must be a lower-case DNS name")


def _of_spec(spec: Mapping[str, Any]) -> Iterator[Mistake]:
    """What an API server checks of fields that have the right type."""
    for index, selector in enumerate(spec.get("selectors") or ()):
        if not (selector.get("cel") or {}).get("expression"):
            path = f"spec.selectors[{index}].cel.expression"
            yield Mistake(path, "missing; it must be a CEL expression about `device`")
    for index, entry in enumerate(spec.get("config") or ()):
        opaque = entry.get("opaque") or {}
        for key, what in (("driver", "the name of a driver"), ("parameters", "an object")):
            if not opaque.get(key):
                yield Mistake(f"spec.config[{index}].opaque.{key}", f"missing; it must be {what}")
    resource = spec.get("extendedResourceName")
    if resource is not None and not re.search(RESOURCE_PATTERN, resource):
        told = f"{shown(resource)} must be the name of an extended resource, such as nvidia.com/gpu"
        yield Mistake("spec.extendedResourceName", told)
