# SPDX-License-Identifier: Apache-2.0
"""Which pods use a claim that is reserved for a pod group?

The claim of a PodGroup is made for the group. All pods of the group share it, and status.reservedFor has the group, not its pods.
The scheduler accepts such a claim for a pod if feature gate DRAWorkloadResourceClaims is on.
Source: k8s.io/dynamic-resource-allocation/resourceclaim (IsForPod, IsReservedForPod) of 1.37.
"""

from collections.abc import Iterable, Iterator, Mapping

from dra_driver.model.api.core import Pod
from dra_driver.model.api.meta import OwnerReference
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimConsumerReference
from dra_driver.model.cluster import ClusterState

GATE = "DRAWorkloadResourceClaims"
_SINCE = 36
_API_GROUP = "scheduling.k8s.io"
_Members = Mapping[tuple[str, str], list[Pod]]


def group_of(pod: Pod) -> str:
    """Return the name of the PodGroup that the pod is of; "" if it is of none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name if group else None) or ""


def is_pod_group(owner: OwnerReference) -> bool:
    """Return whether the owner of an object is a PodGroup, of whichever API version. Records of old releases have none."""
    api_group = owner.api_version.partition("/")[0]
    return owner.kind == "PodGroup" and api_group in ("", _API_GROUP)


def accepts_claims_of_groups(state: ClusterState) -> bool | None:
    """Return whether the scheduler lets a pod use the claim of its group; None if that cannot be told: the gate is off by default."""
    if state.minor is not None and state.minor < _SINCE:
        return False
    return state.feature_gates.get(GATE)


def groups_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the names of the pod groups for which the claim is reserved."""
    return tuple(one.name for one in claim.status.reserved_for or () if _is_group(one))


def members_by_group(pods: Iterable[Pod]) -> _Members:
    """Return the pods of each group, by the namespace and the name of the group."""
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if group := group_of(pod):
            found.setdefault((pod.metadata.namespace, group), []).append(pod)
    return found


def reserved_pods(claim: ResourceClaim, members: _Members) -> Iterator[str]:
    """Yield the names of the pods that the claim is reserved for, and of those with a node that use it as members of a group."""
    for user in claim.status.reserved_for or ():
        if not _is_group(user):
            yield user.name
            continue
        for pod in members.get((claim.metadata.namespace, user.name), ()):
            if pod.spec.node_name and claim.metadata.name in _claims_of(pod):
                yield pod.metadata.name


def _is_group(user: ResourceClaimConsumerReference) -> bool:
    return user.resource == "podgroups" and user.api_group == _API_GROUP


def _claims_of(pod: Pod) -> set[str | None]:
    entries = (*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ()))
    return {one.resource_claim_name for one in entries}
