# SPDX-License-Identifier: Apache-2.0
"""Which claims, requests, selectors, pods and containers are in an object? Each with the path that leads to it, as its author wrote it."""

from collections.abc import Iterator

from msgspec import Struct

from dra_driver.check.given import Given, Object, at, entries, mapping
from dra_driver.explain.subject.manifest_kinds import group_and_version
from dra_driver.explain.subject.workloads import pod_path
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.yaml_documents import Path

_DEVICES: dict[str, Path] = {
    "ResourceClaim": ("spec", "devices"),
    "ResourceClaimTemplate": ("spec", "spec", "devices"),
}


class Request(Struct, frozen=True):
    """A request, or one of its alternatives: `body` has the fields about devices. In older versions that is the request itself."""

    name: str
    path: Path
    body: Object


def is_of_dra(one: Given) -> bool:
    """Return whether the object is of resource.k8s.io."""
    return group_and_version(one.content)[0] == GROUP


def devices_path(one: Given) -> Path | None:
    """Return where the claim or template asks for devices; None for other objects."""
    return _DEVICES.get(one.kind) if is_of_dra(one) else None


def requests(one: Given) -> Iterator[Request]:
    """Yield the requests of a claim or template, in place of one with alternatives these."""
    path = devices_path(one)
    if path is None:
        return
    for inner, request in entries(one.content, (*path, "requests")):
        name = str(request.get("name", ""))
        if isinstance(request.get("exactly"), dict):
            yield Request(name, (*inner, "exactly"), request["exactly"])
        elif "deviceClassName" in request:
            yield Request(name, inner, request)
        for place, sub in entries(request, ("firstAvailable",)):
            yield Request(f"{name}/{sub.get('name', '')}", (*inner, *place), sub)


class Expression(Struct, frozen=True):
    """One CEL expression. `of_class` is the class of the request that has it; "" for that of a class."""

    path: Path
    text: str
    of_class: str = ""
    is_derived: bool = False


def expressions(one: Given) -> Iterator[Expression]:
    """Yield the selectors and derived attributes of a class, claim or template."""
    if is_of_dra(one) and one.kind == "DeviceClass":
        yield from _selectors(one.content, ("spec",), "")
    for request in requests(one):
        name = str(request.body.get("deviceClassName", ""))
        yield from _selectors(one.content, request.path, name)
        for place, derived in entries(request.body, ("derivedAttributes",)):
            if isinstance(derived.get("expression"), str):
                path = (*request.path, *place, "expression")
                yield Expression(path, derived["expression"], name, is_derived=True)


def _selectors(content: Object, path: Path, of_class: str) -> Iterator[Expression]:
    for place, selector in entries(content, (*path, "selectors")):
        text = mapping(selector.get("cel")).get("expression")
        if isinstance(text, str):
            yield Expression((*place, "cel", "expression"), text, of_class)


class PodPart(Struct, frozen=True):
    """The pod of an object: the object itself, or the template of a workload. `path` leads to metadata and spec.

    `is_nested`: it is somewhere in an object of a kind that is not known here, whose controller may add to it.
    """

    path: Path
    content: Object
    is_nested: bool = False

    @property
    def spec(self) -> Object:
        """The pod's spec."""
        return mapping(self.content.get("spec"))

    def containers(self) -> Iterator[tuple[Path, Object]]:
        """Yield the init containers and containers, each with its path in the object."""
        for field in ("initContainers", "containers"):
            for place, one in entries(self.content, ("spec", field)):
                yield (*self.path, *place), one


def is_pod_template(one: Given) -> bool:
    """Return whether the object is a PodTemplate, which only has the template of a pod."""
    return (one.kind, group_and_version(one.content)[0]) == ("PodTemplate", "")


def pod_of(one: Given) -> PodPart | None:
    """Return the pod of a Pod, a PodTemplate or a workload; None for other objects."""
    path = pod_path(one.kind, group_and_version(one.content)[0])
    if path is None:
        return None
    found = at(one.content, path)
    return PodPart(path, found) if isinstance(found, dict) else None


def namespace_of(one: Given) -> str:
    """Return the namespace as it is written; "" if there is none."""
    return str(mapping(one.content.get("metadata")).get("namespace") or "")


def name_in(one: Given) -> str:
    """Return metadata.name; "" if there is none."""
    return str(mapping(one.content.get("metadata")).get("name") or "")
