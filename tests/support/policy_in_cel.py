# SPDX-License-Identifier: Apache-2.0
"""The expressions of an admission policy of the chart, evaluated by the driver's own CEL.

What a request brings is bound as literals, and helm's part is filled in by hand.
"""

import json
import re
from typing import Any

import yaml

from dra_driver.cel.checking import check
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact import evaluate
from dra_driver.cel.syntax import parser
from dra_driver.cel.versions import Environment

NODE_NAME = "authentication.kubernetes.io/node-name"
NOBODY = DeviceValue("d")
ENVIRONMENT = Environment()
Object = dict[str, Any]


class Policy:
    """The first policy of a template, for one service account and driver. `more` has what else helm would fill in, by its words."""

    def __init__(self, template: str, *, account: str, driver: str, **more: str) -> None:
        self._account = account
        known = {"$account": account, ".Values.driverName": driver, **more}
        text = _filled_in(template, known)
        self.spec: Object = next(yaml.safe_load_all(text))["spec"]
        self._variables = {entry["name"]: entry["expression"] for entry in self.spec["variables"]}

    def refusals(
        self,
        operation: str,
        new: Object | None,
        old: Object | None = None,
        *,
        node: str,
        user: str = "",
    ) -> list[str]:
        """What each validation that fails says, in their order; nothing, if the policy does not look at the request.

        `node` is the one that the token names, if any; `user` asks, if not the driver's account.
        """
        extra = {"extra": {NODE_NAME: [node]}} if node else {}
        request = {"operation": operation, "userInfo": {"username": user or self._account, **extra}}

        def bound(expression: str) -> str:
            whole = self._with_variables(expression)
            for name, value in (("request", request), ("object", new), ("oldObject", old)):
                whole = f"cel.bind({name}, {_literal(value)}, {whole})"
            return whole

        def value(expression: str) -> Any:
            checked = check.check(parser.parse(bound(expression), ENVIRONMENT), ENVIRONMENT)
            return evaluate.program(checked)(NOBODY)

        conditions = [entry["expression"] for entry in self.spec["matchConditions"]]
        if not all(value(condition) for condition in conditions):
            return []
        failed = [
            entry for entry in self.spec["validations"] if value(entry["expression"]) is not True
        ]
        return [entry.get("message") or value(entry["messageExpression"]) for entry in failed]

    def _with_variables(self, expression: str) -> str:
        """The expression with those of the policy's variables that it needs bound around it."""
        needed: list[str] = []
        waiting = re.findall(r"\bvariables\.(\w+)", expression)
        while waiting:
            name = waiting.pop()
            needed = [name, *(known for known in needed if known != name)]
            waiting += re.findall(r"\bvariables\.(\w+)", self._variables[name])
        for name in reversed(needed):
            expression = f"cel.bind(variables_{name}, {self._variables[name]}, {expression})"
        return expression.replace("variables.", "variables_")


def _filled_in(template: str, values: dict[str, str]) -> str:
    """What helm would make of it, of the little that the policies use."""

    def fill(found: re.Match[str]) -> str:
        words, _, quoted = found[1].strip().partition(" | ")
        if words.startswith("printf"):
            text, *names = re.findall(r'"[^"]*"|\S+', words.removeprefix("printf "))
            words = text.strip('"') % tuple(values[name] for name in names)
        else:
            words = values.get(words, "filled-in")
        return json.dumps(words) if quoted == "quote" else words

    kept = re.sub(r"^ *\{\{-.*\}\}\n", "", template, flags=re.MULTILINE)
    return re.sub(r"\{\{(.*?)\}\}", fill, kept)


def _literal(value: object) -> str:
    """The value in CEL, each part of it of a type that only its use decides, as what a request brings is."""
    if isinstance(value, dict):
        entries = (f"{json.dumps(key)}: {_literal(entry)}" for key, entry in value.items())
        return f"dyn({{{', '.join(entries)}}})"
    if isinstance(value, list):
        return f"dyn([{', '.join(map(_literal, value))}])"
    return f"dyn({json.dumps(value)})"
