# SPDX-License-Identifier: Apache-2.0
"""How much of its node does a pod count for that is there already?

A pod can be resized while it runs. Then three amounts may differ: what its spec wants, what the kubelet has admitted for it
(`allocatedResources`), and what its containers have now. The scheduler counts the largest of the three, or of the last two if the
kubelet has said that the node can never give what the spec wants. Before 1.37 it takes the largest for each container, and of init
containers it looks at sidecars only.
Source: k8s.io/component-helpers/resource/helpers.go of 1.33 to 1.37.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from dra_driver.allocator.amounts import amount
from dra_driver.explain.facts.pod_requests import (
    add,
    amounts,
    is_pod_level,
    is_sidecar,
    of_containers,
    of_the_whole,
    pod_requests,
    raise_to,
)
from dra_driver.model.api.core import Container, ContainerStatus, Pod
from dra_driver.model.api.defaults import pod_with_defaults
from dra_driver.model.api.meta import QuantityText

Requests = Mapping[str, QuantityText] | None


class StatusCounts(Struct, frozen=True):
    """Which statuses the scheduler looks at: those of containers (gate InPlacePodVerticalScaling), and that of the pod as a whole
    (gate InPlacePodLevelResourcesVerticalScaling). `of_sums`: the amounts of all containers together are compared, as from 1.37 on.
    """

    of_containers: bool = True
    of_the_whole: bool = True
    of_sums: bool = True


ALL_STATUSES = StatusCounts()


def used_on_node(pods: Sequence[Pod], counts: StatusCounts = ALL_STATUSES) -> dict[str, int]:
    """Return the amounts that these pods count for together, in billionths; the resource "pods" is their number."""
    used = {"pods": len(pods) * 10**9}
    for pod in pods:
        for name, nanos in counted_requests(pod, counts).items():
            used[name] = used.get(name, 0) + nanos
    return used


def counted_requests(pod: Pod, counts: StatusCounts) -> dict[str, int]:
    """Return the amount of each resource that a pod on a node counts for, in billionths."""
    if not counts.of_containers or not any(_has_amounts(pod)):
        return pod_requests(pod)
    pod = pod_with_defaults(pod)
    result = _of_sums(pod, counts) if counts.of_sums else of_containers(pod, _Statuses(pod).largest)
    if wanted := of_the_whole(pod):
        result |= _largest_whole(pod, wanted, counts) if counts.of_the_whole else wanted
    add(result, pod.spec.overhead)
    return result


def _of_sums(pod: Pod, counts: StatusCounts) -> dict[str, int]:
    status = pod.status
    result = {} if _is_infeasible(pod) else of_containers(pod, lambda one: one.resources.requests)
    now = status.resources.requests if status.resources else None
    if counts.of_the_whole and now is not None and status.allocated_resources is not None:
        raise_to(result, amounts(status.allocated_resources))
        raise_to(result, amounts(now))
    else:
        found = _Statuses(pod)
        raise_to(result, of_containers(pod, found.allocated))
        raise_to(result, of_containers(pod, found.actuated))
    return result


def _largest_whole(pod: Pod, wanted: dict[str, int], counts: StatusCounts) -> dict[str, int]:
    """Return the same for what the pod requests as a whole."""
    status = pod.status
    if status.resources is None:
        return wanted
    largest = {} if _is_infeasible(pod) else dict(wanted)
    raise_to(largest, amounts(status.resources.requests))
    raise_to(largest, amounts(status.allocated_resources))
    if not counts.of_sums:
        return {name: largest.get(name, 0) for name in wanted}
    return {name: nanos for name, nanos in largest.items() if is_pod_level(name)}


class _Statuses:
    """What the statuses of a pod's containers say of them, as far as they say something; else what the spec does."""

    def __init__(self, pod: Pod) -> None:
        self._by_name: Mapping[str, ContainerStatus] = {
            one.name: one for one in pod.status.of_all_containers
        }
        self._infeasible = _is_infeasible(pod)
        init = pod.spec.init_containers or ()
        self._of_init = frozenset(one.name for one in init if not is_sidecar(one))

    def allocated(self, container: Container) -> Requests:
        """Return what the kubelet has admitted."""
        status = self._by_name.get(container.name)
        if status is not None and status.allocated_resources is not None:
            return status.allocated_resources
        return None if self._infeasible else container.resources.requests

    def actuated(self, container: Container) -> Requests:
        """Return what the container has now."""
        status = self._by_name.get(container.name)
        now = status.resources if status is not None else None
        if now is not None and now.requests is not None:
            return now.requests
        return self.allocated(container)

    def largest(self, container: Container) -> Requests:
        """Return the largest of the spec, the admission and what the container has now; before 1.37."""
        spec = container.resources.requests
        status = self._by_name.get(container.name)
        if status is None or status.resources is None or container.name in self._of_init:
            return spec
        found = [status.resources.requests, status.allocated_resources]
        every = found if self._infeasible else [spec, *found]
        result: dict[str, QuantityText] = {}
        for name, text in (item for one in every for item in (one or {}).items()):
            if name not in result or amount(text).nanos > amount(result[name]).nanos:
                result[name] = text
        return result


def _has_amounts(pod: Pod) -> Iterator[bool]:
    """Yield whether there is something to count besides the spec. Most pods have the same everywhere, which is cheap to find."""
    wanted = {
        one.name: one.resources.requests
        for one in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    }
    for one in pod.status.of_all_containers:
        spec, now = wanted.get(one.name), one.resources
        yield one.allocated_resources not in (None, spec)
        yield now is not None and now.requests not in (None, spec)
    yield pod.status.resources is not None
    yield _is_infeasible(pod)


def _is_infeasible(pod: Pod) -> bool:
    """Whether the kubelet has said that the node can never give what the spec wants."""
    pending = (one for one in pod.status.conditions or () if one.type == "PodResizePending")
    first = next(pending, None)
    return first is not None and first.reason == "Infeasible"
