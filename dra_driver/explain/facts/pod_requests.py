# SPDX-License-Identifier: Apache-2.0
"""How much of each resource does a pod request from its node?

Containers run together, so their requests add up. Init containers run before them, one by one, beside the sidecars that are
already running. The pod requests the largest sum at any time. Requests of the pod as a whole (`spec.resources`) replace this
sum, and the overhead is added.
Source: k8s.io/component-helpers/resource/helpers.go.
"""

from collections.abc import Callable, Mapping

from dra_driver.allocator.amounts import amount
from dra_driver.model.api.core import Container, Pod
from dra_driver.model.api.defaults import pod_with_defaults
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.resource_names import may_be_devices

RequestsOf = Callable[[Container], Mapping[str, QuantityText] | None]
_POD_LEVEL = ("cpu", "memory")


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return the amount of each resource that the pod requests, in billionths.

    The API server's defaults count too, because a record edited by hand may lack them.
    """
    pod = pod_with_defaults(pod)
    result = of_containers(pod, _in_the_spec)
    result |= of_the_whole(pod)
    add(result, pod.spec.overhead)
    return result


def of_containers(pod: Pod, requests_of: RequestsOf) -> dict[str, int]:
    """Return the largest sum at any time of what `requests_of` says of the containers."""
    result: dict[str, int] = {}
    for container in pod.spec.containers or ():
        add(result, requests_of(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        now = dict(sidecars)
        add(now, requests_of(container))
        if is_sidecar(container):
            add(result, requests_of(container))
            sidecars = now
        raise_to(peak, now)
    raise_to(result, peak)
    return result


def of_the_whole(pod: Pod) -> dict[str, int]:
    """Return what the spec requests for the pod as a whole."""
    whole = pod.spec.resources.requests if pod.spec.resources else None
    return amounts({name: text for name, text in (whole or {}).items() if is_pod_level(name)})


def is_pod_level(resource: str) -> bool:
    """Return whether a pod can request this resource as a whole."""
    return resource in _POD_LEVEL or resource.startswith("hugepages-")


def is_sidecar(container: Container) -> bool:
    """Return whether an init container continues to run beside the containers."""
    return container.restart_policy == "Always"


def asks_for_devices(pod: Pod) -> bool:
    """Return whether the pod has claims, or asks for an extended resource, which devices or a device plugin provide."""
    asked = pod_requests(pod)
    return bool(pod.spec.resource_claims) or any(
        asked[name] for name in asked if may_be_devices(name)
    )


def add(total: dict[str, int], requests: Mapping[str, QuantityText] | None) -> None:
    """Add the requests to the total, in place."""
    for name, quantity in (requests or {}).items():
        total[name] = total.get(name, 0) + amount(quantity).nanos


def amounts(requests: Mapping[str, QuantityText] | None) -> dict[str, int]:
    """Return the requests in billionths."""
    return {name: amount(quantity).nanos for name, quantity in (requests or {}).items()}


def raise_to(total: dict[str, int], peak: Mapping[str, int]) -> None:
    """Raise the total to the peak where that is higher, in place."""
    for name, nanos in peak.items():
        total[name] = max(total.get(name, 0), nanos)


def _in_the_spec(container: Container) -> Mapping[str, QuantityText] | None:
    return container.resources.requests
