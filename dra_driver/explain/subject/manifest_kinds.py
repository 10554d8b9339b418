# SPDX-License-Identifier: Apache-2.0
"""Does `explain` understand an object of a manifest, would the API server refuse it, or is it ignored ("passed over")?

The report names an ignored object if it contains pods or changes devices, because then the answer is not about the whole file.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dra_driver.model.api.resource_claim import GROUP, TAINT_RULE_VERSIONS
from dra_driver.model.yaml_text import yaml_in_one_line

SPOKEN = ("v1", "v1beta2", "v1beta1")
"""The versions of resource.k8s.io that `explain` reads, newest first."""
_FLAT = ("v1beta1", "v1alpha3")
"""The versions in which a request has no `exactly`: its fields are in the request itself, beside `name`."""
_FIRST = "v1alpha2"
"""The first form of DRA, until Kubernetes 1.30: a claim had one class, whose driver made an object of its own kind into devices."""

WORKLOADS: Mapping[str, str] = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicaSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
    "ReplicationController": "",
}
_OF_CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")
UNDERSTOOD: Mapping[str, str] = {
    **WORKLOADS,
    "Pod": "",
    "Namespace": "",
    **dict.fromkeys((*_OF_CLAIMS, "DeviceClass"), GROUP),
}
"""The group of each kind that `explain` understands; "" is the core group."""
_OTHERS: Mapping[str, Collection[str]] = {
    "": (
        *("Binding", "ComponentStatus", "ConfigMap", "Endpoints", "Event", "LimitRange", "List"),
        *("Node", "PersistentVolume", "PersistentVolumeClaim", "PodTemplate", "ResourceQuota"),
        *("Secret", "Service", "ServiceAccount"),
    ),
    "apps": ("ControllerRevision",),
    "batch": (),
    GROUP: ("DeviceTaintRule", "ResourceSlice"),
}
"""The other kinds of these groups."""
_OLD_GROUPS = ("extensions",)
_VERY_NEAR = 0.8
_LONGEST_EXAMPLE = 300
_DEEPEST = 12


def name_of(document: Mapping[str, Any]) -> str:
    """Return the object's metadata.name, for messages."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return ascii(name)[1:-1] if isinstance(name, str) and name else "without a name"


def kind_of(document: Mapping[str, Any]) -> str:
    """Return the object's kind, for messages."""
    return ascii(str(document.get("kind") or ""))[1:-1] or "an object"


def group_and_version(document: Mapping[str, Any]) -> tuple[str, str]:
    """Split `apiVersion` into group and version; the core group is ""."""
    group, _, version = str(document.get("apiVersion") or "").rpartition("/")
    return group, version


def is_understood(document: Mapping[str, Any]) -> bool:
    """Return whether `explain` understands the object's kind."""
    return UNDERSTOOD.get(str(document.get("kind"))) == group_and_version(document)[0]


def kind_refusal(document: Mapping[str, Any], served: Collection[str]) -> str:
    """Return what is wrong with the object's apiVersion and kind, and how to write them; "" if nothing is wrong.

    `served` are the versions of resource.k8s.io in this cluster; empty if they are not known.
    """
    kind, (group, version) = str(document.get("kind") or ""), group_and_version(document)
    if not kind:
        return "it has no kind; write the kind, with its apiVersion"
    if not version:
        right = f"write apiVersion: {_api_version(kind, served)}" if kind in UNDERSTOOD else _ASK
        return f"it has no apiVersion; {right}"
    if group not in _OTHERS and group not in _OLD_GROUPS:
        return ""
    known = [*(name for name in UNDERSTOOD if UNDERSTOOD[name] == group), *_OTHERS.get(group, ())]
    if kind in known:
        return _version_refusal(document, version, served)
    if kind in UNDERSTOOD:
        right = _api_version(kind, served)
        return f"there is no {kind} in {group or 'v1'}; write apiVersion: {right}"
    return _no_such_kind(kind, f"{group}/{version}" if group else version, known)


TAINT_RULE = "DeviceTaintRule"


def _version_refusal(document: Mapping[str, Any], version: str, served: Collection[str]) -> str:
    kind, (group, _) = str(document["kind"]), group_and_version(document)
    if group != GROUP:
        right = f"{group}/v1" if group else "v1"
        if version == "v1":
            return ""
        return f"{ascii(version)[1:-1]} of {kind} is not served any more; write apiVersion: {right}"
    if kind == TAINT_RULE and version in TAINT_RULE_VERSIONS:
        return ""  # each of them is the only one of some release, and the versions that are served say nothing of it
    return "" if version in (served or SPOKEN) else _not_served(document, version, served)


def _api_version(kind: str, served: Collection[str]) -> str:
    group = UNDERSTOOD[kind]
    if group == GROUP:
        return f"{group}/{_best(served)}"
    return f"{group}/v1" if group else "v1"


def _best(served: Collection[str]) -> str:
    return next((one for one in SPOKEN if one in served), SPOKEN[0])


_ASK = "write the one of its kind, which `kubectl api-resources` has"


def _no_such_kind(kind: str, where: str, known: Collection[str]) -> str:
    """Return a message if the kind does not exist and its name is very similar to a kind that does; "" else.

    A kind with another name may be a custom resource.
    """
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(kind.lower(), lowered, 1, _VERY_NEAR)
    if not near:
        return ""
    return f"there is no kind {ascii(kind)[1:-1]} in {where} (did you mean {lowered[near[0]]}?); write kind: {lowered[near[0]]}"


def _not_served(document: Mapping[str, Any], version: str, served: Collection[str]) -> str:
    best = _best(served)
    shown = ascii(version)[1:-1]
    if version in SPOKEN or version in _FLAT:
        return f"{shown} is not served here; in {best} this is written {_written(document, version, best)}"
    if version == _FIRST and document.get("kind") in _OF_CLAIMS:
        return (
            f"{shown} is the first form of DRA and not served here; {_asked_today(document, best)}"
        )
    return f"{shown} is not served here; write it for {GROUP}/{best}"


def _written(document: Mapping[str, Any], version: str, best: str) -> str:
    """Return how to write the object, or its first request, in the version that the cluster serves."""
    change = f"apiVersion: {GROUP}/{best}"
    if document.get("kind") == "DeviceClass" or (version in _FLAT) == (best in _FLAT):
        return f"`{change}`, and the rest as it is"
    if best in _FLAT:
        return f"`{change}`, with the fields of `exactly` in the request itself"
    spec = _inner_spec(as_v1(document))
    devices = spec.get("devices")
    requests = devices.get("requests") if isinstance(devices, dict) else None
    requests = requests if isinstance(requests, list) else []
    example = yaml_in_one_line({"requests": requests[:1]})
    if len(example) > _LONGEST_EXAMPLE:
        return f"`{change}`, with the request's fields but its name below `exactly`"
    more = ", the others alike" if len(requests) > 1 else ""
    return f"`{change}`, with `{example[1:-1]}`{more}"


def _asked_today(document: Mapping[str, Any], best: str) -> str:
    """Return what a claim or template of the first form has in place of its class and parameters."""
    spec = _inner_spec(document)
    asked = {"deviceClassName": ascii(spec.get("resourceClassName") or "CLASS")[1:-1]}
    request = {"name": "gpu", **(asked if best in _FLAT else {"exactly": asked})}
    example = yaml_in_one_line({"requests": [request]})
    more = ""
    if "parametersRef" in spec:
        more = ", and what the object of `parametersRef` said as selectors, count or config"
    return f"write `apiVersion: {GROUP}/{best}`, and `devices: {example}` in place of `resourceClassName`{more}"


def passed_over(document: Mapping[str, Any]) -> str:
    """Return the report's sentence about an ignored object; "" if the object has nothing to do with pods and devices."""
    what = f"{kind_of(document)} {name_of(document)}"
    if group_and_version(document)[0] == GROUP:
        return f"{what}: what it would change is not looked at"
    if any(_templates(document, _DEEPEST)):
        return f"{what}: this kind is not known here, its pods are not looked at"
    return ""


def _templates(value: object, levels: int) -> Iterator[bool]:
    """Yield for each nested object whether it looks like the spec of a pod, down to `levels` levels."""
    if not levels:
        return
    if isinstance(value, dict):
        yield isinstance(value.get("containers"), list)
        for one in value.values():
            yield from _templates(one, levels - 1)
    elif isinstance(value, list):
        for one in value:
            yield from _templates(one, levels - 1)


def _inner_spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of the claim, also of the one that a template makes; empty if it is none."""
    spec = document.get("spec")
    if document.get("kind") == "ResourceClaimTemplate" and isinstance(spec, dict):
        spec = spec.get("spec")
    return spec if isinstance(spec, dict) else {}


def as_v1(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a claim or template of v1beta1, where the fields of `exactly` are in the request itself, to v1."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    if isinstance(spec.get("spec"), dict):
        return {**document, "spec": {**spec, "spec": _claim_as_v1(spec["spec"])}}
    return {**document, "spec": _claim_as_v1(spec)}


def _claim_as_v1(spec: dict[str, Any]) -> dict[str, Any]:
    devices = spec.get("devices")
    requests = devices.get("requests") if isinstance(devices, dict) else None
    if not isinstance(devices, dict) or not isinstance(requests, list):
        return spec
    return {**spec, "devices": {**devices, "requests": [_request_as_v1(one) for one in requests]}}


def _request_as_v1(request: object) -> object:
    if not isinstance(request, dict) or "deviceClassName" not in request:
        return request
    exactly = {key: value for key, value in request.items() if key != "name"}
    return {"name": request.get("name", ""), "exactly": exactly}
