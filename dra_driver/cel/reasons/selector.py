# SPDX-License-Identifier: Apache-2.0
"""Which conditions of a selector are false for a device?

Most selectors are several conditions joined by `&&`. This module evaluates each condition alone. `conditions.py` explains
the false ones. This module can also write the selector with such a condition changed or removed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.compile import Selector, part_of_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.reasons.comparisons import compared
from dra_driver.cel.reasons.conditions import (
    ConditionExplainer,
    FalseCondition,
    Meant,
)
from dra_driver.cel.reasons.corrections import Correction, replaced
from dra_driver.cel.reasons.distances import Wanted, wanted
from dra_driver.cel.reasons.failing import FailingCondition, FailureExplainer
from dra_driver.cel.reasons.like_versions import Published
from dra_driver.cel.reasons.part_texts import PartTexts
from dra_driver.cel.reasons.paths import DevicePath, paths
from dra_driver.cel.reasons.rewrite import guard, presence, renamed, wrapped
from dra_driver.cel.reasons.version_advice import version_advice
from dra_driver.cel.syntax.ast import Call, Expr, ParsedAst
from dra_driver.model.api.resource_slice import Device


def _always(_: DevicePath, __: str) -> bool:
    return True


class ExplainedSelector:
    """Explains one selector for many devices. Its methods raise Cancelled if `cancelled` returns True."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self._parsed: ParsedAst = selector.checked.parsed
        self._texts = PartTexts(self._parsed)
        self.root: Expr = self._parsed.root
        self.paths = paths(self.root)
        self._briefs: dict[int, FalseCondition] = {}
        self._wanted: dict[str, Wanted | None] = {}
        self._parts = [(part, self._alone(part)) for part in conjuncts(self.root)]

    def _alone(self, part: Expr) -> Selector | None:
        try:
            return part_of_selector(self.selector, part)
        except (
            CompileError
        ):  # For example dyn(x) && y in an older release: the first operand alone is no bool.
            return None

    def false_conditions(
        self,
        driver: str,
        device: Device,
        value: DeviceValue,
        meant: Meant | None = None,
        cancelled: Check = never,
        *,
        is_published: Published = _always,
    ) -> tuple[FalseCondition, ...]:
        """Return the false conditions, or the whole selector if no condition alone is false.

        With `meant`, which says what a mistyped text stands for, `FalseCondition.relaxed` is filled. `is_published` is that of
        `failing_conditions`.
        """
        explainer = ConditionExplainer(driver, device, self._texts, is_published, meant)
        return tuple(explainer.tell(part) for part in self._failed(value, cancelled))

    def false_conditions_in_brief(
        self, value: DeviceValue, cancelled: Check = never
    ) -> tuple[FalseCondition, ...]:
        """Return the false conditions without the values of the device, which is faster.

        Reports about very many devices use this.
        """
        return tuple(self._brief(part) for part in self._failed(value, cancelled))

    def _failed(self, value: DeviceValue, cancelled: Check) -> list[Expr]:
        if len(self._parts) == 1:
            return [self.root]
        return [
            part for part, alone in self._parts if alone and _is_false(alone, value, cancelled)
        ] or [self.root]

    def _brief(self, part: Expr) -> FalseCondition:
        known = self._briefs.get(part.id)
        if known is None:
            text = self._texts.of(part)
            false = FalseCondition(text, f"{text} is false", path=compared(part))
            known = self._briefs[part.id] = false
        return known

    def wanted(self, false: FalseCondition) -> Wanted | None:
        """Return what a false condition asks for; None if it compares no path with constants."""
        if false.part not in self._wanted:
            self._wanted[false.part] = wanted(self._part(false))
        return self._wanted[false.part]

    def _part(self, false: FalseCondition) -> Expr:
        parts = (one for one, _ in self._parts if self._texts.of(one) == false.part)
        return next(parts, self.root)

    def version_corrections(
        self,
        false: FalseCondition,
        is_version: Callable[[DevicePath], bool],
        is_published: Published,
    ) -> Sequence[Correction]:
        """Return what to write in a false condition that takes a version for something else, where `is_version` says that one is."""
        return version_advice(self._texts, self._part(false), is_version, is_published).corrections

    def failing_conditions(
        self,
        driver: str,
        device: Device,
        value: DeviceValue,
        cancelled: Check = never,
        *,
        is_published: Published = _always,
    ) -> tuple[FailingCondition, ...]:
        """Return the conditions that end with an error, or the whole selector if no condition alone does.

        `is_published` says whether any device has a path, or a version there. What one has is not taken for a mistake.
        """
        tell = FailureExplainer(driver, device, self._texts, is_published).tell
        if len(self._parts) == 1:
            return (tell(self.root),)
        failing = [part for part, alone in self._parts if alone and _fails(alone, value, cancelled)]
        return tuple(tell(part) for part in failing or [self.root])

    def guarded(self, failing: Mapping[str, Sequence[DevicePath]]) -> str:
        """Return the selector with has(…) before the paths that made these conditions fail."""
        kept: list[str] = [guard(path) for path in failing.get(self._texts.of(self.root), ())]
        for part, _ in self._parts:
            text = self._texts.of(part)
            kept += (guard(path) for path in failing.get(text, ()))
            kept.append(f"({text})" if _binds_loosely(part) else text)
        return " && ".join(dict.fromkeys(kept))

    def renamed(self, names: Mapping[DevicePath, str]) -> str:
        """Return the text of the selector with other names at these paths."""
        return renamed(self._parsed, names)

    def wrapped(self, parsers: Mapping[DevicePath, str]) -> str:
        """Return the text of the selector with a call around each of these paths, such as "semver(…)"."""
        return wrapped(self._parsed, parsers)

    def corrected(self, corrections: Mapping[int, Expr]) -> str:
        """Return the text of the selector with other nodes in the place of those with these numbers."""
        return replaced(self._parsed, corrections)

    def with_dependent(self, failed: Sequence[FalseCondition]) -> tuple[FalseCondition, ...]:
        """Return `failed`, and the conditions that need a has(…) in `failed`: without this check they would end with an error."""
        known = {part.part: part for part in failed}
        gone: set[DevicePath] = set()
        for part, _ in self._parts:
            path = presence(part)
            false = known.get(self._texts.of(part))
            if path is not None and false is not None and not false.relaxed:
                gone.add(path)
        for part, _ in self._parts:
            text = self._texts.of(part)
            if gone & (paths(part) or frozenset()):
                known.setdefault(text, FalseCondition(text, ""))
        return tuple(known.values())

    def without(self, failed: Sequence[FalseCondition]) -> str:
        """Return the selector with each condition of `failed` relaxed or removed. Returns "" if nothing is left."""
        changed = {part.part: part.relaxed for part in failed}
        if self._texts.of(self.root) in changed:
            return changed[self._texts.of(self.root)]
        kept: list[str] = []
        for part, _ in self._parts:
            text = self._texts.of(part)
            if text in changed:
                kept.append(changed[text])
            else:
                kept.append(f"({text})" if _binds_loosely(part) else text)
        return " && ".join(text for text in kept if text)


def _binds_loosely(part: Expr) -> bool:
    return isinstance(part, Call) and part.function in ("_||_", "_?_:_")


def conjuncts(root: Expr) -> Iterator[Expr]:
    """Return the operands of the `&&` chain, from left to right."""
    todo = [root]
    while todo:
        part = todo.pop()
        if isinstance(part, Call) and part.function == "_&&_":
            todo.extend(reversed(part.args))
        else:
            yield part


def _fails(alone: Selector, value: DeviceValue, cancelled: Check) -> bool:
    try:
        alone.matches(value, cancelled)
    except EvaluationError:
        return True
    return False


def _is_false(alone: Selector, value: DeviceValue, cancelled: Check) -> bool:
    try:
        return not alone.matches(value, cancelled)
    except EvaluationError:
        return False
