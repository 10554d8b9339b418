# SPDX-License-Identifier: Apache-2.0
"""Can a pod use a claim that exists, and from which nodes?

Source: k8s.io/dynamic-resource-allocation/resourceclaim, k8s.io/kubernetes
pkg/scheduler/framework/plugins/dynamicresources (PreFilter, Filter).
"""

from collections.abc import Iterator

from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import OPTIONAL_NODE_OPERATIONS
from dra_driver.allocator.nodes import selector_matches
from dra_driver.explain.facts.device_nodes import selector_text
from dra_driver.explain.facts.pod_groups import GATE, group_of, groups_of, is_pod_group
from dra_driver.explain.names import full_name, shown_finalizers
from dra_driver.explain.verdict import (
    ChosenDevice,
    ClaimAllocatedElsewhere,
    ClaimMissing,
    ClaimReservedForOthers,
    CouldNotTell,
    FeatureOff,
    Verdict,
)
from dra_driver.explain.verdicts.claim import BEING_DELETED, OF_ANOTHER_GROUP, OF_ANOTHER_POD
from dra_driver.explain.verdicts.general import GATE_UNKNOWN
from dra_driver.model.api.core import Node, NodeSelector, Pod
from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult, ResourceClaim

MOST_CONSUMERS = 256
_SKIPPING = f"nodes that declare the feature {OPTIONAL_NODE_OPERATIONS}"


def unusable(claim: ResourceClaim, pod: Pod | None) -> Iterator[Verdict]:
    """Yield the reasons why the pod cannot use the claim, whatever its devices are."""
    name = full_name(claim.metadata)
    if claim.metadata.deletion_timestamp is not None:
        kept = ", ".join(shown_finalizers(claim.metadata))
        yield ClaimMissing(name, f"{BEING_DELETED}, kept by {kept}" if kept else BEING_DELETED)
    if pod is None or claim.status.allocation is None:
        return
    consumers = claim.status.reserved_for or ()
    if len(consumers) >= MOST_CONSUMERS and not is_reserved(claim, pod):
        yield ClaimReservedForOthers(name, len(consumers))


def is_reserved(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether the claim is reserved for the pod, or for its pod group."""
    consumers = claim.status.reserved_for or ()
    return pod.metadata.uid in {one.uid for one in consumers} or group_of(pod) in groups_of(claim)


def used_by_nobody_else(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether the claim is reserved for no pod, or for this pod alone."""
    consumers = claim.status.reserved_for or ()
    return not consumers or [one.uid for one in consumers] == [pod.metadata.uid]


def not_owned(claim: ResourceClaim, pod: Pod, *, groups: bool | None) -> Iterator[Verdict]:
    """Yield a reason if the claim was made from a template for another pod of the same name, or for a pod group.

    `groups`: whether the scheduler lets a pod use the claim of its pod group; None if that is not known.
    """
    name = full_name(claim.metadata)
    owners = claim.metadata.owner_references or ()
    owner = next((one for one in owners if one.controller), None)
    if owner is not None and owner.uid == pod.metadata.uid:
        return
    if owner is None or not is_pod_group(owner):
        yield ClaimMissing(name, OF_ANOTHER_POD)
    elif owner.name != group_of(pod):
        yield ClaimMissing(name, OF_ANOTHER_GROUP)
    elif groups is None:
        yield CouldNotTell(
            GATE_UNKNOWN, f"claim {name} is of pod group {owner.name}, and whether {GATE} is on"
        )
    elif not groups:
        yield FeatureOff(GATE, f"claim {name}, which is of pod group {owner.name},")


def is_allocated(claim: ResourceClaim) -> bool:
    """Return whether the claim has its devices."""
    return claim.status.allocation is not None


def allocated(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    """Return the devices in the claim's status.allocation."""
    allocation = claim.status.allocation
    return (allocation.devices.results or []) if allocation else []


def chosen_devices(claim: ResourceClaim) -> tuple[ChosenDevice, ...]:
    """Return the devices in the claim's status.allocation, as the report shows them."""
    return tuple(
        ChosenDevice(full_name(claim.metadata), one.request, one.driver, one.pool, one.device)
        for one in allocated(claim)
    )


def allocated_elsewhere(claim: ResourceClaim, node: Node) -> Iterator[Verdict]:
    """Yield a reason if the allocated devices of the claim cannot be used from the node."""
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation else None
    if selector is not None and not _chooses(selector, node):
        yield ClaimAllocatedElsewhere(full_name(claim.metadata), selector_text(selector))
    elif any(one.skip_node_operations for one in allocated(claim)) and not skips_operations(node):
        yield ClaimAllocatedElsewhere(full_name(claim.metadata), _SKIPPING)


def _chooses(selector: NodeSelector, node: Node) -> bool:
    try:
        return selector_matches(node, selector)
    except AllocationError:
        return False


def skips_operations(node: Node) -> bool:
    """Whether the kubelet can leave out calls to the driver, as devices with skipNodeOperations need it."""
    return OPTIONAL_NODE_OPERATIONS in (node.status.declared_features or ())
