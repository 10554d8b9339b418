# SPDX-License-Identifier: Apache-2.0
"""Does a pod name its node itself, so that nobody gives it devices?

The scheduler does not see a pod with spec.nodeName, and nobody else gives claims their devices. Nor does anybody else make the claim for
an extended resource that a DeviceClass provides. Of a resource that its node does not list, the kubelet takes no notice: it starts the
pod without.
Source: k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go (removeMissingExtendedResources).
"""

from dra_driver.explain.facts.extended_resources import GATE, backed_by_devices, classes_by_resource
from dra_driver.explain.subject.subject import Resolved, WantedClaim
from dra_driver.explain.verdict import ClaimMissing, TemplateMissing
from dra_driver.model.gates import ALLOCATION, is_on


def named(subject: Resolved) -> str:
    """Return the node that the pod names in its spec although it gets no devices there; "" if that is not so."""
    if not subject.goes_to:
        return ""
    without = any(map(_has_no_devices, subject.wanted)) or starts_without(subject)
    return subject.goes_to if without else ""


def bound_to(subject: Resolved) -> str:
    """Return the node on which the pod is; "" if it has no node yet, or if it is only `named`."""
    there = subject.pod.spec.node_name if subject.pod is not None and subject.live else ""
    return "" if named(subject) else there


def starts_without(subject: Resolved) -> tuple[str, ...]:
    """Return the extended resources of devices that the pod asks for, and that its kubelet takes no notice of."""
    pod, state = subject.pod, subject.state
    if pod is None or not subject.goes_to or pod.status.extended_resource_claim_status is not None:
        return ()
    asked = backed_by_devices(pod, classes_by_resource(state.device_classes))
    if not asked or not all(
        is_on(gate, state.minor, state.feature_gates) for gate in (ALLOCATION, GATE)
    ):
        return ()
    there = (one for one in state.nodes if one.metadata.name == subject.goes_to)
    return tuple(
        name for node in there for name in asked if name not in (node.status.allocatable or {})
    )


def _has_no_devices(wanted: WantedClaim) -> bool:
    if wanted.claim is not None:
        return wanted.claim.status.allocation is None
    return any(isinstance(one, ClaimMissing | TemplateMissing) for one in wanted.problems)
