# SPDX-License-Identifier: Apache-2.0
"""Which claim would the scheduler make for a pod that asks for extended resources, if devices provide these?

A container may ask for `example.com/gpu: 2` as if a device plugin offered it. If a DeviceClass has that extendedResourceName
(each class also has an implicit one), and the node itself does not offer the resource, the scheduler makes a claim with one
request for each container and resource. Init containers end before the other containers start, so both use the same devices.
Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go,
k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dra_driver.allocator.amounts import amount
from dra_driver.cel.reasons.similar import meant, question
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_requests import (
    is_sidecar,
    pod_requests,
)
from dra_driver.explain.names import existing_classes, first_names, full_name
from dra_driver.explain.subject.subject import WantedClaim
from dra_driver.explain.verdict import ClassMissing, CouldNotTell, FeatureOff, Verdict
from dra_driver.model.api.core import Container, Node, Pod
from dra_driver.model.api.meta import ObjectMeta, OwnerReference
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dra_driver.model.cluster import EXTENDED_RESOURCE_CLAIM, ClusterState
from dra_driver.model.gates import ALLOCATION
from dra_driver.model.plugin_resources import likely_resource
from dra_driver.model.resource_names import DEVICE_CLASS_PREFIX, is_extended, may_be_devices

GATE = "DRAExtendedResource"
NAME = "<extended-resources>"
"""The scheduler's name for the claim, until it creates the claim at the API server."""


class ExtendedResources:
    """The extended resources of one pod that devices have to provide, on these nodes."""

    def __init__(self, pod: Pod | None, fleet: Fleet, nodes: Sequence[Node]) -> None:
        self._pod = pod
        self._nodes = nodes
        self._classes = classes_by_resource(fleet.state.device_classes)
        self._resources: tuple[str, ...] = ()
        self._refused: dict[str, Verdict] = {}
        if pod is not None:
            off = next((gate for gate in (ALLOCATION, GATE) if not fleet.is_on(gate)), "")
            self._refused = without_devices(pod, nodes, fleet.state, gate_off=off)
            self._resources = () if off else backed_by_devices(pod, self._classes)

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The reasons why neither a device nor a device plugin provides some of the resources, on any of the nodes."""
        return tuple(self._refused.values())

    @property
    def names(self) -> frozenset[str]:
        """The extended resources that a node does not have to offer: devices provide them, or `refused` has a reason for them."""
        return frozenset((*self._resources, *self._refused))

    def wanted(self) -> Iterator[WantedClaim]:
        """Yield one claim for all resources that at least one node does not offer itself. Yield none if every node offers all."""
        resources = self._resources
        if self._nodes:  # if every node offers a resource itself, no device has to provide it
            needed = {one for node in self._nodes for one in self.lacking(node)}
            resources = tuple(one for one in resources if one in needed)
        if self._pod is not None and (resources or self._refused):
            claim = claim_for(self._pod, resources, self._classes)
            origin = f"extended resources {', '.join((*resources, *self._refused))}"
            made = claim if resources else None
            yield WantedClaim(full_name(claim.metadata), made, origin, problems=self.refused)

    def lacking(self, node: Node) -> tuple[str, ...]:
        """Return the resources that the node does not offer itself, so that devices have to provide them there."""
        return on_node(self._resources, node)

    def claims_for(self, lacking: Sequence[str]) -> tuple[ResourceClaim, ...]:
        """Return the claim that the scheduler makes on a node that lacks these resources; () if `lacking` is empty."""
        if self._pod is None or not lacking:
            return ()
        return (claim_for(self._pod, lacking, self._classes),)


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return the class for each extended resource. If several have the same resource name: the newest, then the first by name."""
    found: dict[str, str] = {}
    oldest_first = sorted(classes, key=lambda c: c.metadata.name, reverse=True)
    oldest_first.sort(key=lambda c: c.metadata.creation_timestamp or "")
    for device_class in oldest_first:
        name = device_class.metadata.name
        found[DEVICE_CLASS_PREFIX + name] = name
        if device_class.spec.extended_resource_name:
            found[device_class.spec.extended_resource_name] = name
    return found


def backed_by_devices(pod: Pod, classes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the resources that a pod asks for and that a DeviceClass provides, sorted."""
    asked = pod_requests(pod)
    return tuple(
        sorted(name for name in asked if asked[name] and may_be_devices(name) and name in classes)
    )


def on_node(resources: Iterable[str], node: Node) -> tuple[str, ...]:
    """Return the resources that the node does not offer itself, so that devices have to provide them."""
    offered = node.status.allocatable or {}
    return tuple(name for name in resources if not amount(offered.get(name, "0")).nanos)


def without_devices(
    pod: Pod, nodes: Iterable[Node], state: ClusterState, *, gate_off: str
) -> dict[str, Verdict]:
    """Return, for each resource that no node offers itself, the reason why no device can provide it; none if one can.

    `gate_off` names the feature gate that is off; "" if the scheduler makes claims for extended resources.
    """
    there = list(nodes)
    classes = classes_by_resource(state.device_classes)
    asked = (name for name, nanos in pod_requests(pod).items() if nanos and may_be_devices(name))
    nowhere = (name for name in sorted(asked) if all(on_node([name], node) for node in there))
    reasons = ((name, _without_device(name, classes, state, gate_off)) for name in nowhere)
    return {name: reason for name, reason in reasons if reason is not None}


def _without_device(
    resource: str, classes: Mapping[str, str], state: ClusterState, gate_off: str
) -> Verdict | None:
    missing = resource.removeprefix(DEVICE_CLASS_PREFIX)
    implicit = missing != resource
    if gate_off:
        off = implicit or resource in classes
        return FeatureOff(gate_off, f"extended resource {resource}") if off else None
    if resource in classes:
        return None
    gap = state.unread("deviceclasses", missing if implicit else "")
    if gap is not None:
        return CouldNotTell(gap.reason, str(gap))
    if implicit:
        names = sorted(set(classes.values()))
        return ClassMissing(missing, meant(missing, names) or existing_classes(names), resource)
    return _nowhere_offered(resource, classes, state)


def _nowhere_offered(
    resource: str, classes: Mapping[str, str], state: ClusterState
) -> ClassMissing | None:
    """Return the reason that no class provides the resource and no node offers it; None if a node offers it, or may."""
    if not state.nodes or state.gaps("nodes"):  # a node that could not be read may offer it
        return None
    offered = {name for node in state.nodes for name in node.status.allocatable or {}}
    if resource in offered:
        return None
    known = {*filter(is_extended, offered), *(c for c in classes if is_extended(c))}
    near = meant(resource, sorted(known))
    there = f"offered are {first_names(sorted(known))}" if known else ""
    usual = question(likely_resource(resource))
    return ClassMissing("", near or "; ".join(filter(None, (usual, there))), resource)


def claim_for(pod: Pod, resources: Iterable[str], classes: Mapping[str, str]) -> ResourceClaim:
    """Return the claim that the scheduler would make for these resources of a pod."""
    requests: list[DeviceRequest] = []
    for resource in sorted(resources):
        requests += _requests(pod, resource, classes[resource])
    requests.sort(key=lambda request: request.name)
    return ResourceClaim(
        metadata=ObjectMeta(
            name=NAME,
            namespace=pod.metadata.namespace,
            uid=f"{pod.metadata.uid}-extended-resources",
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=[
                OwnerReference(
                    kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
                )
            ],
        ),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def _requests(pod: Pod, resource: str, device_class: str) -> list[DeviceRequest]:
    first = pod.spec.init_containers or []
    containers = [*first, *(pod.spec.containers or ())]
    counts = [_count(container, resource) for container in containers]
    brief = [index < len(first) and not is_sidecar(c) for index, c in enumerate(containers)]
    largest: DeviceRequest | None = None
    for index, container in enumerate(containers):
        if not brief[index]:
            continue
        later = sum(c for c, short in zip(counts[index:], brief[index:], strict=True) if not short)
        more = counts[index] - later
        if more > 0 and (largest is None or more > _wanted(largest)):
            largest = _request(index, container, resource, (device_class, more))
    lasting = [
        _request(index, container, resource, (device_class, counts[index]))
        for index, container in enumerate(containers)
        if counts[index] and not brief[index]
    ]
    return [*([largest] if largest else []), *lasting]


def _wanted(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly else 0


def _count(container: Container, resource: str) -> int:
    return amount((container.resources.requests or {}).get(resource, "0")).whole()


def _request(
    index: int, container: Container, resource: str, what: tuple[str, int]
) -> DeviceRequest:
    place = sorted(container.resources.requests or ()).index(resource)
    return DeviceRequest(
        name=f"container-{index}-request-{place}",
        exactly=ExactDeviceRequest(
            device_class_name=what[0], allocation_mode="ExactCount", count=what[1]
        ),
    )
