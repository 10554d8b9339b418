# SPDX-License-Identifier: Apache-2.0
"""Which pods and claims do manifests describe? They are explained in a cluster to which the manifests are already applied."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dra_driver.allocator.amounts import amount
from dra_driver.errors import Permanent
from dra_driver.explain.claim_request import Body, requests_in
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.lookup import Found, find, namespace_is_missing
from dra_driver.explain.subject.manifest import KINDS, Given, read_objects
from dra_driver.explain.subject.subject import ManifestSubject, Resolved, WantedClaim
from dra_driver.explain.subject.wanted import existing, of_pod, of_template
from dra_driver.explain.subject.workloads import Workload
from dra_driver.model.api.core import Namespace, Pod
from dra_driver.model.api.defaults import with_defaults
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


def of_manifest(state: ClusterState, subject: ManifestSubject) -> Iterator[Resolved]:
    """Yield each pod of the manifests. If there is no pod: the claims together; if there is no claim either: each template.

    Raises Permanent if the API server would refuse an object, or if there is nothing to explain.
    """
    before = state
    manifest = read_objects(subject.named_documents, subject.namespace, before.served)
    objects = [_reapplied(before, one) for one in manifest.objects]
    for kind, field in _FIELDS.items():
        state = _with(state, field, tuple(one for one in objects if isinstance(one, KINDS[kind])))
    _require_namespaces(state, objects, subject.source)
    for one in _subjects(before, state, objects):
        yield replace(one, passed_over=manifest.passed_over)
    if not any(isinstance(one, _EXPLAINED) for one in objects):
        raise nothing_to_explain(subject.source, manifest.passed_over)


def nothing_to_explain(source: str, passed_over: Iterable[str] = ()) -> Permanent:
    """Return the error for manifests without anything to explain, with a sentence for each object that was ignored."""
    besides = "".join(f"; {words}" for words in passed_over)
    return Permanent(
        f"{source} has no pod, no ResourceClaim and no ResourceClaimTemplate: there is nothing to explain{besides}"
    )


def _require_namespaces(state: ClusterState, objects: Iterable[Given], source: str) -> None:
    """Raise Permanent if the namespace of an object does not exist: the API server would refuse the object."""
    for one in objects:
        if isinstance(one, _EXPLAINED):
            kind = one.kind if isinstance(one, Workload) else type(one).__name__
            metadata = one.pod.metadata if isinstance(one, Workload) else one.metadata
            if namespace_is_missing(state, metadata.namespace):
                raise Permanent(
                    f"{source}: the API server would refuse {kind} {full_name(metadata)}: there is no namespace "
                    f"{metadata.namespace}; create it, put it into the file, or give another one with -n"
                )


def _subjects(
    before: ClusterState, state: ClusterState, objects: Sequence[Given]
) -> Iterator[Resolved]:
    pods = [one for one in objects if isinstance(one, Pod | Workload)]
    claims = [one for one in objects if isinstance(one, ResourceClaim)]
    templates = [one for one in objects if isinstance(one, ResourceClaimTemplate)]
    fresh = {full_name(one.metadata): _origin(before, one) for one in claims}
    if pods:
        for one in pods:
            workload = one if isinstance(one, Workload) else None
            resolved = of_pod(state, one.pod if isinstance(one, Workload) else one, live=False)
            wanted = tuple(_from_file(each, fresh) for each in resolved.wanted)
            title = workload.title if workload else resolved.title
            yield replace(resolved, title=title, wanted=wanted, workload=workload)
    elif claims:
        names = ", ".join(full_name(claim.metadata) for claim in claims)
        yield Resolved(
            f"claim {names}", state, tuple(_from_file(existing(one), fresh) for one in claims)
        )
    else:
        yield from (of_template(state, template) for template in templates)


def _reapplied(state: ClusterState, one: Given) -> Given:
    """Return the object as the API server would store it: a claim or pod that exists already keeps its status."""
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


def _known(objects: Iterable[Found], wanted: Found) -> Found | None:
    return find(objects, wanted.metadata.namespace, wanted.metadata.name)


def _same_spec(known: ResourceClaim, one: ResourceClaim) -> bool:
    """Return whether both claims ask for the same devices. Opaque parameters are not compared, because a record omits them."""
    whole = msgspec.structs.replace(known, spec=with_defaults(known.spec))
    return _deciding(whole) == _deciding(one)


def _deciding(claim: ResourceClaim) -> tuple[object, ...]:
    """Return the requests and constraints of a claim in a form that can be compared.

    Quantities become numbers, because the API server rewrites their text.
    """
    requests = [
        (one.name, msgspec.structs.replace(one.body, capacity=None), _capacity(one.body))
        for one in requests_in(claim)
    ]
    return requests, claim.spec.devices.constraints or []


def _capacity(body: Body) -> dict[str, int]:
    requests = body.capacity.requests if body.capacity else None
    return {name: amount(text).nanos for name, text in (requests or {}).items()}


def _origin(before: ClusterState, claim: ResourceClaim) -> str:
    """Return where a claim of the manifest comes from; "" if the cluster has the same claim with the same spec."""
    known = _known(before.resource_claims, claim)
    if known is None:
        return FROM_FILE
    return "" if known is claim else IN_PLACE_OF


def _from_file(one: WantedClaim, origins: Mapping[str, str]) -> WantedClaim:
    origin = origins.get(one.name, "")
    return replace(one, exists=False, origin=origin) if origin else one


def _with(state: ClusterState, field: str, mine: tuple[Any, ...]) -> ClusterState:
    """Return the cluster as if these objects had been applied."""
    names = {(one.metadata.namespace, one.metadata.name) for one in mine}
    others = tuple(
        one
        for one in getattr(state, field)
        if (one.metadata.namespace, one.metadata.name) not in names
    )
    return msgspec.structs.replace(state, **{field: others + mine}) if mine else state
