# SPDX-License-Identifier: Apache-2.0
"""The cost of an expression is the API server's number, on each release: recorded from its own code (`conformance/oracle`).

A line of costs.jsonl is an expression, its cost on the newest release in the stored environment, and where it differs
that of other releases; null where the expression does not compile.
"""

import json
from pathlib import Path

import pytest

from dra_driver.cel.checking.check import check
from dra_driver.cel.costs.estimate import cost
from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment

ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "costs.jsonl").read_text().splitlines()
]
KINDS = {"stored": "StoredExpressions", "new": "NewExpressions"}


def environment_of(named: str) -> Environment:
    release, kind = named.split()
    return Environment(int(release.removeprefix("1.")), KINDS[kind])


def highest(expression: str, environment: Environment) -> int | None:
    try:
        return cost(check(parse(expression, environment), environment), environment).high
    except CompileError:
        return None


@pytest.mark.parametrize("row", ROWS, ids=[row["expression"][:60] for row in ROWS])
def test_the_cost_is_the_one_of_the_api_server(row: dict) -> None:
    recorded = {named: found for named, found in row.items() if named != "expression"}
    found = {named: highest(row["expression"], environment_of(named)) for named in recorded}
    assert found == recorded


def test_the_least_cost_of_a_condition_is_that_of_its_first_part() -> None:
    environment = Environment()
    checked = check(parse("device.driver == 'a' || device.driver == 'b'", environment), environment)
    found = cost(checked, environment)
    assert (found.low, found.high) == (3, 6)
