# SPDX-License-Identifier: Apache-2.0
"""Which changes of a request might help? Each is only a proposal: `tried_changes` asks the allocator whether it does help.

The proposals start from the device that misses least, and undo what it misses: relax a condition to the value of the device,
tolerate its taint, ask for a smaller amount, end the claim that holds it.
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
    """A change in words. `claim` is the changed claim; `ended` are claims ("namespace/name") that would have to end."""

    what: str
    claim: ResourceClaim
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """A device and everything that it misses."""

    device: SliceDevice
    reasons: tuple[Verdict, ...]
    parts: tuple[tuple[RequestSelector, FalseCondition], ...]
    foreign: bool

    @property
    def distance(self) -> tuple[bool, int]:
        """How much would have to change: the smaller, the nearer. A device of another driver is farther than all others.

        A selector of the class and the node of a device weigh most, because the author of a claim can change neither.
        """
        parts = sum(2 if selector.is_own else 3 * _OTHERS for selector, _ in self.parts)
        others = (one for one in self.reasons if not isinstance(one, SelectorFalse))
        return self.foreign, parts + sum(_WEIGHTS.get(type(one), _OTHERS) for one in others)


def missed(explained: RequestExplained, device: SliceDevice) -> Miss:
    """What the device misses."""
    parts = explained.answers.judged(device).parts
    return Miss(device, explained.reasons(device), parts, explained.answers.foreign(device))


def relaxed(explained: RequestExplained, miss: Miss) -> Miss:
    """The same, each false condition with the nearest one that the device meets."""
    return replace(miss, parts=explained.answers.relaxed(miss.device))


def nearest(explained: RequestExplained, devices: Sequence[SliceDevice]) -> Miss | None:
    """The device that misses least, the first of several; None where there is no device that misses anything."""
    best: Miss | None = None
    for device in devices:
        miss = missed(explained, device)
        if miss.reasons and (best is None or miss.distance < best.distance):
            best = miss
    return best and relaxed(explained, best)


def from_miss(request: ClaimRequest, miss: Miss) -> Iterator[Proposal]:
    """The request changed so that this device would do; nothing where a reason cannot be changed by the claim's author."""
    typos = [(selector, part.typo) for selector, part in miss.parts if part.typo]
    if typos:
        yield from _corrected(request, typos)
    edits: list[tuple[str, Body]] = []
    body = request.body
    ended: list[str] = []
    for reason in miss.reasons:
        if isinstance(reason, SelectorFalse):
            continue  # its parts are relaxed below, all selectors at once
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
    """The request without its run-time errors: mistyped names corrected, or a check that the device has the attribute.

    If no device passes these checks, also without the conditions that fail.
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
    """The request with its mistyped names corrected; a selector of the class stays as it is."""
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
    """The request with other texts of some selectors, by their index; a selector with the text "" is left out."""
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
    """The request for as many devices as can be had."""
    what = f"request {request.name}: ask for {available} instead of {request.body.count}"
    if request.all_devices:
        what = f"request {request.name}: ask for {available} instead of all"

    def lower(body: Body) -> Body:
        return msgspec.structs.replace(body, allocation_mode="ExactCount", count=available)

    return Proposal(what, claim_with(request, lower))


def other_class(request: ClaimRequest, name: str) -> Proposal:
    """The request for another class."""
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
    """The first capacity that the request names and the device lacks; the verdict has its name only with a hint behind it."""
    asked = (body.capacity.requests if body.capacity else None) or {}
    return next(name for name in asked if name not in (device.device.capacity or {}))


def _permitted(device: SliceDevice, name: str, most: Sequence[str]) -> str:
    """The most of a capacity that a request may ask for within these limits; "" where it should not ask for that capacity."""
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
    """The selectors of the request relaxed; None where a selector of the class is false, which no change of the claim helps."""
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
