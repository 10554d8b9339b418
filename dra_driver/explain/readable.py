# SPDX-License-Identifier: Apache-2.0
"""Which objects of a cluster have a quantity that cannot be parsed?

An API server stores quantities of any size, and `amounts` computes only with those of a sane one; a recorded cluster state may have
been edited by hand too. `explain` lists the object as not read. What it says besides its quantities counts all the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.requests import object_name
from dra_driver.model.api.core import OVER, Container, Node, Pod, PodStatus
from dra_driver.model.api.meta import ApiValue, QuantityText
from dra_driver.model.api.resource_claim import (
    CapacityRequirements,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from dra_driver.model.api.resource_slice import CapacityRequestPolicy, Counter, ResourceSlice
from dra_driver.model.cluster import ClusterState, NotRead

Found = Iterable[tuple[str, QuantityText | None]]
"""The path of a quantity's field, and the quantity's text: at least those that cannot be parsed."""

_Quantities = Mapping[type[ApiValue], Callable[[Any], Found]]

PLENTY = "9223372036854775807"
"""The largest amount of a quantity of Kubernetes, in place of one that is unknown."""


def readable(state: ClusterState) -> ClusterState:
    """Return the cluster without the bad quantities, and list their objects in `not_read`, with the nodes where they count.

    Pods, templates and claims are left out, but a claim with devices keeps them; how much it takes of a shared one is unknown. A node
    has plenty of the resource, so that nobody says for certain that it lacks it; whether it has it is said to be unknown. A slice
    stays as it is, and `facts/left_out` leaves out its devices.
    """
    kept: dict[str, tuple[ApiValue, ...]] = {}
    gaps: list[NotRead] = []
    for resource, (field, rest) in _RESOURCES.items():
        objects: tuple[Any, ...] = getattr(state, field)
        bad = {id(one): problem for one in objects if (problem := _bad_of(_COUNTED, one))}
        if bad:
            left = (rest(one) if id(one) in bad else one for one in objects)
            kept[field] = tuple(one for one in left if one is not None)
            gaps += (_gap(resource, one, bad[id(one)]) for one in objects if id(one) in bad)
    if not gaps:
        return state
    return msgspec.structs.replace(state, **kept, not_read=(*state.not_read, *gaps))


def bad_quantity(thing: ApiValue) -> str:
    """Return the first quantity of the object that cannot be parsed, as "field: problem"; "" if all can be parsed."""
    return _bad_of(_QUANTITIES, thing)


def _bad_of(quantities_of: _Quantities, thing: ApiValue) -> str:
    quantities = quantities_of.get(type(thing))
    for field, text in quantities(thing) if quantities else ():
        problem = _problem(text) if text is not None else ""
        if problem:
            return f"{field}: {problem}"
    return ""


def _problem(text: QuantityText) -> str:
    try:
        amount(text)
    except AllocationError as error:
        return str(error)
    return ""


def _gap(resource: str, thing: Any, problem: str) -> NotRead:
    return NotRead(
        resource=resource,
        reason="malformed",
        name=object_name(thing.metadata),
        message=problem,
        only_nodes=_nodes_of(thing),
    )


def _nodes_of(thing: ApiValue) -> tuple[str, ...] | None:
    """Return the nodes on which the quantities of an object count, as far as `readable` leaves anything open; None if that is not known."""
    match thing:
        case Node():
            return (thing.metadata.name,)
        case Pod():
            uses = thing.spec.node_name and thing.status.phase not in OVER
            return (thing.spec.node_name,) if uses else ()
        case ResourceSlice():
            return (thing.spec.node_name,) if thing.spec.node_name else None
        case ResourceClaim():
            # Nobody but the scheduler writes what a claim has. What a claim asks for counts no more when it has its devices.
            return None if any(map(_is_share_unknown, _devices_of(thing))) else ()
        case _:
            return ()


def _nothing(_thing: ApiValue) -> None:
    return None


def _node_with_plenty(node: Node) -> Node:
    offered = {
        name: PLENTY if _problem(text) else text
        for name, text in (node.status.allocatable or {}).items()
    }
    return replace(node, status=replace(node.status, allocatable=offered))


def _claim_with_devices(claim: ResourceClaim) -> ResourceClaim | None:
    allocation = claim.status.allocation
    if allocation is None:
        return None
    results = [
        replace(one, consumed_capacity=_readable(one.consumed_capacity))
        for one in _devices_of(claim)
    ]
    allocation = replace(allocation, devices=replace(allocation.devices, results=results))
    status = replace(claim.status, allocation=allocation)
    return replace(claim, spec=ResourceClaimSpec(), status=status)


def _devices_of(claim: ResourceClaim) -> Sequence[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    return (allocation.devices.results or ()) if allocation is not None else ()


def _is_share_unknown(one: DeviceRequestAllocationResult) -> bool:
    """Whether the device is a share, and nobody knows how large it is."""
    amounts = (one.consumed_capacity or {}).values()
    return one.share_id is not None and any(map(_problem, amounts))


def _readable(amounts: Mapping[str, QuantityText] | None) -> dict[str, QuantityText] | None:
    return {name: text for name, text in (amounts or {}).items() if not _problem(text)} or None


def _of_node(node: Node) -> Found:
    return _named("status.allocatable", node.status.allocatable)


def _of_pod(pod: Pod, *, counted: bool = False) -> Found:
    """Yield the quantities of a pod; `counted`: without those that nobody counts, which may be what they want."""
    spec = pod.spec
    found = _of_containers("spec.containers", spec.containers or (), counted=counted)
    found += _of_containers("spec.initContainers", spec.init_containers or (), counted=counted)
    if spec.resources is not None:
        found += _named("spec.resources.requests", spec.resources.requests)
    found += _named("spec.overhead", spec.overhead)
    return found + _of_statuses(pod.status)


def _of_statuses(status: PodStatus) -> list[tuple[str, QuantityText | None]]:
    found: list[tuple[str, QuantityText | None]] = []
    found += _named("status.allocatedResources", status.allocated_resources)
    if status.resources is not None:
        found += _named("status.resources.requests", status.resources.requests)
    for one in status.of_all_containers:
        place = f"the status of container {one.name}: "
        found += _named(f"{place}allocatedResources", one.allocated_resources)
        if one.resources is not None:
            found += _named(f"{place}resources.requests", one.resources.requests)
    return found


def _of_containers(
    field: str, containers: Iterable[Container], *, counted: bool
) -> list[tuple[str, QuantityText | None]]:
    found: list[tuple[str, QuantityText | None]] = []
    for container in containers:
        resources = container.resources
        requests, limits = resources.requests or {}, resources.limits or {}
        if counted and limits:  # a limit is the request, if the request is missing
            limits = {name: text for name, text in limits.items() if name not in requests}
        for kind, quantities in (("requests", requests), ("limits", limits)):
            found += _named(f"{field}[{container.name}].resources.{kind}", quantities)
    return found


def _of_slice(published: ResourceSlice) -> Found:
    spec = published.spec
    for counter_set in spec.shared_counters or ():
        yield from _counters(f"spec.sharedCounters[{counter_set.name}]", counter_set.counters)
    for device in spec.devices or ():
        for name, capacity in (device.capacity or {}).items():
            place = f"spec.devices[{device.name}].capacity[{name}]"
            yield f"{place}.value", capacity.value
            if capacity.request_policy is not None:
                yield from _policy(f"{place}.requestPolicy", capacity.request_policy)
        for part in device.consumes_counters or ():
            place = f"spec.devices[{device.name}].consumesCounters[{part.counter_set}]"
            yield from _counters(place, part.counters)


def _counters(place: str, counters: Mapping[str, Counter] | None) -> Found:
    return ((f"{place}.counters[{name}]", one.value) for name, one in (counters or {}).items())


def _policy(place: str, policy: CapacityRequestPolicy) -> Found:
    yield f"{place}.default", policy.default
    for value in policy.valid_values or ():
        yield f"{place}.validValues", value
    if policy.valid_range is not None:
        yield f"{place}.validRange.min", policy.valid_range.min
        yield f"{place}.validRange.max", policy.valid_range.max
        yield f"{place}.validRange.step", policy.valid_range.step


def _of_claim(claim: ResourceClaim) -> Found:
    yield from _asked("spec", claim.spec)
    for result in _devices_of(claim):
        place = f"status.allocation.devices.results[{result.device}].consumedCapacity"
        yield from _named(place, result.consumed_capacity)


def _of_template(template: ResourceClaimTemplate) -> Found:
    return _asked("spec.spec", template.spec.spec)


def _asked(place: str, spec: ResourceClaimSpec) -> Found:
    for request in spec.devices.requests or ():
        where = f"{place}.devices.requests[{request.name}]"
        if request.exactly is not None:
            yield from _capacity(f"{where}.exactly", request.exactly.capacity)
        for one in request.first_available or ():
            yield from _capacity(f"{where}.firstAvailable[{one.name}]", one.capacity)


def _capacity(place: str, capacity: CapacityRequirements | None) -> Found:
    return _named(f"{place}.capacity.requests", capacity.requests if capacity else None)


def _named(
    place: str, quantities: Mapping[str, QuantityText] | None
) -> Iterable[tuple[str, QuantityText]]:
    # A large cluster has many pods, so a path is made only for what cannot be parsed.
    if not quantities:
        return ()
    return [(f"{place}[{name}]", text) for name, text in quantities.items() if _problem(text)]


_RESOURCES: Mapping[str, tuple[str, Callable[[Any], ApiValue | None]]] = {
    "nodes": ("nodes", _node_with_plenty),
    "pods": ("pods", _nothing),
    "resourceslices": ("resource_slices", lambda whole: whole),
    "resourceclaims": ("resource_claims", _claim_with_devices),
    "resourceclaimtemplates": ("resource_claim_templates", _nothing),
}
"""The kinds that have quantities, each with its field of ClusterState, and what stays of an object with a bad one."""

_QUANTITIES: _Quantities = {
    Node: _of_node,
    Pod: _of_pod,
    ResourceSlice: _of_slice,
    ResourceClaim: _of_claim,
    ResourceClaimTemplate: _of_template,
}
_COUNTED: _Quantities = {**_QUANTITIES, Pod: partial(_of_pod, counted=True)}
