# SPDX-License-Identifier: Apache-2.0
"""What does one request of a claim ask for, and how is it changed? An alternative of a request (a subrequest) has the same form.

The allocator has another class for requests, made for searching. This one describes in words what the claim asks for, and makes
the changed claims that `explain` tries.
"""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from dra_driver.explain.names import full_name
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dra_driver.model.cluster import EXTENDED_RESOURCE_CLAIM

ALL = "All"
LONGEST_SELECTORS = 1000
"""As many characters of the selectors are in the text of a request: they may have 300,000, and claims of one template repeat them."""
Body = ExactDeviceRequest | DeviceSubRequest


class ClaimRequest(Struct, frozen=True, eq=False):
    """A request, or an alternative of a request; `name` is "main" or "main/sub".

    `indices`: the index of the request in the claim, and the index of the alternative in the request (None: no alternative).
    """

    claim: ResourceClaim
    name: str
    body: Body
    indices: tuple[int, int | None]

    @property
    def main(self) -> tuple[str, int]:
        """The claim's name and the index of the request; equal for all alternatives of one request."""
        return full_name(self.claim.metadata), self.indices[0]

    @property
    def place(self) -> str:
        """The request and its claim, as the report names them. The claim for extended resources has no name that a user knows."""
        metadata = self.claim.metadata
        if not is_of_scheduler(self.claim):
            return f"request {self.name} of claim {full_name(metadata)}"
        pods = (f"{metadata.namespace}/{one.name}" for one in metadata.owner_references or ())
        return f"request {self.name} for the extended resources of pod {', '.join(pods)}"

    @property
    def all_devices(self) -> bool:
        """Whether the request asks for every matching device of a node."""
        return self.body.allocation_mode == ALL

    @property
    def admin_access(self) -> bool:
        """Whether the request has admin access: it can also get devices that are allocated to other claims."""
        return isinstance(self.body, ExactDeviceRequest) and bool(self.body.admin_access)

    @property
    def is_alternative(self) -> bool:
        """Whether this is one of the alternatives in `firstAvailable`."""
        return self.indices[1] is not None

    def __str__(self) -> str:
        count = "all" if self.all_devices else f"{self.body.count} x"
        text = f"{count} {self.body.device_class_name or 'no class'}"
        selectors = [s.cel.expression for s in self.body.selectors or () if s.cel]
        if selectors:
            where = " and ".join(selectors)
            cut = f"{where[:LONGEST_SELECTORS]} …"
            text += f" where {where if len(where) <= LONGEST_SELECTORS else cut}"
        capacity = self.body.capacity.requests if self.body.capacity else None
        if capacity:
            amounts = (f"{name} {quantity}" for name, quantity in capacity.items())
            text += f" with {', '.join(amounts)}"
        return text + (", admin access" if self.admin_access else "")


def is_of_scheduler(claim: ResourceClaim) -> bool:
    """Return whether the scheduler writes the claim, for the extended resources of a pod: nobody can edit such a claim."""
    return EXTENDED_RESOURCE_CLAIM in (claim.metadata.annotations or {})


def requests_in(claim: ResourceClaim) -> Iterator[ClaimRequest]:
    """Yield every request of a claim; instead of a request with alternatives, each alternative."""
    for index, request in enumerate(claim.spec.devices.requests or ()):
        if request.exactly is not None:
            yield ClaimRequest(claim, request.name, request.exactly, (index, None))
        for place, alternative in enumerate(request.first_available or ()):
            yield ClaimRequest(
                claim, f"{request.name}/{alternative.name}", alternative, (index, place)
            )


def claim_with_only(request: ClaimRequest) -> ResourceClaim:
    """Return the claim with only this request or alternative, and without constraints."""
    index, place = request.indices
    requests = list(request.claim.spec.devices.requests or ())
    main = requests[index]
    if place is not None:
        main = msgspec.structs.replace(main, first_available=[request.body])
    return with_devices(request.claim, DeviceClaim(requests=[main]))


def claim_with(request: ClaimRequest, change: Callable[[Body], Body]) -> ResourceClaim:
    """Return the claim with this request changed."""
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
    """Return the claim with another spec.devices."""
    return msgspec.structs.replace(claim, spec=ResourceClaimSpec(devices=devices))
