# SPDX-License-Identifier: Apache-2.0
"""How much of each resource does a pod request from its node?

Containers run together, so their requests add up. Init containers run before them, one by one, beside the sidecars that are
already running. The pod requests the largest sum at any time. Requests of the pod as a whole (`spec.resources`) replace this
sum, and the overhead is added.
Source: k8s.io/component-helpers/resource/helpers.go.
"""

from collections.abc import Mapping, Sequence

from dra_driver.allocator.amounts import amount
from dra_driver.model.api.core import Container, Pod
from dra_driver.model.api.defaults import pod_with_defaults
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.resource_names import may_be_devices

_POD_LEVEL = ("cpu", "memory")


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return the amount of each resource that the pod requests, in billionths.

    The API server's defaults count too, because a record edited by hand may lack them.
    """
    pod = pod_with_defaults(pod)
    result: dict[str, int] = {}
    for container in pod.spec.containers or ():
        _add(result, container.resources.requests)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        now = dict(sidecars)
        _add(now, container.resources.requests)
        if is_sidecar(container):
            _add(result, container.resources.requests)
            sidecars = now
        _raise_to(peak, now)
    _raise_to(result, peak)
    whole = pod.spec.resources.requests if pod.spec.resources else None
    for name, quantity in (whole or {}).items():
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            result[name] = amount(quantity).nanos
    _add(result, pod.spec.overhead)
    return result


def is_sidecar(container: Container) -> bool:
    """Return whether an init container continues to run beside the containers."""
    return container.restart_policy == "Always"


def asks_for_devices(pod: Pod) -> bool:
    """Return whether the pod has claims, or asks for an extended resource, which devices or a device plugin provide."""
    asked = pod_requests(pod)
    return bool(pod.spec.resource_claims) or any(
        asked[name] for name in asked if may_be_devices(name)
    )


def used_on_node(pods: Sequence[Pod]) -> dict[str, int]:
    """Return the amounts that these pods request together, in billionths; the resource "pods" is their number."""
    used = {"pods": len(pods) * 10**9}
    for pod in pods:
        for name, nanos in pod_requests(pod).items():
            used[name] = used.get(name, 0) + nanos
    return used


def _add(total: dict[str, int], requests: Mapping[str, QuantityText] | None) -> None:
    for name, quantity in (requests or {}).items():
        total[name] = total.get(name, 0) + amount(quantity).nanos


def _raise_to(total: dict[str, int], peak: Mapping[str, int]) -> None:
    for name, nanos in peak.items():
        total[name] = max(total.get(name, 0), nanos)
