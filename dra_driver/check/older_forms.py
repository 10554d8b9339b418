# SPDX-License-Identifier: Apache-2.0
"""Which forms are of older versions of resource.k8s.io, and how are they written today?

A claim of v1alpha3 or v1beta1 has the fields of `exactly` in the request itself. Such a claim is rewritten as a whole: apiVersion, and
each request by lines. Each edit is checked against what the object must be afterwards, so a form that the edits do not fit is left.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dra_driver.check.finding import Edit, Finding
from dra_driver.check.given import NVIDIA_DRIVER, Given, entries, replaced
from dra_driver.check.parts import (
    Expression,
    devices_path,
    expressions,
    is_of_dra,
    pod_of,
    requests,
)
from dra_driver.explain.subject.manifest_kinds import as_v1, group_and_version
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.memory_amounts import MIB, likely_amount
from dra_driver.model.names import DOMAIN
from dra_driver.model.printable import printable
from dra_driver.model.yaml_documents import Path

NEW = f"{GROUP}/v1"
_FLAT = ("v1alpha3", "v1beta1")
_OLD = (*_FLAT, "v1beta2")
WITHDRAWN = (
    "ResourceClass",
    "ResourceClassParameters",
    "ResourceClaimParameters",
    "PodSchedulingContext",
)
_KINDS = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
_INDENT = 2
_COMPARED = r"""\s*(?P<sign>==|!=|>=|<=|>|<)\s*(?P<number>[0-9]{1,20})(?=\s*(?:$|&&|\|\||[)?:,]))"""
"""What follows must end the comparison: half of `16 * 1024` would be another condition."""
_MEMORY = re.compile(r"""device\.attributes\[\s*(?P<quote>['"])memory(?P=quote)\s*\]""" + _COMPARED)
"""The form of the first guides."""
_OF_DOMAIN = r"""device\.attributes\[\s*(?P<quote>['"])(?P<domain>%s)(?P=quote)\s*\]\.memory"""
"""The same with the name of a driver whose memory is a capacity. Of another driver it may be an attribute."""
_DRIVER = re.compile(r"""device\.driver\s*==\s*(?P<quote>['"])(?P<driver>[^'"]+)(?P=quote)""")
_NOT_EXACT = "the place in the file is not known exactly (an alias, or fields in another order): write it by hand"
_TWICE = "the expression reads memory as an attribute in several places: write all of them by hand"
NVIDIA = ".nvidia.com"


def older_findings(one: Given, driver: str, served: Collection[str] = ()) -> Iterator[Finding]:
    """Yield the older forms in an object. `served` are the versions that the cluster has; empty if not known."""
    yield from _sources(one)
    if not is_of_dra(one):
        return
    if one.kind in WITHDRAWN:
        yield one.finding(
            "old-kind",
            ("kind",),
            f"{one.kind} was withdrawn with the first form of DRA: no cluster from 1.32 on has it",
            "write a DeviceClass, and a ResourceClaim or ResourceClaimTemplate with spec.devices",
        )
    elif one.kind in _KINDS:
        yield from _memory(one, driver)
        yield from _version(one, served)


def _sources(one: Given) -> Iterator[Finding]:
    pod = pod_of(one)
    for path, entry in entries(pod.content, ("spec", "resourceClaims")) if pod else ():
        source = entry.get("source")
        if isinstance(source, Mapping):
            right = ", ".join(f"{field}: {name}" for field, name in source.items())
            yield one.finding(
                "old-source",
                (*(pod.path if pod else ()), *path, "source"),
                "the API server would refuse it: resourceClaims has no field source since Kubernetes 1.31",
                f"write {printable(right)} beside the name",
            )


def _version(one: Given, served: Collection[str]) -> Iterator[Finding]:
    version = group_and_version(one.content)[1]
    if not is_older(version) or (served and "v1" not in served):
        return
    edits = version_edits(one, version)
    flat = version in _FLAT and devices_path(one) is not None
    form = ", with the fields of each request but its name below `exactly`" if flat else ""
    rule, what = "old-version", "is an older form"
    if version == "v1alpha3":
        rule, what = "api-version", "is served by no cluster from 1.34 on"
    elif served and version not in served:
        rule, what = "api-version", "is not served by this cluster"
    yield one.finding(
        rule,
        ("apiVersion",),
        f"{GROUP}/{version} {what}",
        f"write apiVersion: {NEW}{form}",
        edits=edits,
        unfixed="" if edits else _NOT_EXACT,
    )


def is_older(version: str) -> bool:
    """Return whether this is a version of resource.k8s.io before v1 that can be rewritten."""
    return version in _OLD


def version_edits(one: Given, version: str) -> tuple[Edit, ...]:
    """Return the edits that make the object one of v1; none if a place is not exactly known."""
    content = {**(as_v1(one.content) if version in _FLAT else one.content), "apiVersion": NEW}
    place = one.exact(("apiVersion",))
    if place is None:
        return ()
    old = f"{GROUP}/{version}"
    quote = len(place.style)
    first = Edit(place.start + quote, place.end - quote, old, NEW, content)
    edits = [first]
    devices = devices_path(one)
    if version in _FLAT and devices is not None:
        for path, request in entries(one.content, (*devices, "requests")):
            if "deviceClassName" in request:
                nested = _nested(one, path, request, content)
                if nested is None:
                    return ()
                edits += nested
    return tuple(edits)


def _nested(
    one: Given, path: Path, request: Mapping[str, Any], content: Mapping[str, object]
) -> list[Edit] | None:
    """Return the edits that put the fields of a request below `exactly`; None if they do not follow its name line by line."""
    names = list(request)
    place = one.exact(path)
    keys = [one.key((*path, name)) for name in names]
    if place is None or names[0] != "name":
        return None
    first = keys[1]
    if first is None or None in keys:
        return None  # a key that comes from a merge (<<)
    last = _end(one, path)
    if place.style == "{":
        # In JSON every key is quoted, as the key before it.
        quote = '"' if keys[0] is not None and keys[0].style == '"' else ""
        return [
            Edit(first.start, first.start, "", f"{quote}exactly{quote}: {{", content),
            Edit(last, last, "", "}", content),
        ]
    margin = " " * (first.column - 1)
    return [
        Edit(first.start, first.start, "", f"exactly:\n{margin}{' ' * _INDENT}", content),
        Edit(first.start, last, "", "", content, indent=_INDENT),
    ]


def _end(one: Given, path: Path) -> int:
    """Return the end of the last scalar at or below the path. What follows in its line (a comment) does not matter for the indent."""
    whole = (*one.base, *path)
    return max(
        place.end
        for inner, place in one.places.values.items()
        if inner[: len(whole)] == whole and len(inner) > len(whole)
    )


def _memory(one: Given, driver: str) -> Iterator[Finding]:
    drivers = "|".join(map(re.escape, dict.fromkeys((driver, DOMAIN, NVIDIA_DRIVER))))
    read = re.compile(_OF_DOMAIN % drivers)
    compared = re.compile(read.pattern + _COMPARED)
    for expression in expressions(one):
        if found := _MEMORY.search(expression.text):
            named = _DRIVER.search(expression.text)
            domain = named["driver"] if named else _domain(one, expression.path, driver)
            yield _todays_form(one, expression, found, domain)
        elif (found := compared.search(expression.text)) and int(found["number"]) in MIB:
            # Smaller and larger numbers are told by `selectors`, as each name that is no attribute.
            is_once = len(read.findall(expression.text)) == 1
            yield _todays_form(one, expression, found, found["domain"], is_once=is_once)


def _todays_form(
    one: Given,
    expression: Expression,
    found: re.Match[str],
    domain: str,
    *,
    is_once: bool = True,
) -> Finding:
    """Return what to write. If memory is read elsewhere too, as by has(…), one edit alone would not make the expression right."""
    sign, number = found["sign"], found["number"]
    read = f'device.capacity["{domain}"].memory.compareTo(quantity'
    message = f"memory is a capacity and no attribute, and {number} is no quantity: {found[0]}"
    if int(number) not in MIB:
        meant = likely_amount(number)
        action = f'write {read}("{meant}")) {sign} 0, with the unit that is meant: Gi, Mi, or none for bytes. --fix does not guess it'
        return one.finding("old-memory", expression.path, message, action)
    new = f'{read}("{number}Mi")) {sign} 0'
    text = expression.text[: found.start()] + new + expression.text[found.end() :]
    content = replaced(one.content, expression.path, text)
    edit = _text_edit(one, expression.path, found[0], new, content) if is_once else ()
    return one.finding(
        "old-memory",
        expression.path,
        message,
        f"write {new}",
        edits=edit,
        unfixed="" if edit else (_NOT_EXACT if is_once else _TWICE),
    )


def _domain(one: Given, path: Path, driver: str) -> str:
    """Return the driver whose memory is meant: NVIDIA's for NVIDIA's classes, else this one."""
    for request in requests(one):
        if path[: len(request.path)] == request.path:
            name = str(request.body.get("deviceClassName", ""))
            return "gpu.nvidia.com" if name.endswith(NVIDIA) else driver
    return driver


def _text_edit(
    one: Given, path: Path, old: str, new: str, content: Mapping[str, object]
) -> tuple[Edit, ...]:
    """Return an edit of a part of a text. In quotes, the part is written as in the quotes."""
    place = one.exact(path)
    if place is None:
        return ()
    match place.style:
        case '"':
            old, new = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (old, new))
        case "'":
            old, new = (text.replace("'", "''") for text in (old, new))
        case _:
            pass
    return (Edit(place.start, place.end, old, new, content),)
