# SPDX-License-Identifier: Apache-2.0
"""Which pod and which claims shall be explained? From a name in the cluster, or from manifests that nobody has applied."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from dra_driver.errors import Permanent
from dra_driver.model.api.core import Node, Pod, PodResourceClaim
from dra_driver.model.api.defaults import pod_with_defaults, with_defaults
from dra_driver.model.api.meta import ApiValue, ObjectMeta, OwnerReference
from dra_driver.model.api.resource_claim import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.model.cluster import ClusterState
from dra_driver.model.verdict import ClaimMissing, CouldNotTell, TemplateMissing, Verdict

FROM_FILE = "a manifest"
_KINDS: Mapping[str, type[ApiValue]] = {
    "Pod": Pod,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "DeviceClass": DeviceClass,
}
_FIELDS = {
    "ResourceClaim": "resource_claims",
    "ResourceClaimTemplate": "resource_claim_templates",
    "DeviceClass": "device_classes",
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
_Object = TypeVar("_Object", ResourceClaim, ResourceClaimTemplate, Pod)


@dataclass(frozen=True, slots=True)
class PodSubject:
    """A pod of the cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ClaimSubject:
    """A claim of the cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TemplateSubject:
    """A template of the cluster: what a claim made from it would get."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ManifestSubject:
    """Objects as YAML or JSON gives them; `namespace` is for those that name none, `source` is for messages."""

    documents: tuple[object, ...]
    namespace: str
    source: str


Subject = PodSubject | ClaimSubject | TemplateSubject | ManifestSubject


@dataclass(frozen=True, slots=True)
class Wanted:
    """One claim of the subject. `claim` is None where there is none; `made` where it exists in the cluster."""

    name: str
    claim: ResourceClaim | None = None
    origin: str = ""
    made: bool = False
    own: bool = False
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is explained, and the cluster with what the manifests add. `live` is a pod that the cluster knows."""

    title: str
    state: ClusterState
    wanted: tuple[Wanted, ...]
    pod: Pod | None = None
    live: bool = False


def resolve(state: ClusterState, subject: Subject) -> Iterator[Resolved]:
    """What the subject means, for several pods one by one. Raises Permanent."""
    match subject:
        case PodSubject():
            pod = _named(state.pods, subject, "pod", state)
            yield _pod(state, pod, live=True)
        case ClaimSubject():
            claim = _named(state.resource_claims, subject, "resourceclaim", state)
            yield Resolved(f"claim {_full(claim.metadata)}", state, (_existing(claim),))
        case TemplateSubject():
            template = _named(
                state.resource_claim_templates, subject, "resourceclaimtemplate", state
            )
            yield _template(state, template)
        case _:
            yield from _manifest(state, subject)


def _named(
    objects: Iterable[_Object],
    subject: PodSubject | ClaimSubject | TemplateSubject,
    kind: str,
    state: ClusterState,
) -> _Object:
    for one in objects:
        if (one.metadata.namespace, one.metadata.name) == (subject.namespace, subject.name):
            return one
    gap = state.unread(f"{kind}s")
    if gap is not None:
        raise Permanent(f"cannot find {kind} {subject.namespace}/{subject.name}: {gap.message}")
    raise Permanent(
        f"there is no {kind} {subject.namespace}/{subject.name} in this cluster: look with "
        f"`kubectl get {kind}s --all-namespaces`, or give another namespace with -n"
    )


def _pod(state: ClusterState, pod: Pod, *, live: bool) -> Resolved:
    wanted = tuple(
        found
        for entry in pod.spec.resource_claims or ()
        if (found := _entry(state, pod, entry, live=live)) is not None
    )
    return Resolved(f"pod {_full(pod.metadata)}", state, wanted, pod, live)


def _entry(state: ClusterState, pod: Pod, entry: PodResourceClaim, *, live: bool) -> Wanted | None:
    """The claim that an entry of the pod refers to; None where the pod does without."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is not None:
        return _by_name(state, namespace, entry.resource_claim_name)
    for status in pod.status.resource_claim_statuses or ():
        if status.name == entry.name:
            if status.resource_claim_name is None:
                return None
            return replace(_by_name(state, namespace, status.resource_claim_name), own=True)
    return _from_template(state, pod, entry, live=live)


def _by_name(state: ClusterState, namespace: str, name: str) -> Wanted:
    for claim in state.resource_claims:
        if (claim.metadata.namespace, claim.metadata.name) == (namespace, name):
            return _existing(claim)
    full = f"{namespace}/{name}"
    gap = state.unread("resourceclaims")
    problem = CouldNotTell(gap.reason, gap.message) if gap else ClaimMissing(full, "does not exist")
    return Wanted(full, verdicts=(problem,))


def _existing(claim: ResourceClaim) -> Wanted:
    return Wanted(_full(claim.metadata), claim, made=True)


def _from_template(state: ClusterState, pod: Pod, entry: PodResourceClaim, *, live: bool) -> Wanted:
    name = entry.resource_claim_template_name or ""
    full = f"{pod.metadata.namespace}/{name}"
    for template in state.resource_claim_templates:
        if (template.metadata.namespace, template.metadata.name) == (pod.metadata.namespace, name):
            claim = _made_from(template, pod, entry.name)
            late = "was not made from its template yet: look at the events of the pod"
            missing = (ClaimMissing(f"{full} ({entry.name})", late),) if live else ()
            return Wanted(
                _full(claim.metadata), claim, f"template {full}", own=True, verdicts=missing
            )
    gap = state.unread("resourceclaimtemplates")
    problem = CouldNotTell(gap.reason, gap.message) if gap else TemplateMissing(full)
    return Wanted(entry.name, origin=f"template {full}", verdicts=(problem,))


def _made_from(template: ResourceClaimTemplate, pod: Pod, entry: str) -> ResourceClaim:
    owner = OwnerReference(
        kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
    )
    metadata = ObjectMeta(
        name=f"{pod.metadata.name}-{entry}",
        namespace=pod.metadata.namespace,
        uid=f"{pod.metadata.uid}-{entry}",
        owner_references=[owner],
    )
    return ResourceClaim(metadata=metadata, spec=with_defaults(template.spec.spec))


def _template(state: ClusterState, template: ResourceClaimTemplate) -> Resolved:
    name = _full(template.metadata)
    claim = ResourceClaim(metadata=template.metadata, spec=with_defaults(template.spec.spec))
    return Resolved(f"template {name}", state, (Wanted(name, claim, f"template {name}"),))


def _full(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _manifest(state: ClusterState, subject: ManifestSubject) -> Iterator[Resolved]:
    try:
        objects = [found for one in _flat(subject.documents) if (found := _read(one, subject))]
    except RecursionError as error:
        raise Permanent(f"{subject.source} has a List that contains itself: take it out") from error
    for kind, field in _FIELDS.items():
        mine = tuple(one for one in objects if isinstance(one, _KINDS[kind]))
        state = _with(state, field, mine)
    pods = [one for one in objects if isinstance(one, Pod)]
    claims = [one for one in objects if isinstance(one, ResourceClaim)]
    templates = [one for one in objects if isinstance(one, ResourceClaimTemplate)]
    if pods:
        fresh = {_full(claim.metadata) for claim in claims}
        for pod in pods:
            resolved = _pod(state, pod, live=False)
            wanted = tuple(
                replace(one, made=False, origin=FROM_FILE) if one.name in fresh else one
                for one in resolved.wanted
            )
            yield replace(resolved, wanted=wanted)
    elif claims:
        names = ", ".join(_full(claim.metadata) for claim in claims)
        wanted = tuple(replace(_existing(one), made=False, origin=FROM_FILE) for one in claims)
        yield Resolved(f"claim {names}", state, wanted)
    elif templates:
        yield from (_template(state, template) for template in templates)
    else:
        raise Permanent(
            f"{subject.source} has no pod, no ResourceClaim and no ResourceClaimTemplate: there is nothing to explain"
        )


def _with(state: ClusterState, field: str, mine: tuple[Any, ...]) -> ClusterState:
    """The cluster as if these objects had been applied."""
    names = {(one.metadata.namespace, one.metadata.name) for one in mine}
    others = tuple(
        one
        for one in getattr(state, field)
        if (one.metadata.namespace, one.metadata.name) not in names
    )
    return msgspec.structs.replace(state, **{field: others + mine}) if mine else state


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


def _read(document: dict[str, Any], subject: ManifestSubject) -> ApiValue | None:
    """One object, with what the API server would add; None where it does not matter here."""
    kind = str(document.get("kind") or "")
    if kind == "CronJob" or kind in _WORKLOADS:
        kind, document = "Pod", _pod_of(document, kind)
    if kind not in _KINDS:
        return None
    if str(document.get("apiVersion", "")).endswith("/v1beta1"):
        document = _as_v1(document)
    try:
        found = msgspec.json.decode(msgspec.json.encode(document), type=_KINDS[kind])
    except _MALFORMED as error:
        raise Permanent(
            f"{subject.source}: {kind} {_name_of(document)} is malformed: {error}; correct that place"
        ) from error
    return _completed(found, subject.namespace)


def _name_of(document: dict[str, Any]) -> str:
    name = _inside(document, "metadata").get("name")
    return ascii(name)[1:-1] if isinstance(name, str) else "without a name"


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
        return msgspec.structs.replace(found, metadata=metadata, spec=spec)
    if isinstance(found, ResourceClaimTemplate):
        return msgspec.structs.replace(found, metadata=_placed(found.metadata, namespace))
    return found


def _placed(metadata: ObjectMeta, namespace: str) -> ObjectMeta:
    generated = "(generated)" if not metadata.name else metadata.name
    return msgspec.structs.replace(
        metadata,
        name=generated,
        namespace=metadata.namespace or namespace,
        uid=metadata.uid or f"uid-of-{generated}",
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
    metadata = {**_inside(template, "metadata"), "name": f"{outer.get('name', '')}-(pod)"}
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


def node_named(state: ClusterState, name: str) -> Node:
    """The node of that name. Raises Permanent."""
    for node in state.nodes:
        if node.metadata.name == name:
            return node
    raise Permanent(f"there is no node {name} in this cluster: look with `kubectl get nodes`")
