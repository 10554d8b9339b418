# SPDX-License-Identifier: Apache-2.0
"""What do the selectors of a request answer for each device, and which of their conditions are false?

A selector can read the driver, the attributes and the capacity of a device. Devices with equal values for what the selectors read
(`device_values`) are evaluated once. So 10,000 devices of 3 models need as many evaluations as 3 devices.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.cancellation import Cancelled, Check, never
from dra_driver.cel.errors import CompileError as BadExpression
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.reasons.conditions import FalseCondition, Meant
from dra_driver.cel.reasons.failing import FailingCondition
from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.reasons.similar import meant, question
from dra_driver.cel.work import Work
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.device_values import DeviceValues
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.names import existing_classes, values_found
from dra_driver.explain.verdict import (
    ClassMissing,
    CompileError,
    CouldNotTell,
    SelectorError,
    SelectorFalse,
    Verdict,
)
from dra_driver.explain.verdicts.device import ON

MANY = 64
"""If the devices have more than MANY different sets of values, the reasons omit the values, so that devices can be grouped."""
_DRIVER = DevicePath("driver")


def _source(device_class: str) -> str:
    return f"class {device_class}" if device_class else "request"


class RequestSelector(Struct, frozen=True, eq=False):
    """A selector that the devices of a request must match: selector number `index` of `device_class`; of the request if that is ""."""

    device_class: str
    index: int
    explained: ExplainedSelector

    @property
    def is_own(self) -> bool:
        """Whether the selector is in the request itself, so that the author of the claim can change it."""
        return not self.device_class

    @property
    def source(self) -> str:
        """The class or the request that has the selector, for messages."""
        return _source(self.device_class)


class Judgement(Struct, frozen=True):
    """The selectors' answers for a device. `parts` are all false conditions; `proposals` uses them to propose changes.

    `failing` are the conditions with a run-time error. The search stops with this error when it comes to the device. `unanswered`: a
    selector has no answer. `foreign`: the selectors ask for another driver.
    """

    verdicts: tuple[Verdict, ...] = ()
    parts: tuple[tuple[RequestSelector, FalseCondition], ...] = ()
    failing: tuple[tuple[RequestSelector, FailingCondition], ...] = ()
    unanswered: bool = False
    foreign: bool = False


class SelectorAnswers:
    """The selectors of one request, the selectors of its class first, and their answers.

    `problems` are reasons against every device: the class is missing, or a selector does not compile. When `stop` returns True, a
    compilation or an evaluation ends, and the reason is CouldNotTell.
    """

    def __init__(self, fleet: Fleet, request: ClaimRequest, stop: Check = never) -> None:
        self._body = request.body
        self._stop = stop
        self._fleet = fleet
        self.selectors: list[RequestSelector] = []
        self.problems: tuple[Verdict, ...] = tuple(self._compile_all())
        self._values = values_at(fleet, self._all_paths())
        self._judgements: list[Judgement | None] = [None] * self._values.count
        """The judgement of each number of `_values`."""
        self._equal: dict[Judgement, Judgement] = {}
        self._in_brief: dict[tuple[object, ...], Judgement] = {}
        self._looks: dict[int, object] = {}
        self._briefs: dict[tuple[str, int, str], SelectorFalse] = {}

    def _compile_all(self) -> Iterator[Verdict]:
        body, fleet = self._body, self._fleet
        device_class = fleet.classes.get(body.device_class_name)
        if device_class is None:
            gap = fleet.state.unread("deviceclasses", body.device_class_name)
            if gap is not None:
                what = f"device class {body.device_class_name}: {gap.message}"
                yield CouldNotTell(gap.reason, what)
            else:
                names = list(fleet.classes)
                near = meant(body.device_class_name, names) or existing_classes(names)
                yield ClassMissing(body.device_class_name, near)
            return
        for name, spec in ((body.device_class_name, device_class.spec), ("", body)):
            for index, selector in enumerate(spec.selectors or ()):
                expression = selector.cel.expression if selector.cel else ""
                try:
                    yield from self._compile(name, index, expression)
                except Cancelled:
                    yield CouldNotTell("timeout", "a selector took too long")
                    return

    def _compile(self, device_class: str, index: int, expression: str) -> Iterator[Verdict]:
        try:
            with Work(self._stop):
                selector = RequestSelector(device_class, index, self._fleet.explained(expression))
        except BadExpression as error:
            yield CompileError(_source(device_class), index, error.message, error.hint)
        else:
            self.selectors.append(selector)

    def _all_paths(self) -> tuple[DevicePath, ...] | None:
        """Return the attributes and capacities that the selectors read; None if a selector may read any of them."""
        found: set[DevicePath] = set()
        for selector in self.selectors:
            if selector.explained.paths is None:
                return None
            found |= selector.explained.paths
        return tuple(sorted(found))

    def judged(self, device: SliceDevice) -> Judgement:
        """Return the selectors' answers for the device; the same object for devices with equal answers."""
        number = self._values.of(device)
        known = self._judgements[number]
        if known is None:
            # Without values, the answers for many devices are equal, and kept once.
            known = self._judgements[number] = self._judge(device)
        return known

    def may_match(self, device: SliceDevice) -> bool | None:
        """Return whether the selectors match a device that the search does not see; None if they fail on it."""
        value = self._fleet.value_of(device)
        try:
            return all(one.explained.selector.matches(value, self._stop) for one in self.selectors)
        except EvaluationError:
            return None
        except Cancelled:
            return True

    def number(self, device: SliceDevice) -> int:
        """Return a number that is equal for devices with equal values for what the selectors read."""
        return self._values.of(device)

    def relaxed(
        self, device: SliceDevice, meant: Meant
    ) -> tuple[tuple[RequestSelector, FalseCondition], ...]:
        """Return the false conditions, each with the nearest condition that the device meets; `meant` says what a mistyped text stands for."""
        return self._judge(device, meant).parts

    def in_brief(self, reason: Verdict) -> Verdict:
        """Return the reason as the report shows it for a group of devices: without values if there are more than MANY answers."""
        if isinstance(reason, SelectorFalse) and self._many:
            return self._without_values(reason)
        return reason

    def look(self, device: SliceDevice) -> object:
        """Return a key that is equal for devices whose reason has the same text."""
        judgement = self.judged(device)
        known = self._looks.get(id(judgement))
        if known is None:
            known = self._looks[id(judgement)] = self._look(judgement)
        return known

    def _look(self, judgement: Judgement) -> object:
        if not self._many:
            return id(judgement)
        first = judgement.verdicts[0] if judgement.verdicts else None
        return self._without_values(first) if isinstance(first, SelectorFalse) else type(first)

    def _without_values(self, reason: SelectorFalse) -> SelectorFalse:
        key = (reason.source, reason.index, reason.part)
        if key not in self._briefs:
            self._briefs[key] = SelectorFalse(*key, values_found(f"{reason.part} is false"))
        return self._briefs[key]

    @cached_property
    def _many(self) -> bool:
        # Of all devices of the cluster: else the text of a group would depend on the order of the devices.
        return self._values.count > MANY

    def foreign(self, device: SliceDevice) -> bool:
        """Return whether the selectors ask for another driver than the device's driver."""
        return self.judged(device).foreign

    def of_class(self, device: SliceDevice) -> bool:
        """Return whether the selectors of the class match the device, whatever those of the request say."""
        judged = self.judged(device)
        return all(selector.is_own for selector, _ in (*judged.parts, *judged.failing))

    def meant(self, devices: Sequence[SliceDevice]) -> Sequence[SliceDevice]:
        """Return the devices of the drivers that the selectors ask for; all devices if there is none."""
        judged = self.judged
        return [one for one in devices if not judged(one).foreign] or devices

    def _judge(self, device: SliceDevice, meant: Meant | None = None) -> Judgement:
        try:
            return self._evaluate(device, meant)
        except Cancelled:
            return Judgement(
                (CouldNotTell("timeout", "a selector took too long"),), unanswered=True
            )

    def _evaluate(self, device: SliceDevice, meant: Meant | None) -> Judgement:
        error: SelectorError | None = None
        failing: tuple[tuple[RequestSelector, FailingCondition], ...] = ()
        false: list[tuple[RequestSelector, tuple[FalseCondition, ...]]] = []
        value = self._fleet.value_of(device)
        seen = (device.id.driver, device.device, value)
        # With more than MANY answers the report omits the values, and finding them takes most of the time.
        in_brief = self._many and meant is None
        for selector in self.selectors:
            explained = selector.explained
            try:
                if explained.selector.matches(value, self._stop):
                    continue
            except EvaluationError as failure:
                # After a false selector, the search does not evaluate the next one.
                if error is None and not false:
                    failed = explained.failing_conditions(
                        *seen, self._stop, is_published=self._fleet.publishes
                    )
                    failing = tuple((selector, part) for part in failed)
                    error = _error(selector, failed[0], device, failure)
                continue
            if in_brief:
                parts = explained.false_conditions_in_brief(value, self._stop)
            else:
                parts = explained.false_conditions(
                    *seen, meant, self._stop, is_published=self._fleet.publishes
                )
            false.append((selector, parts))
        if error is not None or not in_brief:
            found = _judgement(false, error, failing)
            return self._equal.setdefault(found, found)
        # In brief, the same condition is the same object, and its number says what takes long to compare.
        key = tuple([(selector, *map(id, parts)) for selector, parts in false])
        known = self._in_brief.get(key)
        if known is None:
            known = self._in_brief[key] = _judgement(false)
        return known


def _judgement(
    false: Sequence[tuple[RequestSelector, tuple[FalseCondition, ...]]],
    error: SelectorError | None = None,
    failing: tuple[tuple[RequestSelector, FailingCondition], ...] = (),
) -> Judgement:
    verdicts: list[Verdict] = [] if error is None else [error]
    for selector, (first, *_) in false:
        verdicts.append(
            SelectorFalse(
                selector.source, selector.index, first.part, values_found(first.found), first.hint
            )
        )
    parts = tuple((selector, part) for selector, parts in false for part in parts)
    foreign = any(part.path == _DRIVER for _, part in parts)
    return Judgement(tuple(verdicts), parts, failing, error is not None, foreign)


def answers_for(fleet: Fleet, request: ClaimRequest, stop: Check = never) -> SelectorAnswers:
    """Return the answers for the request; the same for all requests of the cluster with the same class and selectors."""
    body = request.body
    texts = tuple(one.cel.expression if one.cel else "" for one in body.selectors or ())
    key = (SelectorAnswers, body.device_class_name, texts)
    return fleet.shared(key, lambda: SelectorAnswers(fleet, request, stop))


def values_at(fleet: Fleet, paths: tuple[DevicePath, ...] | None) -> DeviceValues:
    """Return the numbers of the cluster's devices by the values at these paths; the same for all that read these paths."""
    return fleet.shared((DeviceValues, paths), lambda: DeviceValues(paths, fleet.all_devices))


def _error(
    selector: RequestSelector,
    failing: FailingCondition,
    device: SliceDevice,
    error: EvaluationError,
) -> SelectorError:
    if failing.everywhere:  # the same on every device, so that these stay one group
        return SelectorError(
            selector.source, selector.index, failing.part, str(error), failing.everywhere
        )
    where = f"{device.id} {failing.lacks}" if failing.lacks else f"{ON}{device.id}"
    near = "; ".join(question(name) for _, name in failing.typos[:1])
    hint = f"{where}; {near}" if near else where
    return SelectorError(selector.source, selector.index, failing.part, str(error), hint)
