# SPDX-License-Identifier: Apache-2.0
"""Which names and values would the API server refuse in claims, templates, classes and pods, besides those that `explain` refuses?

tests/support/sent_manifests.py has an example of each, and a test asks a real API server about them.
Source: k8s.io/kubernetes pkg/apis/resource/validation, pkg/apis/core/validation.
"""

import re
from collections.abc import Iterator

from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Object, at, entries, mapping
from dra_driver.check.parts import devices_path, is_of_dra, pod_of, requests
from dra_driver.explain.subject.actions import problem_and_action
from dra_driver.model.dns_names import is_label, is_label_key, is_subdomain
from dra_driver.model.printable import printable
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource_names import HUGE_PAGES, is_sent_extended, resource_refusal
from dra_driver.model.yaml_documents import Path

REFUSED = "the API server would refuse it"
_LONGEST_DRIVER, _LONGEST_LABEL, _LONGEST_IDENTIFIER = 63, 63, 32
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_PODS = ("cpu", "memory")
_WORDS = "lower case letters, digits, '-' and '.' are allowed"


def value_findings(one: Given) -> Iterator[Finding]:
    """Yield the names and values that would be refused. Of what has another type than its field, other rules tell."""
    yield from _labels(one, ("metadata",))
    yield from _requests(one)
    if is_of_dra(one) and one.kind == "DeviceClass":
        yield from _selectors(one, ("spec",), mapping(one.content.get("spec")))
        yield from _drivers(one, ("spec", "config"))
        yield from _extended_resource(one)
    devices = devices_path(one)
    if devices is not None:
        yield from _constraints(one, (*devices, "constraints"))
        for path, config in entries(one.content, (*devices, "config")):
            yield from _twice(one, path, config)
        yield from _drivers(one, (*devices, "config"))
    if is_of_dra(one) and one.kind == "ResourceClaimTemplate":
        yield from _labels(one, ("spec", "metadata"))
        for field in mapping(at(one.content, ("spec", "metadata"))):
            if field not in ("labels", "annotations"):
                what = f"the claims of a template have no {printable(str(field))} from it"
                action = "leave it out: labels and annotations can be given"
                yield _refused(one, ("spec", "metadata", field), what, action)
    yield from _pod(one)


def _refused(one: Given, path: Path, what: str, action: str) -> Finding:
    return one.finding("api-value", path, f"{REFUSED}: {what}", action)


def _shown(value: object) -> str:
    return f"{value!a:.80}"


def _labels(one: Given, path: Path) -> Iterator[Finding]:
    found = mapping(at(one.content, path))
    for key, value in mapping(found.get("labels")).items():
        if not is_label_key(str(key)) or not _is_label_value(value):
            what = f"{_shown(key)}: {_shown(value)} is no label"
            action = "keys and values have at most 63 letters, digits, '-', '_' and '.'"
            yield _refused(one, (*path, "labels", key), what, action)


def _is_label_value(value: object) -> bool:
    if not isinstance(value, str):
        return True  # another type is told for itself
    return len(value) <= _LONGEST_LABEL and _VALUE.fullmatch(value) is not None


def _requests(one: Given) -> Iterator[Finding]:
    for request in requests(one):
        path, body = request.path, request.body
        yield from _class_name(one, path, body)
        yield from _selectors(one, path, body)
        for inner, toleration in entries(body, ("tolerations",)):
            yield from _toleration(one, (*path, *inner), toleration)


def _class_name(one: Given, path: Path, body: Object) -> Iterator[Finding]:
    name = body.get("deviceClassName")
    if name is None or name == "":
        yield _refused(one, path, "the request has no deviceClassName", "name a DeviceClass")
    elif isinstance(name, str) and not is_subdomain(name):
        what = f"{_shown(name)} is no name of a DeviceClass"
        yield _refused(one, (*path, "deviceClassName"), what, _WORDS)


def _selectors(one: Given, path: Path, body: Object) -> Iterator[Finding]:
    for inner, selector in entries(body, ("selectors",)):
        if not mapping(selector.get("cel")).get("expression"):
            what = "the selector has no cel.expression"
            yield _refused(one, (*path, *inner), what, "write an expression, or leave it out")


def _toleration(one: Given, path: Path, toleration: Object) -> Iterator[Finding]:
    key, value = toleration.get("key"), toleration.get("value")
    if isinstance(key, str) and key and not is_label_key(key):
        what = f"{_shown(key)} is no key of a taint"
        yield _refused(one, (*path, "key"), what, "write NAME or DOMAIN/NAME")
    if not _is_label_value(value):
        what = f"{_shown(value)} is no value of a taint"
        yield _refused(one, (*path, "value"), what, "write it as the taint has it")


def _constraints(one: Given, path: Path) -> Iterator[Finding]:
    for inner, constraint in entries(one.content, path):
        yield from _twice(one, inner, constraint)
        for field in ("matchAttribute", "distinctAttribute"):
            name = constraint.get(field)
            if isinstance(name, str) and name.count("/") == 1 and not is_attribute(name):
                what = f"{_shown(name)} is no name of an attribute"
                action = "write DOMAIN/NAME: a driver's name, and letters, digits and '_'"
                yield _refused(one, (*inner, field), what, action)


def is_attribute(name: str) -> bool:
    """Return whether this is DOMAIN/NAME as attributes are named."""
    domain, _, inner = name.partition("/")
    short = len(inner) <= _LONGEST_IDENTIFIER
    return is_subdomain(domain, _LONGEST_DRIVER) and short and bool(_IDENTIFIER.fullmatch(inner))


def _twice(one: Given, path: Path, content: Object) -> Iterator[Finding]:
    found = content.get("requests")
    seen: set[str] = set()
    for index, name in enumerate(found if isinstance(found, list) else ()):
        if not isinstance(name, str):
            continue  # told for itself
        if name in seen:
            what = f"it names the request {_shown(name)} twice"
            yield _refused(one, (*path, "requests", index), what, "name it once")
        seen.add(name)


def _drivers(one: Given, path: Path) -> Iterator[Finding]:
    for inner, config in entries(one.content, path):
        opaque = config.get("opaque")
        driver = mapping(opaque).get("driver")
        place = (*inner, "opaque")
        if not opaque:
            continue  # told as an empty configuration
        if not driver:
            yield _refused(one, place, "it has no driver", "name the driver that it is for")
        elif isinstance(driver, str) and not is_subdomain(driver, _LONGEST_DRIVER):
            what = f"{_shown(driver)} is no name of a driver"
            action = f"at most {_LONGEST_DRIVER} {_WORDS}"
            yield _refused(one, (*place, "driver"), what, action)


def _extended_resource(one: Given) -> Iterator[Finding]:
    name = at(one.content, ("spec", "extendedResourceName"))
    if isinstance(name, str) and not is_sent_extended(name):
        what = f"{_shown(name)} is no name of an extended resource"
        action = "write DOMAIN/NAME as in example.com/gpu; kubernetes.io is not for extended ones"
        yield _refused(one, ("spec", "extendedResourceName"), what, action)


def _pod(one: Given) -> Iterator[Finding]:
    pod = pod_of(one)
    if pod is None:
        return
    for inner, entry in entries(pod.content, ("spec", "resourceClaims")):
        for field in ("resourceClaimName", "resourceClaimTemplateName"):
            name = entry.get(field)
            if isinstance(name, str) and name and not is_subdomain(name):
                what = f"{_shown(name)} is no name of an object"
                yield _refused(one, (*pod.path, *inner, field), what, _WORDS)
    yield from _of_whole_pod(
        one, (*pod.path, "spec", "resources"), mapping(pod.spec.get("resources"))
    )
    for path, container in pod.containers():
        yield from _uses(one, (*path, "resources"), mapping(container.get("resources")))
        yield from _resources(one, (*path, "resources"), mapping(container.get("resources")))


def _of_whole_pod(one: Given, path: Path, resources: Object) -> Iterator[Finding]:
    for field in ("limits", "requests"):
        for name in mapping(resources.get(field)):
            if str(name) not in _OF_PODS and not str(name).startswith(HUGE_PAGES):
                what = f"{_shown(name)} is no resource of a whole pod, which has cpu, memory and hugepages only"
                action = "ask for it in the resources of the container that uses it"
                yield _refused(one, (*path, field, name), what, action)


def _uses(one: Given, path: Path, resources: Object) -> Iterator[Finding]:
    before: dict[str, set[str]] = {}
    for inner, use in entries(resources, ("claims",)):
        name, request = use.get("name"), use.get("request") or ""
        if not isinstance(name, str) or not isinstance(request, str):
            continue  # told for itself
        if request and not is_label(request):
            what = f"{_shown(request)} is no name of a request"
            yield _refused(one, (*path, *inner, "request"), what, _WORDS)
        had = before.setdefault(name, set())
        if had and (not request or "" in had or request in had):
            what = f"the container uses the claim {_shown(name)} twice"
            yield _refused(
                one, (*path, *inner), what, "name the claim, or each request of it, once"
            )
        had.add(request)


def _resources(one: Given, path: Path, resources: Object) -> Iterator[Finding]:
    limits = mapping(resources.get("limits"))
    for field in ("limits", "requests"):
        for name, text in mapping(resources.get(field)).items():
            place = (*path, field, name)
            if refused := resource_refusal(str(name)):
                yield _refused(one, place, *problem_and_action(refused))
            elif field == "requests" and _is_more(text, limits.get(name)):
                what = f"the request for {printable(str(name))} is {text}, more than its limit"
                yield _refused(one, place, what, "write a limit that is at least as high")


def _is_more(request: object, limit: object) -> bool:
    """Whether both are quantities and the request is the larger one."""
    if limit is None:
        return False
    try:
        return Quantity.parse(str(request)).nanos > Quantity.parse(str(limit)).nanos
    except ValueError:
        return False  # told as a value that the API server refuses
