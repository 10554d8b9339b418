# SPDX-License-Identifier: Apache-2.0
"""Which devices does a DeviceClass select? The question is the scheduler's, and so is the answer: the same CEL, on the published device.

If an expression fails on a device, the scheduler stops the whole pod. Here no pod waits, so the failure costs only what it
has to: the class does not get this device. It is told, because on the way of DRA pods of this class would be stuck.

Classes in files have passed no API server. An expression that it would refuse for its cost is refused here too, and one that it
takes may still need seconds for each device. A plan is made again every few seconds, so answers are kept (SelectorAnswers).
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from dra_driver.cel.compile import Selector, compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.cel.work import Work
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import DriverName
from dra_driver.planning.plugin.problems import ResourceProblem

_STORED = Environment(kind="StoredExpressions")
_LOST = "the class offers nothing, all others do"


class Failure(Struct, frozen=True):
    """The evaluation of one selector of a class failed on a device."""

    index: int
    reason: str


class _Wrong(Struct, frozen=True):
    """Why an expression cannot be a selector, and what to write."""

    found: str
    action: str


class _Answer(Struct, frozen=True):
    published: Device
    answer: bool | Failure


class SelectorAnswers:
    """What selectors answered. The same selectors give the same answer on the same published device, so they are asked once.

    `begin` begins a plan. Answers that a whole plan did not need are forgotten, so no more are kept than two plans need. For one thread.
    """

    def __init__(self, driver: DriverName) -> None:
        self.driver = driver
        self._before: dict[tuple[str, ...], _Answer] = {}
        self._now: dict[tuple[str, ...], _Answer] = {}

    def begin(self) -> None:
        """From now on another plan asks."""
        self._before, self._now = self._now, {}

    def selects(self, selectors: Sequence[Selector], device: DeviceValue) -> bool | Failure:
        """Whether all selectors match the device. Like the scheduler's, the answer ends at the first one that does not."""
        published = device.published
        key = (published.name, *(one.expression for one in selectors))
        known = self._now.get(key) or self._before.get(key)
        if known is None or known.published != published:
            known = _Answer(published, _selects(selectors, device))
        self._now[key] = known
        return known.answer


def compiled(device_class: DeviceClass, where: str) -> tuple[Selector, ...] | ResourceProblem:
    """Return the selectors of the class, or what is wrong with the first one that the API server would refuse."""
    selectors: list[Selector] = []
    for index, one in enumerate(device_class.spec.selectors or ()):
        selector = _compiled(one.cel.expression if one.cel is not None else "")
        if isinstance(selector, _Wrong):
            return ResourceProblem(where, field_of(index), selector.found, selector.action)
        selectors.append(selector)
    return tuple(selectors)


# Each plan has the same classes, and to compile an expression takes longer than the rest of it.
@lru_cache(maxsize=256)
def _compiled(expression: str) -> Selector | _Wrong:
    try:
        with Work():
            selector = compile_selector(expression, _STORED)
            cost = selector.cost
    except CompileError as error:
        found = error.message.partition("\n")[0].removeprefix("ERROR: <input>:")
        advice = f" {error.hint}" if error.hint else ""
        return _Wrong(found, f"{_LOST}; correct the expression.{advice}")
    if cost > MAX_COST:
        return _Wrong(
            f"the API server estimates its cost as {cost}, and takes {MAX_COST} at most",
            f"{_LOST}; write an expression with fewer loops in each other, or with shorter lists",
        )
    return selector


def _selects(selectors: Sequence[Selector], device: DeviceValue) -> bool | Failure:
    for index, selector in enumerate(selectors):
        try:
            if not selector.matches(device):
                return False
        except EvaluationError as error:
            return Failure(index, str(error))
    return True


def field_of(index: int) -> str:
    """The path of a selector's expression in its class."""
    return f"spec.selectors[{index}].cel.expression"
