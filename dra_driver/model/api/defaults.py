# SPDX-License-Identifier: Apache-2.0
"""Which defaults does the API server add to claims and pods?

The scheduler relies on these defaults. A manifest that was not applied does not have them, nor does a template that is older than
the default.
Source: k8s.io/kubernetes pkg/apis/resource/v1/defaults.go, pkg/apis/core/v1/defaults.go.
"""

import msgspec

from dra_driver.model.api.core import Container, Pod
from dra_driver.model.api.resource_claim import (
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaimSpec,
)

EXACT_COUNT = "ExactCount"


def with_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """The spec of a claim with the default allocation modes, counts and operators."""
    requests = spec.devices.requests
    if requests is None:
        return spec
    devices = msgspec.structs.replace(spec.devices, requests=[_request(one) for one in requests])
    return ResourceClaimSpec(devices=devices)


def pod_with_defaults(pod: Pod) -> Pod:
    """The pod with default requests: a container that has a limit for a resource but no request requests the limit."""
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_container(one) for one in pod.spec.containers or ()],
        init_containers=[_container(one) for one in pod.spec.init_containers or ()],
    )
    return msgspec.structs.replace(pod, spec=spec)


def _request(request: DeviceRequest) -> DeviceRequest:
    alternatives = request.first_available
    return msgspec.structs.replace(
        request,
        exactly=request.exactly and _exact(request.exactly),
        first_available=alternatives and [_alternative(one) for one in alternatives],
    )


def _exact(request: ExactDeviceRequest) -> ExactDeviceRequest:
    mode = request.allocation_mode or EXACT_COUNT
    return msgspec.structs.replace(
        request,
        allocation_mode=mode,
        count=_count(mode, request.count),
        tolerations=_tolerations(request.tolerations),
    )


def _alternative(request: DeviceSubRequest) -> DeviceSubRequest:
    mode = request.allocation_mode or EXACT_COUNT
    return msgspec.structs.replace(
        request,
        allocation_mode=mode,
        count=_count(mode, request.count),
        tolerations=_tolerations(request.tolerations),
    )


def _count(mode: str, count: int) -> int:
    return 1 if mode == EXACT_COUNT and count == 0 else count


def _tolerations(tolerations: list[DeviceToleration] | None) -> list[DeviceToleration] | None:
    return tolerations and [
        msgspec.structs.replace(one, operator=one.operator or "Equal") for one in tolerations
    ]


def _container(container: Container) -> Container:
    limits = container.resources.limits
    if not limits:
        return container
    requests = {**limits, **(container.resources.requests or {})}
    resources = msgspec.structs.replace(container.resources, requests=requests)
    return msgspec.structs.replace(container, resources=resources)
