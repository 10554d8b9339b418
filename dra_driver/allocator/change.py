# SPDX-License-Identifier: Apache-2.0
"""What would have to be different for a request to be served? The smallest changes, which somebody else tries out.

What the nearest device misses is turned round: a condition is relaxed to what the device has, a taint tolerated, an
amount lowered, a claim in the way ended. A change is a proposal; only the allocator can say whether it helps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dra_driver.allocator.asked import Asked, Body, changed
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.explain import Chosen, RequestExplained
from dra_driver.cel.explain import FalsePart
from dra_driver.model.api.resource_claim import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceSelector,
    DeviceToleration,
    ResourceClaim,
)
from dra_driver.model.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    HeldByClaim,
    SelectorFalse,
    Tainted,
    Verdict,
)

_REQUEST = "request"
_WEIGHTS: dict[type, int] = {SelectorFalse: 2, Tainted: 2, HeldByClaim: 3, CountersUsedUp: 3}
_OTHERS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """`claim` is the changed claim; `ended` are claims ("namespace/name") that would have to give up their devices."""

    what: str
    claim: ResourceClaim
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """A device and everything that it misses."""

    device: SliceDevice
    reasons: tuple[Verdict, ...]
    parts: tuple[tuple[Chosen, FalsePart], ...]

    @property
    def distance(self) -> int:
        """How much would have to change; the class of a request and a device's node are hardest to change."""
        parts = sum(2 if chosen.source == _REQUEST else 3 * _OTHERS for chosen, _ in self.parts)
        others = (one for one in self.reasons if not isinstance(one, SelectorFalse))
        return parts + sum(_WEIGHTS.get(type(one), _OTHERS) for one in others)


def nearest(request: RequestExplained, devices: Sequence[SliceDevice]) -> Miss | None:
    """The device that misses least; the first of several. None where one misses nothing, or there is none."""
    best: Miss | None = None
    for device in devices:
        miss = Miss(device, request.reasons(device), request.judged(device).parts)
        if miss.reasons and (best is None or miss.distance < best.distance):
            best = miss
    return best and Miss(best.device, best.reasons, request.relaxed(best.device))


def from_miss(asked: Asked, miss: Miss) -> Iterator[Proposal]:
    """The request changed so that the device would do, if its reasons can be changed at all."""
    edits: list[tuple[str, Body]] = []
    body = asked.body
    ended: list[str] = []
    for reason in miss.reasons:
        if isinstance(reason, SelectorFalse):
            continue
        if isinstance(reason, HeldByClaim):
            ended.append(reason.claim)
        elif isinstance(reason, CountersUsedUp):
            ended += reason.claims
        else:
            edit = _edit(body, reason)
            if edit is None:
                return
            edits.append(edit)
            body = edit[1]
    selectors = _selectors(body, miss.parts)
    if selectors is None:
        return
    words = [*selectors[0], *(what for what, _ in edits)]
    if words:
        words[0] = f"request {asked.name}: {words[0]}"
    words += [f"end claim {name}" for name in dict.fromkeys(ended)]
    final = selectors[1]
    yield Proposal("; ".join(words), changed(asked, lambda _: final), tuple(dict.fromkeys(ended)))


def fewer(asked: Asked, available: int) -> Proposal:
    """The request for as many devices as can be had."""
    what = f"request {asked.name}: ask for {available} instead of {asked.body.count}"
    if asked.all_devices:
        what = f"request {asked.name}: ask for {available} instead of all"

    def lower(body: Body) -> Body:
        return msgspec.structs.replace(body, allocation_mode="ExactCount", count=available)

    return Proposal(what, changed(asked, lower))


def other_class(asked: Asked, name: str) -> Proposal:
    """The request for another class."""
    return Proposal(
        f"request {asked.name}: deviceClassName {name}",
        changed(asked, lambda body: msgspec.structs.replace(body, device_class_name=name)),
    )


def _edit(body: Body, reason: Verdict) -> tuple[str, Body] | None:
    if isinstance(reason, Tainted):
        return _tolerate(body, reason.taint)
    if isinstance(reason, CapacityTooSmall):
        return _lower(body, reason.capacity.partition(" ")[0], reason.has)
    return (
        _lower(body, reason.capacity, reason.left) if isinstance(reason, CapacityConsumed) else None
    )


def _tolerate(body: Body, taint: str) -> tuple[str, Body]:
    text, _, effect = taint.rpartition(":")
    key, _, value = text.partition("=")
    toleration = DeviceToleration(key=key, operator="Equal", value=value, effect=effect)
    tolerations = [*(body.tolerations or ()), toleration]
    return f"tolerate {taint}", msgspec.structs.replace(body, tolerations=tolerations)


def _lower(body: Body, name: str, amount: str) -> tuple[str, Body] | None:
    requests = dict((body.capacity.requests if body.capacity else None) or {})
    if name not in requests or amount == "0":
        return None
    asked = requests.pop(name)
    if amount:
        requests[name] = amount
    what = f"ask for {name} {amount} instead of {asked}" if amount else f"do not ask for {name}"
    capacity = CapacityRequirements(requests=requests) if requests else None
    return what, msgspec.structs.replace(body, capacity=capacity)


def _selectors(
    body: Body, parts: Sequence[tuple[Chosen, FalsePart]]
) -> tuple[list[str], Body] | None:
    """The selectors of the request relaxed; None where the class says no."""
    failed: dict[int, tuple[Chosen, list[FalsePart]]] = {}
    for chosen, part in parts:
        if chosen.source != _REQUEST:
            return None
        failed.setdefault(chosen.index, (chosen, []))[1].append(part)
    words: list[str] = []
    kept: list[DeviceSelector] = []
    for index, selector in enumerate(body.selectors or ()):
        if index not in failed:
            kept.append(selector)
            continue
        chosen, false = failed[index]
        for part in false:
            instead = f"write {part.relaxed} instead of" if part.relaxed else "leave out"
            words.append(f"{instead} {part.part}")
        expression = chosen.explained.without(false)
        if expression:
            kept.append(DeviceSelector(cel=CELDeviceSelector(expression=expression)))
    return words, msgspec.structs.replace(body, selectors=kept)
