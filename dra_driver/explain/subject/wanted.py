# SPDX-License-Identifier: Apache-2.0
"""Which claims does a pod need, and which of them exist in the cluster?

If a claim does not exist yet, this module builds it from its template, as the resource claim controller would.
Source: k8s.io/kubernetes pkg/controller/resourceclaim, k8s.io/dynamic-resource-allocation/resourceclaim (Name).
"""

import msgspec
from msgspec.structs import replace

from dra_driver.explain.names import full_name
from dra_driver.explain.subject.lookup import find
from dra_driver.explain.subject.subject import Resolved, ResolvedPod, WantedClaim
from dra_driver.explain.verdict import ClaimMissing, CouldNotTell, TemplateMissing
from dra_driver.explain.verdicts.claim import NOT_MADE_YET
from dra_driver.model.api.core import Pod, PodResourceClaim
from dra_driver.model.api.defaults import pod_with_defaults, with_defaults
from dra_driver.model.api.meta import ObjectMeta, OwnerReference
from dra_driver.model.api.resource_claim import (
    POD_CLAIM_NAME,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.model.cluster import ClusterState


def of_pod(state: ClusterState, pod: Pod, *, live: bool) -> ResolvedPod:
    """Return the pod with its claims. `live`: the pod exists in the cluster, so that the controller makes its claims.

    The API server's defaults are filled in, because a record edited by hand may lack them.
    """
    pod = pod_with_defaults(pod)
    wanted = tuple(
        found
        for entry in pod.spec.resource_claims or ()
        if (found := _entry(state, pod, entry, live=live)) is not None
    )
    return ResolvedPod(f"pod {full_name(pod.metadata)}", state, wanted, pod, live)


def _entry(
    state: ClusterState, pod: Pod, entry: PodResourceClaim, *, live: bool
) -> WantedClaim | None:
    """Return the claim for an entry of the pod's spec.resourceClaims; None if its status says that the pod needs no claim there."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is not None:
        return _by_name(state, namespace, entry.resource_claim_name)
    for status in pod.status.resource_claim_statuses or ():
        if status.name == entry.name:
            if status.resource_claim_name is None:
                return None
            return replace(
                _by_name(state, namespace, status.resource_claim_name), for_this_pod=True
            )
    return _from_template(state, pod, entry, live=live)


def _by_name(state: ClusterState, namespace: str, name: str) -> WantedClaim:
    claim = find(state.resource_claims, namespace, name)
    if claim is not None:
        return existing(claim)
    full = f"{namespace}/{name}"
    gap = state.unread("resourceclaims", full)
    problem = CouldNotTell(gap.reason, str(gap)) if gap else ClaimMissing(full, "does not exist")
    return WantedClaim(full, problems=(problem,))


def existing(claim: ResourceClaim) -> WantedClaim:
    """Return a claim of the cluster. The API server's defaults are filled in, because a record edited by hand may lack them."""
    whole = msgspec.structs.replace(claim, spec=with_defaults(claim.spec))
    return WantedClaim(full_name(claim.metadata), whole, exists=True)


def _from_template(
    state: ClusterState, pod: Pod, entry: PodResourceClaim, *, live: bool
) -> WantedClaim:
    name = entry.resource_claim_template_name or ""
    full = f"{pod.metadata.namespace}/{name}"
    template = find(state.resource_claim_templates, pod.metadata.namespace, name)
    if template is not None:
        claim = _made_from(template, pod, entry.name)
        return WantedClaim(
            full_name(claim.metadata),
            claim,
            f"template {full}",
            for_this_pod=True,
            not_made_yet=ClaimMissing(f"{full} ({entry.name})", NOT_MADE_YET) if live else None,
        )
    gap = state.unread("resourceclaimtemplates", full)
    problem = CouldNotTell(gap.reason, str(gap)) if gap else TemplateMissing(full)
    return WantedClaim(entry.name, origin=f"template {full}", problems=(problem,))


def _made_from(template: ResourceClaimTemplate, pod: Pod, entry: str) -> ResourceClaim:
    """Build the claim that the controller would make. As there, an annotation has the claim's name in the pod's spec."""
    owner = OwnerReference(
        kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
    )
    metadata = ObjectMeta(
        name=f"{pod.metadata.name}-{entry}",
        namespace=pod.metadata.namespace,
        uid=f"{pod.metadata.uid}-{entry}",
        annotations={POD_CLAIM_NAME: entry},
        owner_references=[owner],
    )
    return ResourceClaim(metadata=metadata, spec=with_defaults(template.spec.spec))


def of_template(state: ClusterState, template: ResourceClaimTemplate) -> Resolved:
    """Return a claim made from the template, without a pod."""
    name = full_name(template.metadata)
    claim = ResourceClaim(metadata=template.metadata, spec=with_defaults(template.spec.spec))
    return Resolved(f"template {name}", state, (WantedClaim(name, claim, f"template {name}"),))


def after(resolved: ResolvedPod, state: ClusterState, number: int = 0) -> ResolvedPod:
    """Return the same pod of a manifest, in a `state` where other pods have their devices.

    For a workload, `number` is the number of its pod, from 1; 0 for a pod without a workload.
    """
    before = {one.name: one for one in resolved.wanted}
    pod = numbered(resolved.pod, number) if number else resolved.pod
    again = of_pod(state, pod, live=False)
    wanted = tuple(
        replace(one, exists=before[one.name].exists, origin=before[one.name].origin)
        if one.name in before
        else one
        for one in again.wanted
    )
    return replace(resolved, state=state, pod=pod, wanted=wanted)


def numbered(pod: Pod, number: int) -> Pod:
    """Return pod `number` of a workload. The number is added to the name and the UID of `pod`."""
    name, uid = f"{pod.metadata.name}-{number}", f"{pod.metadata.uid}-{number}"
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=uid)
    )
