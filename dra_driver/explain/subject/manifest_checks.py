# SPDX-License-Identifier: Apache-2.0
"""What would the API server refuse in a manifest? Unknown fields, and values that no claim and no pod may have.

This module has only the rules without which `explain` would answer for something that the author did not mean. It has no rule for a
missing class or an expression that does not compile, because the report has a verdict for each. It knows only some fields of a
pod, so it refuses an unknown field of a pod only if its name is very similar to a known field. Each message ends with what to do (`actions`).
Source: k8s.io/kubernetes pkg/apis/resource/validation, pkg/apis/core/validation; the fields of k8s.io/api v0.37.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from msgspec import inspect

from dra_driver.allocator.amounts import amount
from dra_driver.model.api import core
from dra_driver.model.api.core import Namespace, Pod
from dra_driver.model.api.meta import ApiValue, ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from dra_driver.model.dns_names import LONGEST_SUBDOMAIN, is_label, is_subdomain
from dra_driver.model.printable import without_middle
from dra_driver.model.resource_names import resource_refusal

_MOST_REQUESTS, _MOST_ALTERNATIVES = 32, 8
_MODES = ("", "ExactCount", "All")
_OPERATORS = ("Equal", "Exists")
_POD_OPERATORS = (*_OPERATORS, "Lt", "Gt")
_DEVICE_EFFECTS = ("NoSchedule", "NoExecute", "None")
_POD_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME_WORDS = f"at most {LONGEST_SUBDOMAIN} of them, with a letter or digit at the beginning, at the end and beside each '.'"
_NEAR, _VERY_NEAR = 0.6, 0.8
_NOT_LOOKED_INTO = (core.PodStatus, ResourceClaimStatus, Namespace)
_METADATA = (
    "generateName",
    "selfLink",
    "deletionGracePeriodSeconds",
    "finalizers",
    "managedFields",
)
_PARTLY_KNOWN: Mapping[type, tuple[str, ...]] = {
    core.PodSpec: (),
    core.Container: ("restartPolicyRules",),
    core.Affinity: ("podAffinity", "podAntiAffinity"),
    core.NodeAffinity: ("preferredDuringSchedulingIgnoredDuringExecution",),
}
"""The types of which this module knows only some fields. Each with those of the other fields whose names are similar to a known
field."""


def refusal(document: object, found: ApiValue) -> str:
    """Return the first rule that the object breaks; "" if it breaks none.

    `document` is the object as its author wrote it. Its quantities are valid.
    """
    return next(refusals(document, found), "")


def refusals(document: object, found: ApiValue) -> Iterator[str]:
    """Yield every rule that the object breaks. Where a message is about a field, it begins with the field's path."""
    yield from _unnamed(document)
    yield from _unknown(document, _type_of(type(found)), "")
    if isinstance(found, ResourceClaim):
        yield from _claim(found.spec.devices, "spec.devices")
    elif isinstance(found, ResourceClaimTemplate):
        yield from _claim(found.spec.spec.devices, "spec.spec.devices")
    elif isinstance(found, Pod):
        yield from _pod(found)


@cache
def _type_of(kind: type[ApiValue]) -> inspect.Type:
    """Return what msgspec knows of a kind. Looking it up takes longer than everything else about an object."""
    return inspect.type_info(kind)


def _unnamed(document: object) -> Iterator[str]:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name") or "")
    if not name and not metadata.get("generateName"):
        yield f"it has no metadata.name; write one: {_NAME_WORDS}"
    elif len(name) > LONGEST_SUBDOMAIN:
        yield f"metadata.name has {len(name)} characters; write one of at most {LONGEST_SUBDOMAIN}"
    elif name and not is_subdomain(name):
        yield f"metadata.name may have lower case letters, digits, '-' and '.'; write another one: {_NAME_WORDS}"


# Fields


def _unknown(value: object, kind: inspect.Type, path: str) -> Iterator[str]:
    """Yield a message for each field that the type does not have, with the field's path."""
    match kind:
        case inspect.UnionType():
            for one in kind.types:
                yield from _unknown(value, one, path)
        case inspect.ListType() if isinstance(value, list):
            for index, one in enumerate(value):
                yield from _unknown(one, kind.item_type, f"{path}[{index}]")
        case inspect.StructType() if isinstance(value, dict) and kind.cls not in _NOT_LOOKED_INTO:
            yield from _unknown_of(value, kind, path)


def _unknown_of(value: Mapping[str, object], kind: inspect.StructType, path: str) -> Iterator[str]:
    fields = {field.encode_name: field.type for field in kind.fields}
    others = _others(kind.cls, path)
    for name, inner in value.items():
        if name not in fields:
            if name not in others:
                yield from _no_field(name, kind, path)
        elif kind.cls is not ObjectMeta:
            yield from _unknown(inner, fields[name], f"{path}.{name}" if path else name)


def _others(cls: type, path: str) -> Sequence[str]:
    if not path:
        return ("apiVersion", "kind", "status")
    return _METADATA if cls is ObjectMeta else _PARTLY_KNOWN.get(cls, ())


def _no_field(name: str, kind: inspect.StructType, path: str) -> Iterator[str]:
    fields = [field.encode_name for field in kind.fields]
    partly_known = kind.cls in _PARTLY_KNOWN
    cutoff = _VERY_NEAR if partly_known else _NEAR
    lowered = {field.lower(): field for field in fields}
    near = [lowered[one] for one in difflib.get_close_matches(name.lower(), lowered, 1, cutoff)]
    if partly_known and not near:
        return
    inner = [] if near else [field.encode_name for field in kind.fields if _has(field.type, name)]
    others = fields if path else sorted({*fields, *_others(kind.cls, path)})
    hint = f"; leave it out: the fields are {', '.join(others)}"
    if near:
        hint = f" (did you mean {near[0]}?); write {near[0]}, or leave it out"
    elif inner:
        hint = f" (it belongs into {inner[0]}); move it there"
    yield f"{path or 'the object'} has no field {ascii(name)[1:-1]}{hint}"


def _has(kind: inspect.Type, name: str) -> bool:
    """Return whether objects of the type have the field."""
    if isinstance(kind, inspect.UnionType):
        return any(_has(one, name) for one in kind.types)
    if not isinstance(kind, inspect.StructType):
        return False
    return any(field.encode_name == name for field in kind.fields)


# Values


def _claim(devices: DeviceClaim, path: str) -> Iterator[str]:
    requests = devices.requests or []
    if len(requests) > _MOST_REQUESTS:
        yield f"{path}.requests has {len(requests)} requests, at most {_MOST_REQUESTS} are allowed; make several claims of it"
    yield from _names([one.name for one in requests], f"{path}.requests")
    for index, request in enumerate(requests):
        yield from _request(request, f"{path}.requests[{index}]")
    known = {name for request in requests for name in _names_of(request)}
    for index, constraint in enumerate(devices.constraints or ()):
        yield from _constraint(constraint, known, f"{path}.constraints[{index}]")
    for index, config in enumerate(devices.config or ()):
        yield from _known_requests(config.requests, known, f"{path}.config[{index}]")


def _names(names: Sequence[str], path: str) -> Iterator[str]:
    for index, name in enumerate(names):
        if not is_label(name):
            said = f"is named {name!a}" if name else "has no name"
            yield f"{path}[{index}] {said}: lower case letters, digits and '-' are allowed; write at most 63 of them, with a letter or digit at both ends"
        elif name in names[:index]:
            yield f"{path}[{index}] has the name {name} of another one; give each a name of its own"


def _request(request: DeviceRequest, path: str) -> Iterator[str]:
    alternatives = request.first_available or []
    if (request.exactly is None) == (not alternatives):
        yield f"{path} needs one of exactly and firstAvailable; write exactly for one kind of device, or firstAvailable for a list of alternatives"
    if request.exactly is not None:
        yield from _amount(request.exactly, f"{path}.exactly")
    if len(alternatives) > _MOST_ALTERNATIVES:
        yield f"{path}.firstAvailable has more than {_MOST_ALTERNATIVES} alternatives; leave the last ones out"
    yield from _names([one.name for one in alternatives], f"{path}.firstAvailable")
    for index, one in enumerate(alternatives):
        yield from _amount(one, f"{path}.firstAvailable[{index}]")


def _amount(body: ExactDeviceRequest | DeviceSubRequest, path: str) -> Iterator[str]:
    mode, count = body.allocation_mode, body.count
    if mode not in _MODES:
        yield f"{path}.allocationMode is {mode!a}, it can be ExactCount or All; write ExactCount for as many devices as count says, or All for each that matches"
    elif mode == "All" and count:
        yield f"{path}.count is {count}, but allocationMode All takes no count; leave count out, or write allocationMode: ExactCount"
    elif count < 0:
        # 0 is the same as a missing count: the API server sets it to 1.
        yield f"{path}.count is {count}, it must be at least 1 (0, as if left out, stands for 1); write how many devices, or leave it out"
    for index, toleration in enumerate(body.tolerations or ()):
        yield from _toleration(
            toleration, (_OPERATORS, _DEVICE_EFFECTS), f"{path}.tolerations[{index}]"
        )


def _toleration(
    toleration: DeviceToleration | core.Toleration,
    allowed: tuple[Sequence[str], Sequence[str]],
    path: str,
) -> Iterator[str]:
    """Yield the problems of a toleration. `allowed` are its valid operators and effects; a toleration can omit both."""
    operators, effects = allowed
    operator, effect = toleration.operator, toleration.effect
    if operator and operator not in operators:
        yield f"{path}.operator is {operator!a}, it can be {_either(operators)}; write one of these"
    elif operator == "Exists" and toleration.value:
        yield f"{path}.value is {toleration.value!a}, but operator Exists takes no value; leave value out, or write operator: Equal"
    if effect and effect not in effects:
        yield f"{path}.effect is {effect!a}, it can be {_either(effects)}; write one of these, or leave it out for every effect"


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _names_of(request: DeviceRequest) -> Iterator[str]:
    yield request.name
    for one in request.first_available or ():
        yield f"{request.name}/{one.name}"


def _constraint(constraint: DeviceConstraint, known: set[str], path: str) -> Iterator[str]:
    attributes = (constraint.match_attribute, constraint.distinct_attribute)
    given = [one for one in attributes if one is not None]
    if not given:
        # Of both, the API server and the scheduler read matchAttribute only.
        yield f"{path} needs one of matchAttribute and distinctAttribute; write the attribute that must be the same on all devices, or another on each"
    elif "/" not in given[0]:
        yield f"{path} is about {given[0]!a}: write the attribute as DOMAIN/NAME; the domain is that of the driver, or resource.kubernetes.io as in resource.kubernetes.io/pcieRoot"
    yield from _known_requests(constraint.requests, known, path)


def _known_requests(names: Sequence[str] | None, known: set[str], path: str) -> Iterator[str]:
    for name in names or ():
        if name not in known:
            yield f"{path}.requests names {name!a}, and no request has that name; {_one_of(known)}"


def _one_of(names: Collection[str]) -> str:
    """Return which names of requests can be written."""
    return (
        f"write one of {', '.join(map(ascii, sorted(names)))}" if names else "add a request first"
    )


def _pod(pod: Pod) -> Iterator[str]:
    if not pod.spec.containers:
        yield "spec.containers is empty: a pod has at least one container; write one, with name and image"
    for index, toleration in enumerate(pod.spec.tolerations or ()):
        path = f"spec.tolerations[{index}]"
        yield from _toleration(toleration, (_POD_OPERATORS, _POD_EFFECTS), path)
        if not toleration.key and toleration.operator != "Exists":
            yield f"{path} has no key: only operator Exists takes none; write the key of the taint, or operator: Exists for every taint"
    entries = pod.spec.resource_claims or []
    yield from _names([one.name for one in entries], "spec.resourceClaims")
    for index, one in enumerate(entries):
        if bool(one.resource_claim_name) == bool(one.resource_claim_template_name):
            yield (
                f"spec.resourceClaims[{index}] needs one of resourceClaimName and resourceClaimTemplateName; write the name of a claim, or of a template that makes a claim for each pod"
            )
    known = {one.name for one in entries}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        yield from _resources(container)
        for claim in container.resources.claims or ():
            if claim.name not in known:
                yield (
                    f"container {_shown(container.name)} uses the claim {claim.name!a}, which "
                    "spec.resourceClaims does not have; add it there, with resourceClaimName or resourceClaimTemplateName"
                )


def requests_not_there(pod: Pod, claims: Mapping[tuple[type, str], DeviceClaim]) -> Iterator[str]:
    """Yield a message for each request that a container names and its claim does not have: the container would get no devices.

    `claims` are the claims and templates of the same file and namespace, by type and name.
    """
    given: dict[str, tuple[str, DeviceClaim]] = {}
    for one in pod.spec.resource_claims or ():
        for kind, name in (
            (ResourceClaim, one.resource_claim_name),
            (ResourceClaimTemplate, one.resource_claim_template_name),
        ):
            if name and (kind, name) in claims:
                given[one.name] = (f"{kind.__name__} {name}", claims[kind, name])
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        for claim in container.resources.claims or ():
            if claim.name not in given:
                continue
            title, devices = given[claim.name]
            names = [request.name for request in devices.requests or ()]
            if claim.request and claim.request not in names:
                yield (
                    f"container {_shown(container.name)} asks for the request {claim.request!a} of {title}, which has "
                    f"{', '.join(names) or 'none'}: it would get no devices; {_one_of(names)}, or leave request out for all devices of the claim"
                )


def _resources(container: core.Container) -> Iterator[str]:
    resources = container.resources
    for name, text in {**(resources.limits or {}), **(resources.requests or {})}.items():
        if refused := resource_refusal(name):
            yield f"container {_shown(container.name)}: {refused}"
        if amount(text).nanos < 0:
            yield (
                f"container {_shown(container.name)} asks for {text} of {_shown(name)}, less than nothing; write 0 or more"
            )


def _shown(name: str) -> str:
    return ascii(without_middle(name, LONGEST_SUBDOMAIN))[1:-1]
