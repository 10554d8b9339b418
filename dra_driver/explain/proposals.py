# SPDX-License-Identifier: Apache-2.0
"""Which changes might help? Each is only a proposal: `tried_changes` runs the allocator to see whether it does help.

The proposals start from the nearest miss, the device with the fewest reasons against it. Each proposal removes all these reasons:
relax a condition until the device meets it, tolerate a taint, ask for less capacity, delete the claim that has the device. A device
that does not work is in no proposal.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.capacity import permitted
from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.cancellation import never
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.explain.claim_request import (
    Body,
    ClaimRequest,
    claim_with,
    is_of_scheduler,
    requests_in,
)
from dra_driver.explain.costs import COSTS, EDIT_CLASS, Kind, costliest
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.misses import Miss, nearest
from dra_driver.explain.names import full_name
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.selector_edits import (
    Rewritten,
    corrected_names,
    relaxed_selectors,
    without_errors,
)
from dra_driver.explain.tried_nodes import TriedNodes
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    HeldByClaim,
    SelectorError,
    Tainted,
    Verdict,
)
from dra_driver.model.api.resource_claim import (
    CapacityRequirements,
    DeviceClass,
    DeviceToleration,
    ResourceClaim,
)
from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.device import taint_text


class Proposal(Struct, frozen=True, eq=False):
    """A change of one request, of its class, or of both. `what` is its text, without the claims in `ended`.

    `claim` is the changed claim and `classes` are the changed classes; `ended` are the other claims ("namespace/name") that would
    have to be deleted; `tried_changes` leaves out those that the pod itself needs. `kind` and `cost` are those of the changes in `what`; None and 0 if there are none.
    """

    what: str
    claim: ResourceClaim
    kind: Kind | None = None
    cost: int = 0
    ended: tuple[str, ...] = ()
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)


class Candidate(Struct, frozen=True, eq=False):
    """What `tried_changes` tries as one change: changed claims, by "namespace/name", changed classes, and claims to delete.

    `what`, `kind` and `cost` are without the claims in `ended`. `first` are the nodes to try first.
    """

    what: str
    claims: Mapping[str, ResourceClaim]
    kind: Kind | None = None
    cost: int = 0
    ended: tuple[str, ...] = ()
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    first: TriedNodes | None = None

    def and_also(self, one: Proposal) -> "Candidate":
        """Return this and one more change, which is made from the claim as this one leaves it."""
        kinds = [kind for kind in (self.kind, one.kind) if kind]
        return replace(
            self,
            what="; ".join(what for what in (self.what, one.what) if what),
            claims={**self.claims, full_name(one.claim.metadata): one.claim},
            kind=costliest(kinds) if kinds else None,
            cost=self.cost + one.cost,
            ended=tuple(dict.fromkeys((*self.ended, *one.ended))),
            classes={**one.classes, **self.classes},
        )

    def sparing(self, own: Collection[str]) -> "Candidate":
        """Return this without the end of claims that the subject itself needs.

        A trial would not see that need: it allocates only those claims of the subject that have no devices.
        """
        return replace(self, ended=tuple(one for one in self.ended if one not in own))


class Edit(Struct, frozen=True, eq=False):
    """One change of a request, in words."""

    words: str
    kind: Kind
    body: Body


def from_miss(explained: RequestExplained, request: ClaimRequest, miss: Miss) -> Iterator[Proposal]:
    """Yield changes after which this device fits the request. `request` may be another version of the explained request.

    If a selector has mistyped names, one proposal only corrects these, and one removes what else is in the way, too. If other claims
    use up a capacity, one proposal ends them, and another one asks for less. If nobody can remove one of the reasons, there is no
    proposal.
    """
    typos = [(selector, part.typo) for selector, part in miss.parts if part.typo]
    ways: list[tuple[Rewritten, Kind]] = [(names, "correct") for names in corrected_names(typos)]
    for names, kind in ways:
        yield rewritten(explained, request, names, kind)
    parts, edits = miss.parts, []
    instead = _class_of(explained, miss)
    if instead:
        parts = tuple(one for one in parts if one[0].is_own)
        edits.append(_ask_for_class(request.body, instead))
    relaxed: tuple[Rewritten, Kind] = (relaxed_selectors(parts), "edit")
    consumed = any(isinstance(one, CapacityConsumed) and one.claims for one in miss.reasons)
    for ending in (True, False) if consumed else (True,):
        for way in ways if miss.others else ():
            yield from _removing(explained, request, miss, way, ending=ending)
        yield from _removing(explained, request, miss, relaxed, edits, ending=ending)


def from_mistyped(explained: RequestExplained, miss: Miss) -> Iterator[Proposal]:
    """Yield the change after which this device fits, which only lacks values that are mistyped in the selectors."""
    way: tuple[Rewritten, Kind] = (relaxed_selectors(miss.parts), "correct")
    yield from _removing(explained, explained.request, miss, way, ending=True)


def _removing(
    explained: RequestExplained,
    request: ClaimRequest,
    miss: Miss,
    way: tuple[Rewritten, Kind],
    before: Sequence[Edit] = (),
    *,
    ending: bool,
) -> Iterator[Proposal]:
    """Yield the change that writes the selectors this way and removes all other reasons, after the edits `before`.

    `ending`: it ends the claims that use up a capacity.
    """
    if miss.foreign and any(not selector.is_own for selector, _ in miss.parts):
        return  # the class is for devices of another driver
    edits = list(before)
    body = edits[-1].body if edits else request.body
    ended: dict[str, None] = {}
    for reason in miss.others:
        users = users_of(reason, ending=ending)
        if users:
            ended.update(dict.fromkeys(users))
            continue
        edit = _edit(explained.fleet, body, reason, miss.device)
        if edit is None:
            return
        edits.append(edit)
        body = edit.body
    selectors, kind = way
    yield rewritten(explained, request, selectors, kind, edits=edits, ended=tuple(ended))


def users_of(reason: Verdict, *, ending: bool = True) -> tuple[str, ...]:
    """Return the claims that would have to be deleted, so that the device, its capacity or its counters are free."""
    if isinstance(reason, HeldByClaim):
        return (reason.claim,)
    if isinstance(reason, CountersUsedUp) or (ending and isinstance(reason, CapacityConsumed)):
        return reason.claims
    return ()


def rewritten(
    explained: RequestExplained,
    request: ClaimRequest,
    selectors: Rewritten,
    kind: Kind,
    *,
    edits: Sequence[Edit] = (),
    ended: tuple[str, ...] = (),
) -> Proposal:
    """Propose other selectors, which are a change of this kind, after the other changes of the request in `edits`."""
    body = edits[-1].body if edits else request.body
    own, of_class = selectors.own_words, selectors.class_words
    if own:
        body = msgspec.structs.replace(body, selectors=selectors.own(body.selectors))
    words = [*own, *(one.words for one in edits)]
    instead = (
        "write a ResourceClaim in their place, and there " if is_of_scheduler(request.claim) else ""
    )
    texts = [f"{request.place}: {instead}{'; '.join(words)}"] if words else []
    classes: dict[str, DeviceClass] = {}
    if of_class:
        name = request.body.device_class_name
        classes[name] = selectors.of_class(explained.fleet.classes[name])
        texts.append(f"class {name}: {'; '.join(of_class)}")
    kinds = [*((kind,) if own or of_class else ()), *(one.kind for one in edits)]
    dear = EDIT_CLASS if kind == "edit" else COSTS[kind]
    cost = COSTS[kind] * len(own) + dear * len(of_class) + sum(COSTS[one.kind] for one in edits)
    claim = claim_with(request, lambda _: body)
    return Proposal(
        "; ".join(texts), claim, costliest(kinds) if kinds else None, cost, ended, classes
    )


def from_errors(
    explained: RequestExplained, miss: Miss | None, devices: Sequence[SliceDevice] = ()
) -> Iterator[Proposal]:
    """Yield changes of the request and its class that remove the run-time errors of their selectors, or correct a false one that is like these.

    Others also remove what else is in the way of the nearest device, and of the device that is the nearest of `devices` after a correction.
    """
    request = explained.request
    for corrects, change in without_errors(explained):
        kind: Kind = "correct" if corrects else "edit"
        alone = rewritten(explained, request, change, kind)
        yield alone
        if corrects and not alone.classes:
            yield from _after_correction(explained, alone, devices)
        others = () if miss is None else _without_errors_of(miss)
        if miss is not None and others:
            rest = replace(miss, reasons=others)
            yield from _removing(explained, request, rest, (change, kind), ending=True)


def _without_errors_of(miss: Miss) -> tuple[Verdict, ...]:
    return tuple(one for one in miss.others if not isinstance(one, SelectorError))


def _after_correction(
    explained: RequestExplained, correct: Proposal, devices: Sequence[SliceDevice]
) -> Iterator[Proposal]:
    """Yield the correction of selectors, and what else is in the way of the nearest device then; other than what was corrected, which is meant so."""
    asked = explained.request
    request = next(one for one in requests_in(correct.claim) if one.indices == asked.indices)
    corrected = explained.changed(request)
    miss = None if corrected.problems else nearest(corrected, devices)
    if miss is None or not _is_uncorrected(explained, miss):
        return
    for rest in from_miss(corrected, request, miss):
        yield replace(
            rest,
            what="; ".join([correct.what, *([rest.what] if rest.what else [])]),
            kind=costliest([rest.kind or "correct", "correct"]),
            cost=correct.cost + rest.cost,
        )


def _is_uncorrected(explained: RequestExplained, miss: Miss) -> bool:
    """Return whether all that is still false for the device was so before the correction, in the same words."""
    before = {part.part for _, part in explained.answers.judged(miss.device).parts}
    return all(part.part in before for _, part in miss.parts)


def fewer(request: ClaimRequest, available: int) -> Proposal:
    """Propose to ask for only as many devices as are available."""
    instead = "all" if request.all_devices else request.body.count

    def lower(body: Body) -> Body:
        return msgspec.structs.replace(body, allocation_mode="ExactCount", count=available)

    what = f"{request.place}: ask for {available} instead of {instead}"
    return Proposal(what, claim_with(request, lower), "ask for less", COSTS["ask for less"] + 1)


def _class_of(explained: RequestExplained, miss: Miss) -> str:
    """Return another class whose selectors the device passes, if it does not pass those of the request's class; "" if there is none.

    Who asks for devices can choose another class, but only an admin can change one, and for all who use it.
    """
    if all(selector.is_own for selector, _ in miss.parts):
        return ""
    asked = explained.request.body.device_class_name
    others = (name for name in sorted(explained.fleet.classes) if name != asked)
    return next((name for name in others if _passes(explained.fleet, name, miss.device)), "")


def _passes(fleet: Fleet, name: str, device: SliceDevice) -> bool:
    selectors = [one.cel.expression for one in fleet.classes[name].spec.selectors or () if one.cel]
    try:
        return bool(selectors) and all(
            fleet.explained(text).selector.matches(device.value, never) for text in selectors
        )
    except (CompileError, EvaluationError):
        return False


def _ask_for_class(body: Body, name: str) -> Edit:
    words = f"ask for class {name} instead of {body.device_class_name}"
    return Edit(words, "edit", msgspec.structs.replace(body, device_class_name=name))


def other_class(request: ClaimRequest, name: str) -> Proposal:
    """Propose another class for the request."""
    return Proposal(
        f"{request.place}: deviceClassName {name}",
        claim_with(request, lambda body: msgspec.structs.replace(body, device_class_name=name)),
        "correct",
        COSTS["correct"],
    )


def _edit(fleet: Fleet, body: Body, reason: Verdict, device: SliceDevice) -> Edit | None:
    if isinstance(reason, Tainted):
        taints = device.device.taints or ()
        return _tolerate(
            body, next(one for one in taints if taint_text(one) == reason.taint), reason
        )
    if isinstance(reason, CapacityTooSmall):
        name = _missing_capacity(body, device) if not reason.has else reason.capacity
        if reason.near:
            return _renamed(body, name, reason.near)
        most = [reason.has, reason.needed]
        if (
            name in device.capacity
        ):  # the policy allows less than the device has, and other claims may have a part of it
            most.append(str(fleet.left_of(device, name)))
        return _lower(body, name, _permitted(device, name, most))
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


def _tolerate(body: Body, taint: DeviceTaint, reason: Tainted) -> Edit | None:
    if reason.is_broken:
        return None
    toleration = DeviceToleration(
        key=taint.key, operator="Equal", value=taint.value, effect=taint.effect
    )
    tolerations = [*(body.tolerations or ()), toleration]
    what = f"tolerate {taint_text(taint)}"
    return Edit(what, "tolerate", msgspec.structs.replace(body, tolerations=tolerations))


def _renamed(body: Body, name: str, right: str) -> Edit:
    """Ask for the same amount under the name that the device publishes."""
    requests = dict((body.capacity.requests if body.capacity else None) or {})
    requests[right] = requests.pop(name)
    capacity = CapacityRequirements(requests=requests)
    words = f"ask for capacity {right} instead of {name}"
    return Edit(words, "correct", msgspec.structs.replace(body, capacity=capacity))


def _lower(body: Body, name: str, most: str) -> Edit | None:
    requests = dict((body.capacity.requests if body.capacity else None) or {})
    asked = requests.pop(name, "")
    if most == "0" or not (asked or most):
        return None
    instead = f" instead of {asked}" if asked else ""
    if most:
        requests[name] = most
    what = f"ask for {name} {most}{instead}" if most else f"do not ask for {name}"
    capacity = CapacityRequirements(requests=requests) if requests else None
    return Edit(what, "ask for less", msgspec.structs.replace(body, capacity=capacity))
