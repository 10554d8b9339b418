# SPDX-License-Identifier: Apache-2.0
"""Do pods, containers, requests and classes name each other rightly?

An object that is not in the files may be in the cluster. So without a cluster only a name that is like one of the files, or like a known class,
is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from dra_driver.cel.reasons.similar import meant
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known, entries, mapping
from dra_driver.check.parts import (
    PodPart,
    devices_path,
    is_of_dra,
    name_in,
    namespace_of,
    requests,
)
from dra_driver.check.pods_in import pods_in
from dra_driver.model.cluster import ClusterState
from dra_driver.model.printable import printable
from dra_driver.model.resource_names import DEVICE_CLASS_PREFIX
from dra_driver.model.yaml_documents import Path

KNOWN_CLASSES = (
    *("gpu", "large-gpu", "nvidia-gpu", "amd-gpu", "intel-gpu", "gaudi"),
    *("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
)
"""The classes that this driver and its chart bring, and those of NVIDIA's."""
_CLASS, _CLAIM, _TEMPLATE = "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"
_RESOURCES = {
    _CLASS: "deviceclasses",
    _CLAIM: "resourceclaims",
    _TEMPLATE: "resourceclaimtemplates",
}
_FIELDS = (("resourceClaimName", _CLAIM), ("resourceClaimTemplateName", _TEMPLATE))


class Objects(Struct):
    """What the files have, and what the cluster has: classes by name; claims and templates with the names of their requests."""

    classes: set[str] = field(default_factory=set)
    there: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    """Kind, namespace and name; the namespace is "" if the file does not say it."""
    complete: set[str] = field(default_factory=set)
    """The kinds of which the cluster's objects are all known."""


def objects(given: Sequence[Given], known: Known) -> Objects:
    """Collect what the files and the cluster have."""
    found = Objects()
    if known.state is not None:
        _of_cluster(found, known.state)
    for one in given:
        if is_of_dra(one) and one.kind == "DeviceClass":
            found.classes.add(name_in(one))
        path = devices_path(one)
        if path is not None:
            named = [
                str(body.get("name", "")) for _, body in entries(one.content, (*path, "requests"))
            ]
            found.there[one.kind, namespace_of(one), name_in(one)] = named
    return found


def _of_cluster(found: Objects, state: ClusterState) -> None:
    for kind, resource in _RESOURCES.items():
        if not state.gaps(resource):
            found.complete.add(kind)
    found.classes.update(one.metadata.name for one in state.device_classes)
    pairs: tuple[tuple[str, Sequence[Any]], ...] = (
        (_CLAIM, state.resource_claims),
        (_TEMPLATE, state.resource_claim_templates),
    )
    for kind, ones in pairs:
        for one in ones:
            spec = one.spec if kind == _CLAIM else one.spec.spec
            named = [request.name for request in spec.devices.requests or ()]
            found.there[kind, one.metadata.namespace, one.metadata.name] = named


def reference_findings(one: Given, there: Objects) -> Iterator[Finding]:
    """Yield the references of an object that lead nowhere."""
    yield from _classes(one, there)
    for pod in pods_in(one):
        yield from _of_pod(one, pod, there)


def _classes(one: Given, there: Objects) -> Iterator[Finding]:
    for path, name in _named_classes(one):
        if not isinstance(name, str) or not name or name in there.classes:
            continue
        known = sorted({*there.classes, *(() if _CLASS in there.complete else KNOWN_CLASSES)})
        near = "" if name in known else meant(name, known)
        if _CLASS in there.complete:
            message = f"there is no DeviceClass {printable(name)}, neither in the files nor in the cluster"
            yield one.finding("ref-class", path, message, near or "create the class first")
        elif near:
            message = f"DeviceClass {printable(name)} is not in the files, and no known class has this name"
            yield one.finding("ref-class", path, message, near)


def _named_classes(one: Given) -> Iterator[tuple[Path, object]]:
    """Yield the classes that requests name, and those that extended resources of containers name, as deviceclass.resource.kubernetes.io/CLASS."""
    for request in requests(one):
        yield (*request.path, "deviceClassName"), request.body.get("deviceClassName")
    for pod in pods_in(one):
        for path, container in pod.containers():
            amounts = mapping(container.get("resources"))
            asked = {
                str(resource): (*path, "resources", part, resource)
                for part in ("requests", "limits")
                for resource in mapping(amounts.get(part))
            }
            for resource, place in asked.items():
                name = resource.removeprefix(DEVICE_CLASS_PREFIX)
                if name != resource:
                    yield place, name


def _of_pod(one: Given, pod: PodPart, there: Objects) -> Iterator[Finding]:
    claims: dict[str, tuple[Path, list[str] | None]] = {}
    for place, entry in entries(pod.content, ("spec", "resourceClaims")):
        path = (*pod.path, *place)
        named: list[str] | None = None
        for field_name, kind in _FIELDS:
            name = entry.get(field_name)
            if isinstance(name, str) and name:
                named = _find(there, kind, namespace_of(one), name)
                if named is None:
                    yield from _missing(one, (*path, field_name), kind, name, there)
        claims[str(entry.get("name", ""))] = path, named
    used = set()
    for path, container in pod.containers():
        for place, claim in entries(container, ("resources", "claims")):
            name = str(claim.get("name", ""))
            used.add(name)
            yield from _use(one, (*path, *place), claim, claims)
    for name, (path, _) in claims.items():
        if name not in used:
            yield one.finding(
                "ref-unused",
                path,
                f"no container uses the claim {printable(name)}: its devices are allocated, and nobody sees them",
                f"add resources.claims: [{{name: {printable(name)}}}] to a container, or remove the claim",
            )


def _find(there: Objects, kind: str, namespace: str, name: str) -> list[str] | None:
    """Return the requests of a claim or template. An object without a namespace goes wherever its file is applied."""
    for (its_kind, its_namespace, its_name), named in there.there.items():
        same = not namespace or not its_namespace or its_namespace == namespace
        if (its_kind, its_name) == (kind, name) and same:
            return named
    return None


def _missing(one: Given, path: Path, kind: str, name: str, there: Objects) -> Iterator[Finding]:
    near = _instead(one, kind, name, there)
    near = near or meant(name, [its for its_kind, _, its in there.there if its_kind == kind])
    shown = printable(name)
    if kind in there.complete:
        message = f"there is no {kind} {shown}, neither in the files nor in the cluster"
        yield one.finding(
            "ref-template", path, message, near or "create it first: the pod waits for it"
        )
    elif near:
        yield one.finding("ref-template", path, f"{kind} {shown} is not in the files", near)


def _instead(one: Given, kind: str, name: str, there: Objects) -> str:
    """Return which object of this very name there is: one of the other kind, or one of another namespace; "" if there is none."""
    for field_name, other in _FIELDS:
        if other != kind and _find(there, other, namespace_of(one), name) is not None:
            return f"there is a {other} of this name: write {field_name}"
    for its_kind, namespace, its_name in there.there:
        if (its_kind, its_name) == (kind, name):
            # Not in the namespace of the pod, which would have been found.
            return f"there is one in the namespace {printable(namespace)}, and a pod uses those of its own namespace: create it in {printable(namespace_of(one))} too"
    return ""


def _use(
    one: Given,
    path: Path,
    claim: Mapping[str, Any],
    claims: Mapping[str, tuple[Path, list[str] | None]],
) -> Iterator[Finding]:
    name, request = str(claim.get("name", "")), claim.get("request")
    if name not in claims:
        message = f"the container uses the claim {printable(name)}, which spec.resourceClaims of its pod does not have"
        near = meant(name, list(claims)) or "add it there"
        yield one.finding("ref-claim", (*path, "name"), message, near)
        return
    named = claims[name][1]
    if isinstance(request, str) and request and named is not None and request not in named:
        message = f"the claim {printable(name)} has no request {printable(request)}: the container would get no devices"
        near = meant(request, named) or f"it has {', '.join(map(printable, named)) or 'none'}"
        yield one.finding("ref-request", (*path, "request"), message, near)
