# SPDX-License-Identifier: Apache-2.0
"""Does a device match the CEL selectors of a class or a request?

The scheduler compiles the expressions in the mode for stored objects. If one does not compile, or its evaluation ends
with an error on one device, the scheduler stops the pod on all nodes: `AllocationError`. Each expression is compiled
once, and evaluated once for each device.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/allocator_*.go (selectorsMatch, lookupAttribute).
"""

from collections.abc import Sequence
from functools import lru_cache

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import AllocationCancelled, AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.requests import Request
from dra_driver.cel.cancellation import Cancelled, Check
from dra_driver.cel.compile import DerivedAttribute, Selector, compile_attribute, compile_selector
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import Environment, Features
from dra_driver.cel.work import Work
from dra_driver.model.api.resource_claim import DeviceSelector
from dra_driver.model.api.resource_slice import DeviceAttribute

_ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue())"
    " or guarding the check with has() for optional fields"
)


# Large enough for the expressions of a whole cluster. To compile one expression takes longer than a small allocation.
_compiled = lru_cache(maxsize=1024)(compile_selector)
_compiled_attribute = lru_cache(maxsize=1024)(compile_attribute)


@lru_cache(maxsize=4)
def _environment(consumable_capacity: bool, list_attributes: bool) -> Environment:  # noqa: FBT001 - lru_cache is faster with positional arguments
    features = Features(
        consumable_capacity=consumable_capacity, list_type_attributes=list_attributes
    )
    return Environment(features=features)


class Selectors:
    """Compiles expressions and evaluates them on devices. Each result is stored and used again."""

    def __init__(self, rules: Rules) -> None:
        self._environment = _environment(rules.consumable_capacity, rules.list_attributes)
        self._shares_are_known = rules.newer_than_stable
        self._selectors: dict[str, Selector] = {}
        self._derived: dict[str, DerivedAttribute] = {}
        self._attributes: dict[tuple[SliceDevice, str], DeviceAttribute] = {}

    def first_refusing(
        self,
        request: Request,
        selectors: Sequence[DeviceSelector],
        device: SliceDevice,
        cancelled: Check,
    ) -> int | None:
        """Return the index of the first selector that does not match the device. None if all match.

        Raises AllocationCancelled if `cancelled` returns True during a compilation or an evaluation, and AllocationError if a
        compilation or an evaluation fails.
        """
        for index, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel is not None else ""
            # Many claims use the same expression, so the result belongs to the device and not to the request.
            wanted = device.selected.get(expression)
            if wanted is None:
                of_class = selectors is request.class_selectors
                owner = (
                    f"class {request.device_class.metadata.name}"
                    if of_class
                    else f"claim {request.claim}"
                )
                wanted = self._ask(f"{owner}: selector #{index}", expression, device, cancelled)
                device.selected[expression] = wanted
            if not wanted:
                return index
        return None

    def derived_attribute(
        self, name: str, expression: str, device: SliceDevice, cancelled: Check
    ) -> DeviceAttribute:
        """Return the value of the derived attribute `name` of a request, for this device.

        Raises AllocationCancelled if `cancelled` returns True during the compilation or the evaluation, and AllocationError if
        one of them fails.
        """
        key = (device, expression)
        if key not in self._attributes:
            try:
                value = self._derive(expression, cancelled).value(device.value, cancelled)
            except Cancelled as error:
                raise AllocationCancelled from error
            except CompileError as error:
                raise AllocationError(
                    f"compile derived attribute {name} failed: {error.detail}"
                ) from error
            except EvaluationError as error:
                raise AllocationError(
                    f"evaluate derived attribute {name} on device {device.id} failed: {error}"
                ) from error
            self._attributes[key] = value
        return self._attributes[key]

    def _ask(self, where: str, expression: str, device: SliceDevice, cancelled: Check) -> bool:
        value = device.value if self._shares_are_known else device.value_of_one_claim
        if cancelled():
            raise AllocationCancelled
        try:
            return self._selector(expression, cancelled).matches(value, cancelled)
        except Cancelled as error:
            raise AllocationCancelled from error
        except CompileError as error:
            raise AllocationError(f"{where}: CEL compile error: {error.detail}") from error
        except EvaluationError as error:
            # Upstream searches the error for these words, too.
            advice = _ADVICE if "no such key:" in str(error) else ""
            raise AllocationError(
                f"{where} on device {device.id}: CEL runtime error: {error}{advice}"
            ) from error

    def _selector(self, expression: str, cancelled: Check) -> Selector:
        selector = self._selectors.get(expression)
        if selector is None:
            with Work(cancelled):
                selector = _compiled(expression, self._environment)
            self._selectors[expression] = selector
        return selector

    def _derive(self, expression: str, cancelled: Check) -> DerivedAttribute:
        if expression not in self._derived:
            with Work(cancelled):
                derived = _compiled_attribute(expression, self._environment)
            self._derived[expression] = derived
        return self._derived[expression]
