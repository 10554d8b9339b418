# SPDX-License-Identifier: Apache-2.0
"""What would have to be different for a request to be served? The smallest changes, which somebody else tries out.

What the nearest device misses is turned round: a condition is relaxed to what the device has, a taint tolerated, an
amount lowered, a claim in the way ended. A change is a proposal; only the allocator can say whether it helps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.capacity import permitted
from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalsePart
from dra_driver.cel.reasons.paths import Path
from dra_driver.cel.reasons.rewrite import guard, written
from dra_driver.explain.claim_request import Body, ClaimRequest, claim_with
from dra_driver.explain.reasons import RequestExplained, RequestSelector
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    HeldByClaim,
    SelectorFalse,
    Tainted,
    Verdict,
)
from dra_driver.model.api.resource_claim import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceSelector,
    DeviceToleration,
    ResourceClaim,
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
    parts: tuple[tuple[RequestSelector, FalsePart], ...]
    foreign: bool

    @property
    def distance(self) -> tuple[bool, int]:
        """How much would have to change; the class of a request and a device's node are hardest to change.

        No device of a driver that is not meant comes near.
        """
        parts = sum(2 if chosen.source == _REQUEST else 3 * _OTHERS for chosen, _ in self.parts)
        others = (one for one in self.reasons if not isinstance(one, SelectorFalse))
        return self.foreign, parts + sum(_WEIGHTS.get(type(one), _OTHERS) for one in others)


def missed(request: RequestExplained, device: SliceDevice) -> Miss:
    """What the device misses."""
    parts = request.judged(device).parts
    return Miss(device, request.reasons(device), parts, request.foreign(device))


def relaxed(request: RequestExplained, miss: Miss) -> Miss:
    """The same, each false condition with the nearest one that the device meets."""
    return replace(miss, parts=request.relaxed(miss.device))


def nearest(request: RequestExplained, devices: Sequence[SliceDevice]) -> Miss | None:
    """The device that misses least; the first of several. None where one misses nothing, or there is none."""
    best: Miss | None = None
    for device in devices:
        miss = missed(request, device)
        if miss.reasons and (best is None or miss.distance < best.distance):
            best = miss
    return best and relaxed(request, best)


def from_miss(asked: ClaimRequest, miss: Miss) -> Iterator[Proposal]:
    """The request changed so that the device would do, if its reasons can be changed at all."""
    typos = [(chosen, part.typo) for chosen, part in miss.parts if part.typo]
    if typos:
        yield from _corrected(asked, typos)
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
            edit = _edit(body, reason, miss.device)
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
    yield Proposal(
        "; ".join(words), claim_with(asked, lambda _: final), tuple(dict.fromkeys(ended))
    )


def from_errors(request: RequestExplained, devices: Sequence[SliceDevice]) -> Iterator[Proposal]:
    """The request without the run-time errors: with the names that may have been meant, or only asking devices that have them.

    Where no device would be left then, without the conditions that fail.
    """
    failing = dict.fromkeys(one for device in devices for one in request.judged(device).failing)
    if not failing or any(chosen.source != _REQUEST for chosen, _ in failing):
        return
    yield from _corrected(
        request.asked, [(chosen, typo) for chosen, part in failing for typo in part.typos]
    )
    paths: dict[RequestSelector, dict[str, dict[Path, None]]] = {}
    for chosen, part in failing:
        known = paths.setdefault(chosen, {}).setdefault(part.part, {})
        known.update(dict.fromkeys(part.missing))
    words = [
        f"put {' && '.join(guard(path) for path in missing)} && before {part}"
        for parts in paths.values()
        for part, missing in parts.items()
    ]
    texts = {
        chosen.index: chosen.explained.guarded({part: list(one) for part, one in parts.items()})
        for chosen, parts in paths.items()
    }
    if all(missing for parts in paths.values() for missing in parts.values()):
        yield _rewritten(request.asked, words, texts)
    if all(request.judged(device).verdicts for device in devices):
        words = [f"leave out {part}" for parts in paths.values() for part in parts]
        texts = {
            chosen.index: chosen.explained.without([FalsePart(part, "") for part in parts])
            for chosen, parts in paths.items()
        }
        yield _rewritten(request.asked, words, texts)


def _corrected(
    asked: ClaimRequest, typos: Sequence[tuple[RequestSelector, tuple[Path, str]]]
) -> Iterator[Proposal]:
    """The request with other names, where its own selectors have the wrong ones."""
    names: dict[RequestSelector, dict[Path, str]] = {}
    for chosen, (path, name) in typos:
        if chosen.source == _REQUEST:
            names.setdefault(chosen, {})[path] = name
    words = dict.fromkeys(
        f"write {written(replace(path, name=name))} instead of {written(path)}"
        for paths in names.values()
        for path, name in paths.items()
    )
    texts = {chosen.index: chosen.explained.renamed(paths) for chosen, paths in names.items()}
    if texts:
        yield _rewritten(asked, list(words), texts)


def _rewritten(asked: ClaimRequest, words: Sequence[str], texts: Mapping[int, str]) -> Proposal:
    """The request with other texts of some selectors; without those of which nothing is left."""
    selectors = [
        DeviceSelector(cel=CELDeviceSelector(expression=texts[index])) if index in texts else old
        for index, old in enumerate(asked.body.selectors or ())
        if texts.get(index) != ""
    ]
    return Proposal(
        f"request {asked.name}: {'; '.join(words)}",
        claim_with(asked, lambda body: msgspec.structs.replace(body, selectors=selectors)),
    )


def fewer(asked: ClaimRequest, available: int) -> Proposal:
    """The request for as many devices as can be had."""
    what = f"request {asked.name}: ask for {available} instead of {asked.body.count}"
    if asked.all_devices:
        what = f"request {asked.name}: ask for {available} instead of all"

    def lower(body: Body) -> Body:
        return msgspec.structs.replace(body, allocation_mode="ExactCount", count=available)

    return Proposal(what, claim_with(asked, lower))


def other_class(asked: ClaimRequest, name: str) -> Proposal:
    """The request for another class."""
    return Proposal(
        f"request {asked.name}: deviceClassName {name}",
        claim_with(asked, lambda body: msgspec.structs.replace(body, device_class_name=name)),
    )


def _edit(body: Body, reason: Verdict, device: SliceDevice) -> tuple[str, Body] | None:
    if isinstance(reason, Tainted):
        return _tolerate(body, reason.taint)
    if isinstance(reason, CapacityTooSmall):
        name = reason.capacity.partition(" ")[0]
        return _lower(body, name, _permitted(device, name, (reason.has, reason.needed)))
    if isinstance(reason, CapacityConsumed):
        name = reason.capacity
        return _lower(body, name, _permitted(device, name, (reason.left, reason.needed)))
    return None


def _permitted(device: SliceDevice, name: str, most: Sequence[str]) -> str:
    """The most that can be asked of a capacity, with all these limits; "" where it should not be named."""
    offered = (device.device.capacity or {}).get(name)
    if offered is None:
        return ""
    found = permitted(offered, min((amount(text) for text in most), key=lambda one: one.nanos))
    return "" if found is None else str(found)


def _tolerate(body: Body, taint: str) -> tuple[str, Body]:
    text, _, effect = taint.rpartition(":")
    key, _, value = text.partition("=")
    toleration = DeviceToleration(key=key, operator="Equal", value=value, effect=effect)
    tolerations = [*(body.tolerations or ()), toleration]
    return f"tolerate {taint}", msgspec.structs.replace(body, tolerations=tolerations)


def _lower(body: Body, name: str, most: str) -> tuple[str, Body] | None:
    requests = dict((body.capacity.requests if body.capacity else None) or {})
    asked = requests.pop(name, "")
    if most == "0" or not (asked or most):
        return None
    instead = f" instead of {asked}" if asked else ""
    if most:
        requests[name] = most
    what = f"ask for {name} {most}{instead}" if most else f"do not ask for {name}"
    capacity = CapacityRequirements(requests=requests) if requests else None
    return what, msgspec.structs.replace(body, capacity=capacity)


def _selectors(
    body: Body, parts: Sequence[tuple[RequestSelector, FalsePart]]
) -> tuple[list[str], Body] | None:
    """The selectors of the request relaxed; None where the class says no."""
    failed: dict[int, tuple[RequestSelector, list[FalsePart]]] = {}
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
        chosen, parted = failed[index]
        false = chosen.explained.with_dependent(parted)
        for part in false:
            instead = f"write {part.relaxed} instead of" if part.relaxed else "leave out"
            words.append(f"{instead} {part.part}")
        expression = chosen.explained.without(false)
        if expression:
            kept.append(DeviceSelector(cel=CELDeviceSelector(expression=expression)))
    return words, msgspec.structs.replace(body, selectors=kept)
