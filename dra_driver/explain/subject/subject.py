# SPDX-License-Identifier: Apache-2.0
"""Which pod and which claims shall be explained? From a name in the cluster, or from manifests that nobody has applied."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from dra_driver.allocator.amounts import amount
from dra_driver.errors import Permanent
from dra_driver.explain.claim_request import Body, requests_in
from dra_driver.explain.subject.manifest import KINDS, Given, read_objects
from dra_driver.explain.subject.workloads import Workload
from dra_driver.explain.verdict import ClaimMissing, CouldNotTell, TemplateMissing, Verdict
from dra_driver.model.api.core import Namespace, Node, Pod, PodResourceClaim
from dra_driver.model.api.defaults import with_defaults
from dra_driver.model.api.meta import ObjectMeta, OwnerReference
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimTemplate
from dra_driver.model.cluster import ClusterState

FROM_FILE = "a manifest"
IN_PLACE_OF = (
    "a manifest, in place of the claim there, which has another spec and must be deleted first"
)
_FIELDS = {
    "ResourceClaim": "resource_claims",
    "ResourceClaimTemplate": "resource_claim_templates",
    "DeviceClass": "device_classes",
    "Namespace": "namespaces",
}
_EXPLAINED = (Pod, Workload, ResourceClaim, ResourceClaimTemplate)
_SHOWN = 4
_Object = TypeVar("_Object", ResourceClaim, ResourceClaimTemplate, Pod, Namespace)


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
class WantedClaim:
    """One claim of the subject. `claim` is None where there is none; `made` where it exists in the cluster."""

    name: str
    claim: ResourceClaim | None = None
    origin: str = ""
    made: bool = False
    own: bool = False
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is explained, and the cluster with what the manifests add.

    `live` is a pod that the cluster knows. Of a `workload`, `pod` is one of its pods. `passed_over` is what a manifest holds
    besides and nobody looks at.
    """

    title: str
    state: ClusterState
    wanted: tuple[WantedClaim, ...]
    pod: Pod | None = None
    live: bool = False
    workload: Workload | None = None
    passed_over: tuple[str, ...] = ()


def resolve(state: ClusterState, subject: Subject, *, recorded: bool = False) -> Iterator[Resolved]:
    """What the subject means, for several pods one by one; `recorded` where the cluster is a file. Raises Permanent."""
    where = _Cluster(state, recorded)
    match subject:
        case PodSubject():
            pod = _named(state.pods, subject, "pod", where)
            yield _pod(state, pod, live=True)
        case ClaimSubject():
            claim = _named(state.resource_claims, subject, "resourceclaim", where)
            yield Resolved(f"claim {_full(claim.metadata)}", state, (_existing(claim),))
        case TemplateSubject():
            template = _named(
                state.resource_claim_templates, subject, "resourceclaimtemplate", where
            )
            yield _template(state, template)
        case _:
            yield from _manifest(state, subject)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where a name is looked for: a cluster, or the record of one."""

    state: ClusterState
    recorded: bool


def _named(
    objects: Sequence[_Object],
    subject: PodSubject | ClaimSubject | TemplateSubject,
    kind: str,
    where: _Cluster,
) -> _Object:
    found = _find(objects, subject.namespace, subject.name)
    if found is None:
        name = f"{subject.namespace}/{subject.name}"
        alike = {one.metadata.namespace for one in objects if one.metadata.name == subject.name}
        if alike:
            shown = ", ".join(sorted(alike)[:_SHOWN])
            raise _not_there(where, kind, name, f"there is one in {shown}: give it with -n")
        if _is_missing(where.state, subject.namespace):
            raise _not_there(where, kind, name, f"there is no namespace {subject.namespace} either")
        look = (
            f"look with `kubectl get {kind}s --all-namespaces`, or give another namespace with -n"
        )
        if where.recorded:
            look = f"it has {_listed([_full(one.metadata) for one in objects])}"
        raise _not_there(where, kind, name, look)
    return found


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names):,})" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more


def _is_missing(state: ClusterState, namespace: str) -> bool:
    """Whether a namespace is known not to be there: every cluster has some, so none means that nobody looked."""
    known = {one.metadata.name for one in state.namespaces}
    return bool(known) and namespace not in known and not state.unread("namespaces", namespace)


def _find(objects: Iterable[_Object], namespace: str, name: str) -> _Object | None:
    wanted = namespace, name
    found = (one for one in objects if (one.metadata.namespace, one.metadata.name) == wanted)
    return next(found, None)


def _not_there(where: _Cluster, kind: str, name: str, look: str) -> Permanent:
    gap = where.state.unread(f"{kind}s", name)
    if gap is not None:
        return Permanent(f"cannot {'read' if gap.name else 'find'} {kind} {name}: {gap.message}")
    place = "the record" if where.recorded else "this cluster"
    return Permanent(f"there is no {kind} {name} in {place}: {look}")


def _pod(state: ClusterState, pod: Pod, *, live: bool) -> Resolved:
    wanted = tuple(
        found
        for entry in pod.spec.resource_claims or ()
        if (found := _entry(state, pod, entry, live=live)) is not None
    )
    return Resolved(f"pod {_full(pod.metadata)}", state, wanted, pod, live)


def _entry(
    state: ClusterState, pod: Pod, entry: PodResourceClaim, *, live: bool
) -> WantedClaim | None:
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


def _by_name(state: ClusterState, namespace: str, name: str) -> WantedClaim:
    claim = _find(state.resource_claims, namespace, name)
    if claim is not None:
        return _existing(claim)
    full = f"{namespace}/{name}"
    gap = state.unread("resourceclaims", full)
    problem = CouldNotTell(gap.reason, str(gap)) if gap else ClaimMissing(full, "does not exist")
    return WantedClaim(full, verdicts=(problem,))


def _existing(claim: ResourceClaim) -> WantedClaim:
    """A claim of the cluster; a record that somebody wrote may lack what an API server fills in."""
    whole = msgspec.structs.replace(claim, spec=with_defaults(claim.spec))
    return WantedClaim(_full(claim.metadata), whole, made=True)


def _from_template(
    state: ClusterState, pod: Pod, entry: PodResourceClaim, *, live: bool
) -> WantedClaim:
    name = entry.resource_claim_template_name or ""
    full = f"{pod.metadata.namespace}/{name}"
    template = _find(state.resource_claim_templates, pod.metadata.namespace, name)
    if template is not None:
        claim = _made_from(template, pod, entry.name)
        late = "was not made from its template yet: look at the events of the pod"
        missing = (ClaimMissing(f"{full} ({entry.name})", late),) if live else ()
        return WantedClaim(
            _full(claim.metadata), claim, f"template {full}", own=True, verdicts=missing
        )
    gap = state.unread("resourceclaimtemplates", full)
    problem = CouldNotTell(gap.reason, str(gap)) if gap else TemplateMissing(full)
    return WantedClaim(entry.name, origin=f"template {full}", verdicts=(problem,))


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
    return Resolved(f"template {name}", state, (WantedClaim(name, claim, f"template {name}"),))


def _full(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _manifest(state: ClusterState, subject: ManifestSubject) -> Iterator[Resolved]:
    before = state
    manifest = read_objects(subject.documents, subject.namespace, subject.source, before.served)
    objects = [_reapplied(before, one) for one in manifest.objects]
    for kind, field in _FIELDS.items():
        state = _with(state, field, tuple(one for one in objects if isinstance(one, KINDS[kind])))
    _require_namespaces(state, objects, subject.source)
    for one in _subjects(before, state, objects):
        yield replace(one, passed_over=manifest.passed_over)
    if not any(isinstance(one, _EXPLAINED) for one in objects):
        besides = "".join(f"; {words}" for words in manifest.passed_over)
        raise Permanent(
            f"{subject.source} has no pod, no ResourceClaim and no ResourceClaimTemplate: there is nothing to explain{besides}"
        )


def _require_namespaces(state: ClusterState, objects: Iterable[Given], source: str) -> None:
    """The API server takes nothing into a namespace that is not there. Raises Permanent."""
    for one in objects:
        if isinstance(one, _EXPLAINED):
            kind = one.kind if isinstance(one, Workload) else type(one).__name__
            metadata = one.pod.metadata if isinstance(one, Workload) else one.metadata
            if _is_missing(state, metadata.namespace):
                raise Permanent(
                    f"{source}: the API server would refuse {kind} {_full(metadata)}: there is no namespace "
                    f"{metadata.namespace}; create it, put it into the file, or give another one with -n"
                )


def _subjects(
    before: ClusterState, state: ClusterState, objects: Sequence[Given]
) -> Iterator[Resolved]:
    pods = [one for one in objects if isinstance(one, Pod | Workload)]
    claims = [one for one in objects if isinstance(one, ResourceClaim)]
    templates = [one for one in objects if isinstance(one, ResourceClaimTemplate)]
    fresh = {_full(one.metadata): _origin(before, one) for one in claims}
    if pods:
        for one in pods:
            workload = one if isinstance(one, Workload) else None
            resolved = _pod(state, one.pod if isinstance(one, Workload) else one, live=False)
            wanted = tuple(_from_file(each, fresh) for each in resolved.wanted)
            title = workload.title if workload else resolved.title
            yield replace(resolved, title=title, wanted=wanted, workload=workload)
    elif claims:
        names = ", ".join(_full(claim.metadata) for claim in claims)
        yield Resolved(
            f"claim {names}", state, tuple(_from_file(_existing(one), fresh) for one in claims)
        )
    else:
        yield from (_template(state, template) for template in templates)


def after(resolved: Resolved, state: ClusterState, number: int = 0) -> Resolved:
    """A pod of a manifest, once more before a cluster in which other pods have been served; of a workload its pod of that number."""
    pod = resolved.pod
    if pod is None:
        return replace(resolved, state=state)
    before = {one.name: one for one in resolved.wanted}
    if number:
        pod = numbered(pod, number)
    again = _pod(state, pod, live=False)
    wanted = tuple(
        replace(one, made=before[one.name].made, origin=before[one.name].origin)
        if one.name in before
        else one
        for one in again.wanted
    )
    return replace(resolved, state=state, pod=pod, wanted=wanted)


def numbered(pod: Pod, number: int) -> Pod:
    """One of the pods of a workload, whose name the pod has."""
    name, uid = f"{pod.metadata.name}-{number}", f"{pod.metadata.uid}-{number}"
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=uid)
    )


def _reapplied(state: ClusterState, one: Given) -> Given:
    """The object as it is after it was applied to the one of that name, if there is one."""
    if isinstance(one, ResourceClaim):
        known = _known(state.resource_claims, one)
        return known if known is not None and _same_spec(known, one) else one
    if isinstance(one, Pod):
        pod = _known(state.pods, one)
        if pod is None or pod.spec.resource_claims != one.spec.resource_claims:
            return one
        return msgspec.structs.replace(one, metadata=pod.metadata, status=pod.status)
    if isinstance(one, Namespace):
        before = _known(state.namespaces, one)
        labels = {**((before and before.metadata.labels) or {}), **(one.metadata.labels or {})}
        metadata = msgspec.structs.replace(one.metadata, labels=labels)
        return Namespace(metadata=metadata)
    return one


def _known(objects: Iterable[_Object], wanted: _Object) -> _Object | None:
    return _find(objects, wanted.metadata.namespace, wanted.metadata.name)


def _same_spec(known: ResourceClaim, one: ResourceClaim) -> bool:
    """Whether nothing changes that decides about devices: a record does not keep parameters of drivers."""
    whole = msgspec.structs.replace(known, spec=with_defaults(known.spec))
    return _deciding(whole) == _deciding(one)


def _deciding(claim: ResourceClaim) -> tuple[object, ...]:
    """What a claim asks for; the API server writes quantities in its own way."""
    requests = [
        (asked.name, msgspec.structs.replace(asked.body, capacity=None), _capacity(asked.body))
        for asked in requests_in(claim)
    ]
    return requests, claim.spec.devices.constraints or []


def _capacity(body: Body) -> dict[str, int]:
    requests = body.capacity.requests if body.capacity else None
    return {name: amount(text).nanos for name, text in (requests or {}).items()}


def _origin(before: ClusterState, claim: ResourceClaim) -> str:
    """Where a claim of the manifest comes from; "" where it is in the cluster as it stands there."""
    known = _known(before.resource_claims, claim)
    if known is None:
        return FROM_FILE
    return "" if known is claim else IN_PLACE_OF


def _from_file(one: WantedClaim, origins: Mapping[str, str]) -> WantedClaim:
    origin = origins.get(one.name, "")
    return replace(one, made=False, origin=origin) if origin else one


def _with(state: ClusterState, field: str, mine: tuple[Any, ...]) -> ClusterState:
    """The cluster as if these objects had been applied."""
    names = {(one.metadata.namespace, one.metadata.name) for one in mine}
    others = tuple(
        one
        for one in getattr(state, field)
        if (one.metadata.namespace, one.metadata.name) not in names
    )
    return msgspec.structs.replace(state, **{field: others + mine}) if mine else state


def node_named(state: ClusterState, name: str, *, recorded: bool = False) -> Node:
    """The node of that name. Raises Permanent."""
    for node in state.nodes:
        if node.metadata.name == name:
            return node
    look = "look with `kubectl get nodes`"
    if recorded:
        look = f"it has {_listed([one.metadata.name for one in state.nodes])}"
    raise _not_there(_Cluster(state, recorded), "node", name, look)
