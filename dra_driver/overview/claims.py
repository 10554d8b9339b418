# SPDX-License-Identifier: Apache-2.0
"""Which claims are there, which devices do they have, who uses them, and which are still waiting?"""

from collections.abc import Iterator, Mapping
from functools import cached_property

from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.facts.claim_state import allocated
from dra_driver.explain.facts.pod_groups import groups_of
from dra_driver.explain.names import full_name
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.names import CLUSTER_CLAIMS_KIND, DOCUMENT_VERSION
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import Chosen, device_of
from dra_driver.overview.part import Gap, Part

PENDING, ALLOCATED, IN_USE, ENDING = "pending", "allocated", "in use", "ending"


class DeviceOfClaim(Part, frozen=True, kw_only=True):
    """An allocated device; `deviceClass` is the class by which the request asks for it."""

    request: str
    device_class: str
    driver: str
    pool: str
    name: str
    share: str
    consumed: dict[str, str]
    admin_access: bool


class ClusterClaim(Part, frozen=True, kw_only=True):
    """One claim.

    `state` is "pending" (it has no devices yet), "allocated" (it has devices, and no pod uses it), "in use", or "ending" (it is being
    deleted). `pods` are those that it is reserved for; of a pending claim, those that wait for it. `podGroups` are the PodGroups that it is
    reserved for; then `pods` has those of their pods that have a node. `nodes` are the nodes of these pods,
    or else those of the devices. `allocatedAt` is "" on a server that does not give the time.
    """

    namespace: str
    name: str
    state: str
    created_at: str
    allocated_at: str
    pods: tuple[str, ...]
    pod_groups: tuple[str, ...] = ()
    nodes: tuple[str, ...]
    device_classes: tuple[str, ...]
    devices: tuple[DeviceOfClaim, ...]


class ClusterClaims(Part, frozen=True, kw_only=True):
    """The answer of `kubectl dra claims -o json`. `problem` says why there is none; it is "" otherwise."""

    api_version: str = DOCUMENT_VERSION
    kind: str = CLUSTER_CLAIMS_KIND
    read_at: str
    claims: tuple[ClusterClaim, ...]
    not_read: tuple[Gap, ...]
    problem: str = ""


def claims_of(overview: Overview, chosen: Chosen, not_read: tuple[Gap, ...] = ()) -> ClusterClaims:
    """Return the claims that are asked about, sorted by namespace and name. A node or driver leaves out claims that are pending."""
    rows = _Rows(overview)
    there = sorted(overview.state.resource_claims, key=lambda one: full_name(one.metadata))
    found = map(rows.row, filter(chosen.has, there))
    kept = tuple(row for row in found if _is_asked(row, chosen))
    return ClusterClaims(read_at=overview.state.recorded_at, claims=kept, not_read=not_read)


def _is_asked(row: ClusterClaim, chosen: Chosen) -> bool:
    drivers = {one.driver for one in row.devices}
    return chosen.node in ("", *row.nodes) and chosen.driver in ("", *drivers)


class _Rows:
    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def row(self, claim: ResourceClaim) -> ClusterClaim:
        pods = self._pods(claim)
        classes = classes_of(claim)
        allocation = claim.status.allocation
        return ClusterClaim(
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            state=_state(claim),
            created_at=claim.metadata.creation_timestamp or "",
            allocated_at=(allocation.allocation_timestamp if allocation else None) or "",
            pods=pods,
            pod_groups=groups_of(claim),
            nodes=nodes_of(self._overview, claim, pods),
            device_classes=tuple(sorted({*classes.values()} - {""})),
            devices=tuple(_devices(claim, classes)),
        )

    def _pods(self, claim: ResourceClaim) -> tuple[str, ...]:
        reserved = self._overview.pods_of(claim)
        waiting = (
            () if claim.status.reserved_for else self._waiting.get(full_name(claim.metadata), ())
        )
        return tuple(sorted(reserved or waiting))

    @cached_property
    def _waiting(self) -> Mapping[str, list[str]]:
        """The pods that name a claim, by the claim, whether it is reserved for them or not."""
        found: dict[str, list[str]] = {}
        for pod in self._overview.state.pods:
            for name in dict.fromkeys(_claims_of(pod)):
                found.setdefault(f"{pod.metadata.namespace}/{name}", []).append(pod.metadata.name)
        return found


def _state(claim: ResourceClaim) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return ENDING
    if claim.status.allocation is None:
        return PENDING
    return IN_USE if claim.status.reserved_for else ALLOCATED


def _claims_of(pod: Pod) -> Iterator[str]:
    """Yield the names of the claims that the pod refers to: directly, made from a template, or made for extended resources."""
    named = pod.spec.resource_claims or (), pod.status.resource_claim_statuses or ()
    for one in (*named[0], *named[1]):
        if one.resource_claim_name:
            yield one.resource_claim_name
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        yield extended.resource_claim_name


def _devices(claim: ResourceClaim, classes: Mapping[str, str]) -> Iterator[DeviceOfClaim]:
    for one in allocated(claim):
        yield DeviceOfClaim(
            request=one.request,
            device_class=classes.get(one.request, ""),
            driver=one.driver,
            pool=one.pool,
            name=one.device,
            share=one.share_id or "",
            consumed={
                name: str(value) for name, value in sorted((one.consumed_capacity or {}).items())
            },
            admin_access=bool(one.admin_access),
        )


def classes_of(claim: ResourceClaim) -> dict[str, str]:
    """Return the class of each request of the claim, by the name that an allocation has for it: "main", or "main/sub"."""
    return {one.name: one.body.device_class_name for one in requests_in(claim)}


def nodes_of(overview: Overview, claim: ResourceClaim, pods: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes of the pods; if none of them has one, the nodes of the devices that can be used from one node only."""
    known, namespace = overview.pods, claim.metadata.namespace
    there = (known.get(f"{namespace}/{name}") for name in pods)
    found = {one.spec.node_name for one in there if one is not None} - {""}
    if not found:
        published = overview.fleet.devices
        devices = (published.get(device_of(one)) for one in allocated(claim))
        nodes = (overview.nodes_of(one) for one in devices if one is not None)
        found = {one[0] for one in nodes if one is not None and len(one) == 1}
    return tuple(sorted(found))
