# SPDX-License-Identifier: Apache-2.0
"""Which claims does a pod need, and which of them exist in the cluster?

If a claim does not exist yet, this module builds it from its template, as the resource claim controller would.
Source: k8s.io/kubernetes pkg/controller/resourceclaim, k8s.io/dynamic-resource-allocation/resourceclaim (Name).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from dra_driver.cel.reasons.similar import likely
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import Resolved, ResolvedPod, WantedClaim
from dra_driver.explain.verdict import ClaimMissing, CouldNotTell, TemplateMissing
from dra_driver.explain.verdicts.claim import NOT_MADE_YET
from dra_driver.model.api.core import Pod, PodResourceClaim
from dra_driver.model.api.defaults import pod_with_defaults, with_defaults
from dra_driver.model.api.meta import ObjectMeta, OwnerReference
from dra_driver.model.api.resource_claim import (
    POD_CLAIM_NAME,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from dra_driver.model.cluster import ClusterState

_MOST_COMPARED = 250_000
"""Characters of the names of one namespace that are compared for those that it lacks. This takes a tenth of a second."""


class _Names(NamedTuple):
    """The names of one namespace, and how long they are together."""

    names: Sequence[str]
    characters: int = 0


class Known:
    """The claims and templates of a cluster by their names. Each is found and gets its defaults once, however often pods name it."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._wanted: dict[tuple[str, str, bool], WantedClaim] = {}
        self._missing_templates: dict[tuple[str, str, bool], TemplateMissing | CouldNotTell] = {}
        self._compared: Counter[str] = Counter()
        self._specs: dict[tuple[str, str], ResourceClaimSpec] = {}

    @cached_property
    def _claims(self) -> Mapping[tuple[str, str], ResourceClaim]:
        # Of a claim that could not be read, the state may still have the devices.
        unread = {gap.name for gap in self.state.gaps("resourceclaims")}
        found = {_key(one.metadata): one for one in reversed(self.state.resource_claims)}
        return {key: one for key, one in found.items() if "/".join(key) not in unread}

    @cached_property
    def _templates(self) -> Mapping[tuple[str, str], ResourceClaimTemplate]:
        return {_key(one.metadata): one for one in reversed(self.state.resource_claim_templates)}

    @cached_property
    def _namespaces_of_claims(self) -> Mapping[str, tuple[str, ...]]:
        return _by_name(self._claims)

    @cached_property
    def _namespaces_of_templates(self) -> Mapping[str, tuple[str, ...]]:
        return _by_name(self._templates)

    @cached_property
    def _claims_by_hand(self) -> Mapping[str, _Names]:
        """The names of the claims that nobody made for a pod, by namespace."""
        alone = (key for key, one in self._claims.items() if not one.metadata.owner_references)
        return _by_namespace(alone)

    @cached_property
    def _templates_by_namespace(self) -> Mapping[str, _Names]:
        return _by_namespace(self._templates)

    def claim(self, namespace: str, name: str, *, asks: bool = True) -> WantedClaim:
        """Return the claim of this name; with a problem if there is none. `asks`: which other name may have been meant."""
        claim = self._claims.get((namespace, name))
        key = namespace, name, asks and claim is None
        if key not in self._wanted:
            self._wanted[key] = (
                self._missing(namespace, name, asks=asks) if claim is None else existing(claim)
            )
        return self._wanted[key]

    def spec(self, namespace: str, name: str) -> ResourceClaimSpec | None:
        """Return the spec of the claims that are made from the template of this name; None if there is none."""
        key = namespace, name
        template = self._templates.get(key)
        if template is not None and key not in self._specs:
            self._specs[key] = with_defaults(template.spec.spec)
        return self._specs.get(key)

    def _missing(self, namespace: str, name: str, *, asks: bool) -> WantedClaim:
        full = f"{namespace}/{name}"
        if gap := self.state.unread("resourceclaims", full):
            return WantedClaim(full, problems=(CouldNotTell(gap.reason, str(gap)),))
        is_template = (namespace, name) in self._templates
        others = self._namespaces_of_claims.get(name, ())
        asks = asks and not is_template and not others
        near = self._near(namespace, name, self._claims_by_hand) if asks else ""
        missing = ClaimMissing(full, "does not exist", is_template, others, near)
        return WantedClaim(full, problems=(missing,))

    def no_template(
        self, namespace: str, name: str, *, asks: bool = True
    ) -> TemplateMissing | CouldNotTell:
        """Return why there is no template of this name. `asks`: which other name may have been meant."""
        key = namespace, name, asks
        if key not in self._missing_templates:
            self._missing_templates[key] = self._no_template(namespace, name, asks=asks)
        return self._missing_templates[key]

    def _no_template(
        self, namespace: str, name: str, *, asks: bool
    ) -> TemplateMissing | CouldNotTell:
        full = f"{namespace}/{name}"
        if gap := self.state.unread("resourceclaimtemplates", full):
            return CouldNotTell(gap.reason, str(gap))
        is_claim = (namespace, name) in self._claims
        others = self._namespaces_of_templates.get(name, ())
        asks = asks and not is_claim and not others
        near = self._near(namespace, name, self._templates_by_namespace) if asks else ""
        return TemplateMissing(full, is_claim, others, near)

    def _near(self, namespace: str, name: str, names: Mapping[str, _Names]) -> str:
        """Return the existing name that the author may have meant; "" if there is none, or if the namespace has compared too many.

        What one namespace compares takes no hint from another.
        """
        there = names.get(namespace, _Names(()))
        characters = there.characters + len(there.names) * len(name)
        if self._compared[namespace] + characters > _MOST_COMPARED:
            return ""
        self._compared[namespace] += characters
        return likely(name, there.names)


def _by_namespace(keys: Iterable[tuple[str, str]]) -> Mapping[str, _Names]:
    found: dict[str, list[str]] = {}
    for namespace, name in sorted(keys):
        found.setdefault(namespace, []).append(name)
    return {namespace: _Names(names, sum(map(len, names))) for namespace, names in found.items()}


def _by_name(keys: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """Return for each name the namespaces in which it is."""
    found: dict[str, list[str]] = {}
    for namespace, name in sorted(keys):
        found.setdefault(name, []).append(namespace)
    return {name: tuple(namespaces) for name, namespaces in found.items()}


def _key(metadata: ObjectMeta) -> tuple[str, str]:
    return metadata.namespace, metadata.name


def of_pod(
    state: ClusterState, pod: Pod, *, live: bool, known: Known | None = None, asks: bool = True
) -> ResolvedPod:
    """Return the pod with its claims. `live`: the pod exists in the cluster, so that the controller makes its claims.

    The API server's defaults are filled in, because a record edited by hand may lack them. `known` is of this state, and shared by pods.
    `asks`: which name may have been meant by one that does not exist. This takes time, so only who has a turn asks.
    """
    pod = pod_with_defaults(pod)
    known = known or Known(state)
    wanted = tuple(
        found
        for entry in pod.spec.resource_claims or ()
        if (found := _entry(known, pod, entry, live=live, asks=asks)) is not None
    )
    return ResolvedPod(f"pod {full_name(pod.metadata)}", state, wanted, pod, live)


def _entry(
    known: Known, pod: Pod, entry: PodResourceClaim, *, live: bool, asks: bool
) -> WantedClaim | None:
    """Return the claim for an entry of the pod's spec.resourceClaims; None if its status says that the pod needs no claim there."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is not None:
        return known.claim(namespace, entry.resource_claim_name, asks=asks)
    for status in pod.status.resource_claim_statuses or ():
        if status.name == entry.name:
            if status.resource_claim_name is None:
                return None
            # Nobody wrote this name.
            made = known.claim(namespace, status.resource_claim_name, asks=False)
            return replace(made, for_this_pod=True)
    return _from_template(known, pod, entry, live=live, asks=asks)


def existing(claim: ResourceClaim) -> WantedClaim:
    """Return a claim of the cluster. The API server's defaults are filled in, because a record edited by hand may lack them."""
    whole = msgspec.structs.replace(claim, spec=with_defaults(claim.spec))
    return WantedClaim(full_name(claim.metadata), whole, exists=True)


def _from_template(
    known: Known, pod: Pod, entry: PodResourceClaim, *, live: bool, asks: bool
) -> WantedClaim:
    name = entry.resource_claim_template_name or ""
    full = f"{pod.metadata.namespace}/{name}"
    spec = known.spec(pod.metadata.namespace, name)
    if spec is not None:
        claim = _made_from(spec, pod, entry.name)
        return WantedClaim(
            full_name(claim.metadata),
            claim,
            f"template {full}",
            for_this_pod=True,
            not_made_yet=ClaimMissing(f"{full} ({entry.name})", NOT_MADE_YET) if live else None,
        )
    problem = known.no_template(pod.metadata.namespace, name, asks=asks)
    return WantedClaim(entry.name, origin=f"template {full}", problems=(problem,))


def _made_from(spec: ResourceClaimSpec, pod: Pod, entry: str) -> ResourceClaim:
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
    return ResourceClaim(metadata=metadata, spec=spec)


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
