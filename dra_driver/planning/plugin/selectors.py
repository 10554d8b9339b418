# SPDX-License-Identifier: Apache-2.0
"""Which devices does a DeviceClass select? The question is the scheduler's, and so is the answer: the same CEL, on the published device.

If an expression fails on a device, the scheduler stops the whole pod. Here no pod waits, so the failure costs only what it
has to: the class does not get this device. It is told, because on the way of DRA pods of this class would be stuck.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dra_driver.cel.compile import Selector, compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import Environment
from dra_driver.cel.work import Work
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.planning.plugin.problems import ResourceProblem

_STORED = Environment(kind="StoredExpressions")
# Each scan plans again with the same classes, and to compile an expression takes longer than the rest of it.
_compiled = lru_cache(maxsize=256)(compile_selector)


@dataclass(frozen=True, slots=True)
class Failure:
    """The evaluation of one selector of a class failed on a device."""

    index: int
    reason: str


def compiled(device_class: DeviceClass, where: str) -> tuple[Selector, ...] | ResourceProblem:
    """Return the selectors of the class, or what is wrong with the first one that does not compile."""
    selectors: list[Selector] = []
    for index, one in enumerate(device_class.spec.selectors or ()):
        expression = one.cel.expression if one.cel is not None else ""
        try:
            with Work():
                selectors.append(_compiled(expression, _STORED))
        except CompileError as error:
            found = error.message.partition("\n")[0].removeprefix("ERROR: <input>:")
            advice = f" {error.hint}" if error.hint else ""
            action = f"the class offers nothing, all others do; correct the expression.{advice}"
            return ResourceProblem(where, field_of(index), found, action)
    return tuple(selectors)


def selects(selectors: Sequence[Selector], device: DeviceValue) -> bool | Failure:
    """Whether all selectors match the device. Like the scheduler's, the answer ends at the first one that does not."""
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
