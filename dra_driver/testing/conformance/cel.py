# SPDX-License-Identifier: Apache-2.0
"""One question about a CEL expression and a device. The answer has the estimated cost and whether the device matches, or the error.

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
    """One line of the input. Attributes and capacity are as in a ResourceSlice. Without `features` both gates are on."""

    expression: str
    name: str = ""
    driver: str = ""
    allow_multiple_allocations: bool | None = None
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    env: Literal["", "NewExpressions", "StoredExpressions"] = ""
    features: Gates | None = None

    def environment(self, minor: int) -> Environment:
        """Return the CEL environment of Kubernetes 1.`minor` that the question names."""
        gates = self.features or Gates(EnableConsumableCapacity=True, EnableListTypeAttributes=True)
        features = Features(
            consumable_capacity=gates.EnableConsumableCapacity,
            list_type_attributes=gates.EnableListTypeAttributes,
        )
        return Environment(minor=minor, kind=self.env or "StoredExpressions", features=features)

    def device(self, environment: Environment) -> DeviceValue:
        """Return the question's device as a CEL value of this environment."""
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
    """Return the answer to one question."""
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
    """Return the answer to an expression that does not compile, or to a line that is not a valid question."""
    return {"name": name, "compileError": reason, "cost": 0, "match": False, "matchError": None}
