# SPDX-License-Identifier: Apache-2.0
"""What does an expression cost, and does it match a device? One question and its answer.

In:  {"name", "expression", "driver", "allowMultipleAllocations", "attributes", "capacity", "env", "features"}
Out: {"name", "compileError", "cost", "match", "matchError"}
"""

from typing import Literal

import msgspec

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import NEWEST, Environment, Features
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from dra_driver.testing.conformance.lines import Answer


class Gates(msgspec.Struct, frozen=True):
    """The two feature gates, named as upstream's struct has them."""

    EnableConsumableCapacity: bool = False
    EnableListTypeAttributes: bool = False


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """One line; attributes and capacity as in a ResourceSlice. No `features`: all are on."""

    expression: str
    name: str = ""
    driver: str = ""
    allow_multiple_allocations: bool | None = None
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    env: Literal["", "NewExpressions", "StoredExpressions"] = ""
    features: Gates | None = None

    def environment(self, minor: int) -> Environment:
        """The CEL that was asked for, of Kubernetes 1.`minor`."""
        gates = self.features or Gates(EnableConsumableCapacity=True, EnableListTypeAttributes=True)
        features = Features(
            consumable_capacity=gates.EnableConsumableCapacity,
            list_type_attributes=gates.EnableListTypeAttributes,
        )
        return Environment(minor=minor, kind=self.env or "StoredExpressions", features=features)

    def device(self, environment: Environment) -> DeviceValue:
        """The device that was given, as that environment sees it."""
        return DeviceValue(
            self.driver,
            Device(
                attributes=self.attributes,
                capacity=self.capacity,
                allow_multiple_allocations=self.allow_multiple_allocations,
            ),
            list_values=environment.list_values,
        )


_questions = msgspec.json.Decoder(Question)


def answer(line: bytes, *, minor: int = NEWEST) -> Answer:
    """The answer to one line."""
    asked = _questions.decode(line)
    environment = asked.environment(minor)
    try:
        selector = compile_selector(asked.expression, environment)
    except CompileError as error:
        return refusal(asked.name, error.detail)
    found: Answer = {
        "name": asked.name,
        "compileError": None,
        "cost": selector.cost,
        "match": False,
        "matchError": None,
    }
    try:
        found["match"] = selector.matches(asked.device(environment))
    except EvaluationError as error:
        found["matchError"] = str(error)
    return found


def refusal(name: str, reason: str) -> Answer:
    """The answer to what does not compile, or is no question at all."""
    return {"name": name, "compileError": reason, "cost": 0, "match": False, "matchError": None}
