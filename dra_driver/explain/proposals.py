# SPDX-License-Identifier: Apache-2.0
"""Which changes of a request might help? Each is only a proposal: `tried_changes` runs the allocator to see whether it does help.

The proposals start from the nearest miss, the device with the fewest reasons against it. Each proposal removes all these reasons:
relax a condition until the device meets it, tolerate a taint, ask for less capacity, delete the claim that has the device.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.capacity import permitted
from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.rewrite import guard, written
from dra_driver.explain.claim_request import Body, ClaimRequest, claim_with
from dra_driver.explain.device_state import taint_text
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.selector_answers import RequestSelector
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
from dra_driver.model.api.resource_slice import DeviceTaint

_WEIGHTS: dict[type, int] = {SelectorFalse: 2, Tainted: 2, HeldByClaim: 3, CountersUsedUp: 3}
_OTHERS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A change, and its text (`what`).

    `claim` is the changed claim; `ended` are the other claims ("namespace/name") that would have to be deleted.
    """

    what: str
    claim: ResourceClaim
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """A device and all reasons against it.

    `parts` are the false conditions of the selectors. `foreign`: the selectors ask for another driver.
    """

    device: SliceDevice
    reasons: tuple[Verdict, ...]
    parts: tuple[tuple[RequestSelector, FalseCondition], ...]
    foreign: bool

    @property
    def distance(self) -> tuple[bool, bool, int]:
        """How far the device is from the request: the smaller, the nearer.

        A device of another driver is farther than all other devices, and one that the request does not match is farther than one
        that it matches, whatever keeps that one. A false selector of the class and the node of a device weigh more than a false
        selector of the request, because the author of a claim can change neither.
        """
        unmatched = any(isinstance(one, SelectorFalse | CapacityTooSmall) for one in self.reasons)
        parts = sum(2 if selector.is_own else 3 * _OTHERS for selector, _ in self.parts)
        others = (one for one in self.reasons if not isinstance(one, SelectorFalse))
        weight = parts + sum(_WEIGHTS.get(type(one), _OTHERS) for one in others)
        return self.foreign, unmatched, weight


def missed(explained: RequestExplained, device: SliceDevice) -> Miss:
    """Return the device with all reasons against it for this request."""
    parts = explained.answers.judged(device).parts
    return Miss(device, explained.reasons(device), parts, explained.answers.foreign(device))


def relaxed(explained: RequestExplained, miss: Miss) -> Miss:
    """Return the same miss, where each false condition also has the nearest condition that the device meets."""
    return replace(miss, parts=explained.answers.relaxed(miss.device))


def nearest(explained: RequestExplained, devices: Sequence[SliceDevice]) -> Miss | None:
    """Return the device with the smallest distance, the first of several; None if no device has a reason against it."""
    best: Miss | None = None
    seen: set[object] = set()
    for device in devices:
        # Devices of the same kinds of reasons have the same distance, and the first of them is the one.
        kinds = explained.kinds(device)
        if kinds in seen:
            continue
        seen.add(kinds)
        miss = missed(explained, device)
        if miss.reasons and (best is None or miss.distance < best.distance):
            best = miss
    return best and relaxed(explained, best)


def from_miss(request: ClaimRequest, miss: Miss) -> Iterator[Proposal]:
    """Yield changes of the request after which this device fits the request.

    If a selector has mistyped names, one proposal only corrects these. If the claim's author cannot remove one of the reasons,
    there is no other proposal.
    """
    typos = [(selector, part.typo) for selector, part in miss.parts if part.typo]
    if typos:
        yield from _corrected(request, typos)
    edits: list[tuple[str, Body]] = []
    body = request.body
    ended: list[str] = []
    for reason in miss.reasons:
        if isinstance(reason, SelectorFalse):
            continue  # its false conditions are relaxed below, for all selectors together
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
        words[0] = f"request {request.name}: {words[0]}"
    words += [f"end claim {name}" for name in dict.fromkeys(ended)]
    final = selectors[1]
    yield Proposal(
        "; ".join(words), claim_with(request, lambda _: final), tuple(dict.fromkeys(ended))
    )


def from_errors(explained: RequestExplained, devices: Sequence[SliceDevice]) -> Iterator[Proposal]:
    """Yield changes of the request that remove its run-time errors.

    One corrects mistyped names; one adds a check that the device has the attribute; and, if no device passes the selectors, one
    leaves out the conditions that fail. There is none if a selector of the class fails.
    """
    failing = dict.fromkeys(
        one for device in devices for one in explained.answers.judged(device).failing
    )
    if not failing or any(not selector.is_own for selector, _ in failing):
        return
    yield from _corrected(
        explained.request, [(selector, typo) for selector, part in failing for typo in part.typos]
    )
    paths: dict[RequestSelector, dict[str, dict[DevicePath, None]]] = {}
    for selector, part in failing:
        known = paths.setdefault(selector, {}).setdefault(part.part, {})
        known.update(dict.fromkeys(part.missing))
    words = [
        f"put {' && '.join(guard(path) for path in missing)} && before {part}"
        for parts in paths.values()
        for part, missing in parts.items()
    ]
    texts = {
        selector.index: selector.explained.guarded({part: list(one) for part, one in parts.items()})
        for selector, parts in paths.items()
    }
    if all(missing for parts in paths.values() for missing in parts.values()):
        yield _rewritten(explained.request, words, texts)
    if all(explained.answers.judged(device).verdicts for device in devices):
        words = [f"leave out {part}" for parts in paths.values() for part in parts]
        texts = {
            selector.index: selector.explained.without([FalseCondition(part, "") for part in parts])
            for selector, parts in paths.items()
        }
        yield _rewritten(explained.request, words, texts)


def _corrected(
    request: ClaimRequest, typos: Sequence[tuple[RequestSelector, tuple[DevicePath, str]]]
) -> Iterator[Proposal]:
    """Correct the mistyped names in the request; a selector of the class stays unchanged."""
    names: dict[RequestSelector, dict[DevicePath, str]] = {}
    for selector, (path, name) in typos:
        if selector.is_own:
            names.setdefault(selector, {})[path] = name
    words = dict.fromkeys(
        f"write {written(replace(path, name=name))} instead of {written(path)}"
        for paths in names.values()
        for path, name in paths.items()
    )
    texts = {selector.index: selector.explained.renamed(paths) for selector, paths in names.items()}
    if texts:
        yield _rewritten(request, list(words), texts)


def _rewritten(request: ClaimRequest, words: Sequence[str], texts: Mapping[int, str]) -> Proposal:
    """Replace the texts of some selectors of the request, by their index; a selector with the text "" is removed."""
    selectors = [
        DeviceSelector(cel=CELDeviceSelector(expression=texts[index])) if index in texts else old
        for index, old in enumerate(request.body.selectors or ())
        if texts.get(index) != ""
    ]
    return Proposal(
        f"request {request.name}: {'; '.join(words)}",
        claim_with(request, lambda body: msgspec.structs.replace(body, selectors=selectors)),
    )


def fewer(request: ClaimRequest, available: int) -> Proposal:
    """Propose to ask for only as many devices as are available."""
    what = f"request {request.name}: ask for {available} instead of {request.body.count}"
    if request.all_devices:
        what = f"request {request.name}: ask for {available} instead of all"

    def lower(body: Body) -> Body:
        return msgspec.structs.replace(body, allocation_mode="ExactCount", count=available)

    return Proposal(what, claim_with(request, lower))


def other_class(request: ClaimRequest, name: str) -> Proposal:
    """Propose another class for the request."""
    return Proposal(
        f"request {request.name}: deviceClassName {name}",
        claim_with(request, lambda body: msgspec.structs.replace(body, device_class_name=name)),
    )


def _edit(body: Body, reason: Verdict, device: SliceDevice) -> tuple[str, Body] | None:
    if isinstance(reason, Tainted):
        taints = device.device.taints or ()
        return _tolerate(body, next(one for one in taints if taint_text(one) == reason.taint))
    if isinstance(reason, CapacityTooSmall):
        name = reason.capacity if reason.has else _missing_capacity(body, device)
        return _lower(body, name, _permitted(device, name, (reason.has, reason.needed)))
    if isinstance(reason, CapacityConsumed):
        name = reason.capacity
        return _lower(body, name, _permitted(device, name, (reason.left, reason.needed)))
    return None


def _missing_capacity(body: Body, device: SliceDevice) -> str:
    """Return the first capacity that the request names and the device lacks. The verdict's text may have a hint after the name."""
    asked = (body.capacity.requests if body.capacity else None) or {}
    return next(name for name in asked if name not in (device.device.capacity or {}))


def _permitted(device: SliceDevice, name: str, most: Sequence[str]) -> str:
    """Return the largest amount of a capacity that a request can ask for, at most the smallest amount in `most`.

    Return "" if the request should not ask for that capacity.
    """
    offered = (device.device.capacity or {}).get(name)
    if offered is None:
        return ""
    found = permitted(offered, min((amount(text) for text in most), key=lambda one: one.nanos))
    return "" if found is None else str(found)


def _tolerate(body: Body, taint: DeviceTaint) -> tuple[str, Body]:
    toleration = DeviceToleration(
        key=taint.key, operator="Equal", value=taint.value, effect=taint.effect
    )
    tolerations = [*(body.tolerations or ()), toleration]
    what = f"tolerate {taint_text(taint)}"
    return what, msgspec.structs.replace(body, tolerations=tolerations)


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
    body: Body, parts: Sequence[tuple[RequestSelector, FalseCondition]]
) -> tuple[list[str], Body] | None:
    """Relax the selectors of the request. None if a selector of the class is false: no change of the claim helps then."""
    failed: dict[int, tuple[RequestSelector, list[FalseCondition]]] = {}
    for selector, part in parts:
        if not selector.is_own:
            return None
        failed.setdefault(selector.index, (selector, []))[1].append(part)
    words: list[str] = []
    kept: list[DeviceSelector] = []
    for index, unchanged in enumerate(body.selectors or ()):
        if index not in failed:
            kept.append(unchanged)
            continue
        selector, parted = failed[index]
        false = selector.explained.with_dependent(parted)
        for part in false:
            instead = f"write {part.relaxed} instead of" if part.relaxed else "leave out"
            words.append(f"{instead} {part.part}")
        expression = selector.explained.without(false)
        if expression:
            kept.append(DeviceSelector(cel=CELDeviceSelector(expression=expression)))
    return words, msgspec.structs.replace(body, selectors=kept)
