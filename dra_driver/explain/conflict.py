# SPDX-License-Identifier: Apache-2.0
"""Each request alone would fit: which of them, and which constraints, do not fit together?

The module leaves out one request or constraint after the other. If the rest still does not fit, the left-out one does not belong
to the conflict, and stays out. At the end the rest is a smallest set that does not fit: without any one member, it would fit. If the
time is over before, the rest does not fit either, but may have more members than it needs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from msgspec import Struct

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import shown
from dra_driver.cel.reasons.similar import likely_attribute, question
from dra_driver.explain.claim_request import requests_in, with_devices
from dra_driver.explain.verdict import ConstraintConflict
from dra_driver.explain.verdicts.request import APART, ONLY_ONCE, SHARED, TOO_FEW
from dra_driver.model.api.resource_claim import DeviceConstraint, ResourceClaim

SHOWN_VALUES = 8
SHOWN_PARTS = 32
Fits = Callable[[Sequence[ResourceClaim]], bool | None]
"""Whether claims fit; None if that was not found out in time."""


class ClaimPart(Struct, frozen=True):
    """One request or one constraint of one of the claims."""

    claim: int
    kind: str
    index: int


def parts_of(claims: Sequence[ResourceClaim]) -> list[ClaimPart]:
    """Return all parts of the claims, for each claim the requests before the constraints.

    `smallest` tries to leave out the first parts first, so the conflict names a constraint rather than a request.
    """
    found: list[ClaimPart] = []
    for number, claim in enumerate(claims):
        devices = claim.spec.devices
        found += (
            ClaimPart(number, "request", index) for index in range(len(devices.requests or ()))
        )
        found += (
            ClaimPart(number, "constraint", index)
            for index in range(len(devices.constraints or ()))
        )
    return found


def without(claims: Sequence[ResourceClaim], parts: Collection[ClaimPart]) -> list[ResourceClaim]:
    """Return the claims without these parts. The constraints no longer name the requests that were left out."""
    left_out = set(parts)
    return [_reduced(number, claim, left_out) for number, claim in enumerate(claims)]


def without_constraints(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim without its constraints."""
    return with_devices(claim, msgspec.structs.replace(claim.spec.devices, constraints=None))


def _reduced(number: int, claim: ResourceClaim, left_out: set[ClaimPart]) -> ResourceClaim:
    devices = claim.spec.devices
    requests = [
        request
        for index, request in enumerate(devices.requests or ())
        if ClaimPart(number, "request", index) not in left_out
    ]
    names = {request.name for request in requests}
    constraints = [
        reduced
        for index, constraint in enumerate(devices.constraints or ())
        if ClaimPart(number, "constraint", index) not in left_out
        and (reduced := _concerning(constraint, names)) is not None
    ]
    return with_devices(
        claim, msgspec.structs.replace(devices, requests=requests, constraints=constraints)
    )


def _concerning(constraint: DeviceConstraint, names: set[str]) -> DeviceConstraint | None:
    if not constraint.requests:
        return constraint
    kept = [name for name in constraint.requests if name.partition("/")[0] in names]
    return msgspec.structs.replace(constraint, requests=kept) if kept else None


def smallest(claims: Sequence[ResourceClaim], fits: Fits) -> list[ClaimPart]:
    """Return a smallest set of parts that does not fit. All parts together must not fit.

    From the first time that `fits` does not know, no more is left out: without that part, the others may fit.
    """
    left_out: set[ClaimPart] = set()
    parts = parts_of(claims)
    for part in parts:
        found = fits(without(claims, {*left_out, part}))
        if found is None:
            break
        if not found:
            left_out.add(part)
    return [part for part in parts if part not in left_out]


def as_verdict(
    claims: Sequence[ResourceClaim], parts: Sequence[ClaimPart], devices: Sequence[SliceDevice]
) -> ConstraintConflict:
    """Return the verdict for the conflict. `devices` are the devices that a request alone could get."""
    several = len(claims) > 1
    words: list[str] = []
    details: list[str] = []
    for part in parts[:SHOWN_PARTS]:
        claim = claims[part.claim]
        prefix = f"claim {claim.metadata.name}, " if several else ""
        if part.kind == "request":
            request = (claim.spec.devices.requests or [])[part.index]
            wants = [str(one) for one in requests_in(claim) if one.indices[0] == part.index]
            words.append(f"{prefix}request {request.name} ({' or '.join(wants)})")
        else:
            constraint = (claim.spec.devices.constraints or [])[part.index]
            words.append(prefix + constraint_text(constraint))
            details.append(_values(constraint, devices))
    if len(parts) > SHOWN_PARTS:
        words.append(f"{len(parts) - SHOWN_PARTS:,} more requests and constraints")
    if not details:
        details = [TOO_FEW if len(words) > 1 else _why_not_alone(claims, parts[0], devices)]
    return ConstraintConflict(tuple(words), "; ".join(details))


def _why_not_alone(
    claims: Sequence[ResourceClaim], part: ClaimPart, devices: Sequence[SliceDevice]
) -> str:
    """Return why one request does not get as many devices as it asks for, although each of `devices` can be had."""
    claim = claims[part.claim]
    asked = [one for one in requests_in(claim) if one.indices[0] == part.index]
    shared = any(one.device.allow_multiple_allocations for one in devices)
    if not shared or any(one.body.count <= len(devices) for one in asked):
        return SHARED
    names = {one.name.partition("/")[0] for one in asked}
    apart = any(
        one.distinct_attribute and _concerning(one, names)
        for one in claim.spec.devices.constraints or ()
    )
    return APART if apart else ONLY_ONCE


def constraint_text(constraint: DeviceConstraint) -> str:
    """Return the report's text for a constraint."""
    if not attribute_of(constraint):
        return "without an attribute"
    field = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
    return f"{field} {attribute_of(constraint)}"


def attribute_of(constraint: DeviceConstraint) -> str:
    """Return the attribute that a constraint compares, as the claim writes it; "" if it has none."""
    return constraint.match_attribute or constraint.distinct_attribute or ""


def attributes_of(devices: Iterable[SliceDevice]) -> Collection[str]:
    """Return the names of all attributes that these devices have, with their domains."""
    found = {
        one if "/" in one else f"{device.id.driver}/{one}": None
        for device in devices
        for one in device.device.attributes or ()
    }
    return found.keys()


def near_attribute(constraint: DeviceConstraint, published: Collection[str]) -> str:
    """Return which of the published attributes has a similar name if the constraint's is none of them; "" if there is none."""
    name = attribute_of(constraint)
    return likely_attribute(name, list(published)) if name and name not in published else ""


def with_attribute(claim: ResourceClaim, index: int, name: str) -> ResourceClaim:
    """Return the claim with another attribute in one of its constraints."""
    constraints = list(claim.spec.devices.constraints or ())
    old = constraints[index]
    match = name if old.match_attribute else None
    distinct = None if old.match_attribute else name
    constraints[index] = msgspec.structs.replace(
        old, match_attribute=match, distinct_attribute=distinct
    )
    devices = msgspec.structs.replace(claim.spec.devices, constraints=constraints)
    return with_devices(claim, devices)


def _values(constraint: DeviceConstraint, devices: Sequence[SliceDevice]) -> str:
    name = attribute_of(constraint)
    counted = Counter(shown(device.attribute(name)) or "not set" for device in devices)
    listed = ", ".join(
        f"{value} ({count})" for value, count in counted.most_common(SHOWN_VALUES)
    ) + (", …" if len(counted) > SHOWN_VALUES else "")
    near = question(near_attribute(constraint, attributes_of(devices)))
    return f"{name}: {listed}, {near}" if near else f"{name}: {listed}"
