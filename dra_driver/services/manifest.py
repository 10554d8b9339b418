# SPDX-License-Identifier: Apache-2.0
"""Objects that people give in files: read as the API server would read them, or refused as it would refuse them.

Workloads become the pods that they would make, claims of older versions become v1, and what the API server fills in is
filled in. A field that nobody knows is most often a typo, and what it should have said would count for nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dra_driver.allocator.readable import bad_quantity
from dra_driver.errors import Permanent
from dra_driver.model.api.core import Namespace, Pod
from dra_driver.model.api.defaults import pod_with_defaults, with_defaults
from dra_driver.model.api.meta import ApiValue, ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.services.manifest_checks import OF_A_WORKLOAD, refusal

GENERATED = "(generated)"
KINDS: Mapping[str, type[ApiValue]] = {
    "Pod": Pod,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "DeviceClass": DeviceClass,
    "Namespace": Namespace,
}
_WORKLOADS = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "ReplicationController",
)
_MALFORMED = (msgspec.MsgspecError, UnicodeEncodeError, TypeError, RecursionError)
"""What YAML can say and JSON cannot, and what is no such object."""
_Key = tuple[type[ApiValue], str, str]


def read_objects(documents: Iterable[object], namespace: str, source: str) -> list[ApiValue]:
    """The objects that matter here; of two with the same name the later one counts. Raises Permanent."""
    try:
        found = [one for part in _flat(documents) if (one := _read(part, namespace, source))]
    except RecursionError as error:
        raise Permanent(f"{source} has a List that contains itself: take it out") from error
    last: dict[_Key | int, ApiValue] = {}
    for one in found:
        last[_key(one)] = one
    return list(last.values())


def _key(found: Any) -> _Key | int:
    metadata: ObjectMeta = found.metadata
    if metadata.name == GENERATED:
        return id(found)
    return type(found), metadata.namespace, metadata.name


def _flat(documents: Iterable[object]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if not isinstance(document, dict):
            raise Permanent(
                f"a manifest is no object but {str(document)[:80]!r}: give YAML or JSON of the API"
            )
        if document.get("kind") == "List" and isinstance(document.get("items"), list):
            yield from _flat(document["items"])
        else:
            yield document


def _read(document: dict[str, Any], namespace: str, source: str) -> ApiValue | None:
    """One object, with what the API server would add; None where it does not matter here."""
    kind = str(document.get("kind") or "")
    if kind == "CronJob" or kind in _WORKLOADS:
        kind, document = "Pod", _pod_of(document, kind)
    if kind not in KINDS:
        return None
    if str(document.get("apiVersion", "")).endswith("/v1beta1"):
        document = _as_v1(document)
    try:
        written = msgspec.json.encode(document)
        found = msgspec.json.decode(written, type=KINDS[kind])
    except _MALFORMED as error:
        raise Permanent(
            f"{source}: {kind} {_name_of(document)} is malformed: {error}; correct that place"
        ) from error
    problem = bad_quantity(found) or refusal(msgspec.json.decode(written), found)
    if problem:
        raise Permanent(
            f"{source}: the API server would refuse {kind} {_name_of(document)}: {problem}; correct that place"
        )
    return _completed(found, namespace)


def _name_of(document: dict[str, Any]) -> str:
    name = _inside(document, "metadata").get("name")
    return ascii(name)[1:-1] if isinstance(name, str) and name else "without a name"


def _inside(document: Mapping[str, Any], field: str) -> dict[str, Any]:
    """An object in a document; whatever else stands there is none."""
    found = document.get(field)
    return found if isinstance(found, dict) else {}


def _completed(found: ApiValue, namespace: str) -> ApiValue:
    if isinstance(found, Pod):
        pod = msgspec.structs.replace(found, metadata=_placed(found.metadata, namespace))
        return pod_with_defaults(pod)
    if isinstance(found, ResourceClaim):
        spec = with_defaults(found.spec)
        metadata = _placed(found.metadata, namespace)
        return ResourceClaim(metadata=metadata, spec=spec)  # nobody applies a status
    if isinstance(found, ResourceClaimTemplate):
        return msgspec.structs.replace(found, metadata=_placed(found.metadata, namespace))
    return found


def _placed(metadata: ObjectMeta, namespace: str) -> ObjectMeta:
    name = metadata.name or GENERATED
    return msgspec.structs.replace(
        metadata,
        name=name,
        namespace=metadata.namespace or namespace,
        uid=metadata.uid or f"uid-of-{name}",
    )


def _pod_of(workload: dict[str, Any], kind: str) -> dict[str, Any]:
    """A pod as the workload would make it."""
    spec = _inside(workload, "spec")
    if kind == "CronJob":
        spec = _inside(_inside(spec, "jobTemplate"), "spec")
    template = spec.get("template")
    if not isinstance(template, dict):
        raise Permanent(f"{kind} {_name_of(workload)} has no spec.template: correct the manifest")
    outer = _inside(workload, "metadata")
    name = str(outer.get("name") or outer.get("generateName") or "").rstrip("-")
    metadata = {**_inside(template, "metadata"), "name": f"{name}{OF_A_WORKLOAD}"}
    if "namespace" in outer:
        metadata["namespace"] = outer["namespace"]
    return {**template, "metadata": metadata}


def _as_v1(document: dict[str, Any]) -> dict[str, Any]:
    """A claim or template of v1beta1: there the fields of `exactly` stood in the request itself."""
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
