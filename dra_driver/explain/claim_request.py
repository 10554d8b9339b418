# SPDX-License-Identifier: Apache-2.0
"""One request of a claim, or one alternative of it (a subrequest), in the same shape; and how to change it.

The allocator has its own view of requests, made for searching. This one says in words what the claim asks for, and makes the
changed claims that are tried.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from dra_driver.explain.names import full_name
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)

ALL = "All"
Body = ExactDeviceRequest | DeviceSubRequest


@dataclass(frozen=True, slots=True, eq=False)
class ClaimRequest:
    """A request or an alternative of one; `name` is "main" or "main/sub".

    `indices` are the place of the request in the claim and that of the alternative in the request, or None.
    """

    claim: ResourceClaim
    name: str
    body: Body
    indices: tuple[int, int | None]

    @property
    def main(self) -> tuple[str, int]:
        """The request of which this is an alternative, or this one: its claim and its place there."""
        return full_name(self.claim.metadata), self.indices[0]

    @property
    def all_devices(self) -> bool:
        """Whether the request asks for every matching device of a node."""
        return self.body.allocation_mode == ALL

    @property
    def admin_access(self) -> bool:
        """Whether the request may have devices that other claims hold."""
        return isinstance(self.body, ExactDeviceRequest) and bool(self.body.admin_access)

    @property
    def is_alternative(self) -> bool:
        """Whether it is one of `firstAvailable`."""
        return self.indices[1] is not None

    def __str__(self) -> str:
        count = "all" if self.all_devices else f"{self.body.count} x"
        text = f"{count} {self.body.device_class_name or 'no class'}"
        selectors = [s.cel.expression for s in self.body.selectors or () if s.cel]
        if selectors:
            text += f" where {' and '.join(selectors)}"
        capacity = self.body.capacity.requests if self.body.capacity else None
        if capacity:
            amounts = (f"{name} {quantity}" for name, quantity in capacity.items())
            text += f" with {', '.join(amounts)}"
        return text + (", admin access" if self.admin_access else "")


def requests_in(claim: ResourceClaim) -> Iterator[ClaimRequest]:
    """Every request of a claim, each alternative as one."""
    for index, request in enumerate(claim.spec.devices.requests or ()):
        if request.exactly is not None:
            yield ClaimRequest(claim, request.name, request.exactly, (index, None))
        for place, alternative in enumerate(request.first_available or ()):
            yield ClaimRequest(
                claim, f"{request.name}/{alternative.name}", alternative, (index, place)
            )


def claim_with_only(request: ClaimRequest) -> ResourceClaim:
    """A claim with only this request, without alternatives and constraints."""
    index, place = request.indices
    requests = list(request.claim.spec.devices.requests or ())
    main = requests[index]
    if place is not None:
        main = msgspec.structs.replace(main, first_available=[request.body])
    return with_devices(request.claim, DeviceClaim(requests=[main]))


def claim_with(request: ClaimRequest, change: Callable[[Body], Body]) -> ResourceClaim:
    """The claim with this request changed."""
    index, place = request.indices
    requests: list[DeviceRequest] = list(request.claim.spec.devices.requests or ())
    body = change(request.body)
    if place is None:
        requests[index] = msgspec.structs.replace(requests[index], exactly=body)
    else:
        alternatives = list(requests[index].first_available or ())
        alternatives[place : place + 1] = [body] if isinstance(body, DeviceSubRequest) else []
        requests[index] = msgspec.structs.replace(requests[index], first_available=alternatives)
    devices = msgspec.structs.replace(request.claim.spec.devices, requests=requests)
    return with_devices(request.claim, devices)


def with_devices(claim: ResourceClaim, devices: DeviceClaim) -> ResourceClaim:
    """The claim with another spec.devices."""
    return msgspec.structs.replace(claim, spec=ResourceClaimSpec(devices=devices))
