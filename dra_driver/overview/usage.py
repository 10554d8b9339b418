# SPDX-License-Identifier: Apache-2.0
"""Who uses how many devices, how much of their memory, and for how long?

The time of a device counts from its allocation until now. A share counts as the part of the device that it takes: of the capacities
that it consumes, the one of which it takes the most. What was released already is not in the cluster any more, so it is not counted.
A claim with admin access only looks at devices, and is not counted either.
"""

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import Literal, get_args

from msgspec import Struct, field

from dra_driver.allocator.amounts import NANO, amount
from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.facts.claim_state import allocated
from dra_driver.explain.names import full_name
from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult, ResourceClaim
from dra_driver.model.names import DEVICE_USAGE_KIND, DOCUMENT_VERSION
from dra_driver.overview.ages import age_seconds
from dra_driver.overview.claims import classes_of, nodes_of
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import Chosen, device_of
from dra_driver.overview.part import Gap, Part
from dra_driver.overview.values import memory_of, product

By = Literal["namespace", "class", "node", "product", "driver"]
BY: tuple[str, ...] = get_args(By)
_HOUR = 3600
_DIGITS = 2


class UsageRow(Part, frozen=True, kw_only=True):
    """The usage of one namespace, class, node, product or driver; `name` is "" for what has none.

    `devices` are whole devices, `shares` parts of devices. `deviceHours` may be too large if `sinceCreation`: for a claim without
    the time of its allocation, the time of its creation counts. `notPublished` devices are in no slice now; their memory is not known.
    """

    name: str
    claims: int
    devices: int
    shares: int
    memory_bytes: int
    device_hours: float
    since_creation: bool
    not_published: int


class DeviceUsage(Part, frozen=True, kw_only=True):
    """The answer of `kubectl dra usage -o json`. `total` counts each claim once. `problem` says why there is none; it is "" otherwise."""

    api_version: str = DOCUMENT_VERSION
    kind: str = DEVICE_USAGE_KIND
    read_at: str
    by: str
    rows: tuple[UsageRow, ...]
    total: UsageRow
    not_read: tuple[Gap, ...]
    problem: str = ""


class _Sum(Struct):
    claims: set[str] = field(default_factory=set)
    devices: int = 0
    shares: int = 0
    memory: int = 0
    hours: Fraction = Fraction(0)
    since_creation: bool = False
    not_published: int = 0

    def row(self, name: str) -> UsageRow:
        return UsageRow(
            name=name,
            claims=len(self.claims),
            devices=self.devices,
            shares=self.shares,
            memory_bytes=self.memory // NANO,
            device_hours=round(float(self.hours), _DIGITS),
            since_creation=self.since_creation,
            not_published=self.not_published,
        )


def usage_of(
    overview: Overview,
    chosen: Chosen,
    by: str,
    *,
    now: datetime,
    not_read: tuple[Gap, ...] = (),
) -> DeviceUsage:
    """Return the usage by one property, sorted by its value."""
    sums: dict[str, _Sum] = {}
    total = _Sum()
    for claim in filter(chosen.has, overview.state.resource_claims):
        for result in _results(overview, claim, chosen):
            name = _name(overview, claim, result, by)
            for one in (sums.setdefault(name, _Sum()), total):
                _add(one, overview, claim, result, now)
    return DeviceUsage(
        read_at=overview.state.recorded_at,
        by=by,
        rows=tuple(sums[name].row(name) for name in sorted(sums)),
        total=total.row("total"),
        not_read=not_read,
    )


def _results(
    overview: Overview, claim: ResourceClaim, chosen: Chosen
) -> Iterator[DeviceRequestAllocationResult]:
    for result in allocated(claim):
        device = overview.fleet.devices.get(device_of(result))
        there = not chosen.node or (device is not None and overview.is_on(device, chosen.node))
        if not result.admin_access and there and chosen.driver in ("", result.driver):
            yield result


def _name(
    overview: Overview, claim: ResourceClaim, result: DeviceRequestAllocationResult, by: str
) -> str:
    device = overview.fleet.devices.get(device_of(result))
    match by:
        case "namespace":
            return claim.metadata.namespace
        case "class":
            return classes_of(claim).get(result.request, "")
        case "product":
            return product(device.device) if device else ""
        case "driver":
            return result.driver
        case _:
            return _node(overview, claim, device)


def _node(overview: Overview, claim: ResourceClaim, device: SliceDevice | None) -> str:
    nodes = overview.nodes_of(device) if device else None
    if nodes is None or len(nodes) != 1:
        nodes = nodes_of(overview, claim, overview.pods_of(claim))
    return ",".join(nodes)


def _add(
    to: _Sum,
    overview: Overview,
    claim: ResourceClaim,
    result: DeviceRequestAllocationResult,
    now: datetime,
) -> None:
    device = overview.fleet.devices.get(device_of(result))
    allocation = claim.status.allocation
    at = allocation.allocation_timestamp if allocation else None
    seconds = age_seconds(at or claim.metadata.creation_timestamp or "", now)
    part = Fraction(1)
    consumed = {name: amount(one) for name, one in (result.consumed_capacity or {}).items()}
    if result.share_id is None:
        to.devices += 1
        memory = memory_of(device.capacity) if device else None
    else:
        to.shares += 1
        memory = memory_of(consumed)
        part = _part(device, {name: one.nanos for name, one in consumed.items()})
    to.claims.add(full_name(claim.metadata))
    to.memory += memory.nanos if memory else 0
    to.hours += part * seconds / _HOUR
    to.since_creation |= at is None
    to.not_published += device is None


def _part(device: SliceDevice | None, consumed: dict[str, int]) -> Fraction:
    """Return which part of the device a share takes; the whole one if that is not known."""
    parts = [
        Fraction(taken, device.capacity[name].nanos)
        for name, taken in consumed.items()
        if device is not None and name in device.capacity and device.capacity[name].nanos > 0
    ]
    return max(parts, default=Fraction(1))
