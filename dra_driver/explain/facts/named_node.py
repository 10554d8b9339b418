# SPDX-License-Identifier: Apache-2.0
"""Does a pod name its node itself, so that nobody gives it devices?

The scheduler does not see a pod with spec.nodeName, and nobody else gives claims their devices. Nor does anybody else make the claim for
an extended resource that a DeviceClass provides. Of a resource that its node does not list, the kubelet takes no notice: it starts the
pod without. If the node lists 0 of it, as after its device plugin was taken away, the kubelet refuses the pod.
Source: k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go (removeMissingExtendedResources, AdmissionCheck) and
pkg/kubelet/nodestatus/setters.go (a plugin that is gone leaves its resource with 0).
"""

from collections.abc import Iterator

from dra_driver.explain.facts.extended_resources import GATE, backed_by_devices, classes_by_resource
from dra_driver.explain.subject.subject import Resolved, WantedClaim
from dra_driver.explain.verdict import ClaimMissing, TemplateMissing
from dra_driver.model.gates import ALLOCATION, is_on


def named(subject: Resolved) -> str:
    """Return the node that the pod names in its spec although it gets no devices there; "" if that is not so."""
    if not subject.goes_to:
        return ""
    without = any(map(_has_no_devices, subject.wanted)) or any(_not_served(subject))
    return subject.goes_to if without else ""


def bound_to(subject: Resolved) -> str:
    """Return the node on which the pod is; "" if it has no node yet, or if it is only `named`."""
    there = subject.pod.spec.node_name if subject.pod is not None and subject.live else ""
    return "" if named(subject) else there


def starts_without(subject: Resolved) -> tuple[str, ...]:
    """Return the extended resources of devices that the pod asks for, and that its kubelet takes no notice of."""
    return tuple(name for name, is_listed in _not_served(subject) if not is_listed)


def refused_for(subject: Resolved) -> tuple[str, ...]:
    """Return the extended resources of devices that the pod asks for, and for which its kubelet refuses it: the node lists 0 of them."""
    return tuple(name for name, is_listed in _not_served(subject) if is_listed)


def _not_served(subject: Resolved) -> Iterator[tuple[str, bool]]:
    """Yield the extended resources of devices that no device plugin gives the pod on its node, and whether the node lists them."""
    pod, state = subject.pod, subject.state
    if pod is None or not subject.goes_to or pod.status.extended_resource_claim_status is not None:
        return
    if not all(is_on(gate, state.minor, state.feature_gates) for gate in (ALLOCATION, GATE)):
        return
    asked = backed_by_devices(pod, classes_by_resource(state.device_classes))
    for node in state.nodes if asked else ():
        if node.metadata.name == subject.goes_to:
            listed = node.status.allocatable or {}
            yield from (
                (name, name in listed)
                for name in asked
                if str(listed.get(name, 0)) == "0"  # as API servers write it
            )


def _has_no_devices(wanted: WantedClaim) -> bool:
    if wanted.claim is not None:
        return wanted.claim.status.allocation is None
    return any(isinstance(one, ClaimMissing | TemplateMissing) for one in wanted.problems)
