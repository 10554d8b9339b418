# SPDX-License-Identifier: Apache-2.0
"""What do the selectors of a request answer for each device, and which of their conditions are false?

A selector sees the driver of a device, its attributes and its capacity. Devices that are equal in what the selectors look at
get one answer, so a large fleet of a few models costs as much as a few devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.cancellation import Cancelled, Check, never
from dra_driver.cel.errors import CompileError as BadExpression
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.reasons.conditions import FailingCondition, FalseCondition
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.reasons.similar import meant, question
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.verdict import (
    ClassMissing,
    CompileError,
    CouldNotTell,
    SelectorError,
    SelectorFalse,
    Verdict,
)

MANY = 64
"""With more kinds of devices than this, the reason omits their values, so that devices can be grouped."""
_DRIVER = DevicePath("driver")
_REQUEST = "request"


@dataclass(frozen=True, slots=True, eq=False)
class RequestSelector:
    """One selector that the devices of a request have to meet; source is "class NAME" or "request"."""

    source: str
    index: int
    explained: ExplainedSelector

    @property
    def is_own(self) -> bool:
        """Whether it stands in the request itself, so that the author of the claim can change it."""
        return self.source == _REQUEST


@dataclass(frozen=True, slots=True)
class Judgement:
    """What selectors answer for a device; `parts` are all conditions that are false, from which changes are proposed.

    `failing` are the conditions with a run-time error, which stops the search when it comes to this device.
    """

    verdicts: tuple[Verdict, ...] = ()
    parts: tuple[tuple[RequestSelector, FalseCondition], ...] = ()
    failing: tuple[tuple[RequestSelector, FailingCondition], ...] = ()


class SelectorAnswers:
    """The selectors of one request, those of its class first, and their answers.

    `problems` are reasons that hold for every device: the class is missing, or a selector does not compile. An evaluation
    ends once `stop` answers True; the device's reason is CouldNotTell then.
    """

    def __init__(self, fleet: Fleet, request: ClaimRequest, stop: Check = never) -> None:
        self.request = request
        self._stop = stop
        self._fleet = fleet
        self.selectors: list[RequestSelector] = []
        self.problems: tuple[Verdict, ...] = tuple(self._compile_all())
        self._paths = self._all_paths()
        self._by_values: dict[bytes, Judgement] = {}
        self._by_device: dict[SliceDevice, Judgement] = {}
        self._briefs: dict[tuple[str, int, str], SelectorFalse] = {}

    def _compile_all(self) -> Iterator[Verdict]:
        body, fleet = self.request.body, self._fleet
        device_class = fleet.classes.get(body.device_class_name)
        if device_class is None:
            gap = fleet.state.unread("deviceclasses", body.device_class_name)
            if gap is not None:
                what = f"device class {body.device_class_name}: {gap.message}"
                yield CouldNotTell(gap.reason, what)
            else:
                near = meant(body.device_class_name, list(fleet.classes))
                yield ClassMissing(body.device_class_name, near)
            return
        sources = ((f"class {body.device_class_name}", device_class.spec), (_REQUEST, body))
        for source, spec in sources:
            for index, selector in enumerate(spec.selectors or ()):
                expression = selector.cel.expression if selector.cel else ""
                yield from self._compile(source, index, expression)

    def _compile(self, source: str, index: int, expression: str) -> Iterator[Verdict]:
        try:
            selector = RequestSelector(source, index, self._fleet.explained(expression))
        except BadExpression as error:
            yield CompileError(source, index, error.message, error.hint)
        else:
            self.selectors.append(selector)

    def _all_paths(self) -> list[DevicePath] | None:
        """What the selectors look at; None where they look at everything."""
        found: set[DevicePath] = set()
        for selector in self.selectors:
            if selector.explained.paths is None:
                return None
            found |= selector.explained.paths
        return sorted(found)

    def judged(self, device: SliceDevice) -> Judgement:
        """What the selectors answer; the same object for devices that they cannot tell apart."""
        # Two dictionaries: the bytes of a device's values cost more than the search, and each device is asked about often.
        known = self._by_device.get(device)
        if known is None:
            key = self._key(device)
            known = self._by_values.get(key)
            if known is None:
                known = self._by_values[key] = self._judge(device)
            self._by_device[device] = known
        return known

    def relaxed(self, device: SliceDevice) -> tuple[tuple[RequestSelector, FalseCondition], ...]:
        """The false conditions again, each with the nearest one that the device meets."""
        return self._judge(device, relax=True).parts

    def in_brief(self, reason: Verdict) -> Verdict:
        """The reason as a group of devices has it: with many kinds of devices without their values."""
        if isinstance(reason, SelectorFalse) and self._many:
            return self._without_values(reason)
        return reason

    def look(self, device: SliceDevice) -> object:
        """A key that is equal for devices that get the same reason in the same words."""
        judgement = self.judged(device)
        if not self._many:
            return id(judgement)
        first = judgement.verdicts[0] if judgement.verdicts else None
        return self._without_values(first) if isinstance(first, SelectorFalse) else type(first)

    def _without_values(self, reason: SelectorFalse) -> SelectorFalse:
        key = (reason.source, reason.index, reason.part)
        if key not in self._briefs:
            self._briefs[key] = SelectorFalse(*key, f"{reason.part} is false")
        return self._briefs[key]

    @cached_property
    def _many(self) -> bool:
        # Decided once for the whole cluster: a group must not change its words with the devices that were looked at first.
        for device in self._fleet.devices.values():
            self.judged(device)
        return len(self._by_values) > MANY

    def foreign(self, device: SliceDevice) -> bool:
        """Whether the selectors ask for another driver than the device's."""
        return any(part.path == _DRIVER for _, part in self.judged(device).parts)

    def meant(self, devices: Sequence[SliceDevice]) -> Sequence[SliceDevice]:
        """The devices of the drivers that the selectors ask for; all, where there is none of them."""
        return [one for one in devices if not self.foreign(one)] or devices

    def _key(self, device: SliceDevice) -> bytes:
        driver, published = device.id.driver, device.device
        if self._paths is None:
            shared = published.allow_multiple_allocations
            return msgspec.json.encode((driver, published.attributes, published.capacity, shared))
        values = [value_at(path, driver, published) for path in self._paths]
        return msgspec.json.encode((driver, values))

    def _judge(self, device: SliceDevice, *, relax: bool = False) -> Judgement:
        try:
            return self._evaluate(device, relax=relax)
        except Cancelled:
            return Judgement((CouldNotTell("timeout", "a selector took too long"),))

    def _evaluate(self, device: SliceDevice, *, relax: bool) -> Judgement:
        verdicts: list[Verdict] = []
        parts: list[tuple[RequestSelector, FalseCondition]] = []
        failing: list[tuple[RequestSelector, FailingCondition]] = []
        seen = (device.id.driver, device.device, device.value)
        for selector in self.selectors:
            explained = selector.explained
            try:
                if explained.selector.matches(device.value, self._stop):
                    continue
            except EvaluationError as error:
                if not verdicts:  # else the search does not come here
                    failed = explained.failing_conditions(*seen, self._stop)
                    failing = [(selector, part) for part in failed]
                    verdicts.append(_error(selector, failed[0], device, error))
                continue
            # Beyond MANY kinds nobody reads the values, and telling them is most of the cost.
            if relax or len(self._by_values) <= MANY:
                false = explained.false_conditions(*seen, relax=relax, cancelled=self._stop)
            else:
                false = explained.false_conditions_in_brief(device.value, self._stop)
            parts += ((selector, part) for part in false)
            first = false[0]
            verdicts.append(
                SelectorFalse(selector.source, selector.index, first.part, first.found, first.hint)
            )
        return Judgement(tuple(verdicts), tuple(parts), tuple(failing))


def _error(
    selector: RequestSelector,
    failing: FailingCondition,
    device: SliceDevice,
    error: EvaluationError,
) -> SelectorError:
    where = f"{device.id} {failing.lacks}" if failing.lacks else f"on {device.id}"
    near = "; ".join(question(name) for _, name in failing.typos[:1])
    hint = f"{where}; {near}" if near else where
    return SelectorError(selector.source, selector.index, failing.part, str(error), hint)
