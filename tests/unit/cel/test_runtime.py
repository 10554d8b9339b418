# SPDX-License-Identifier: Apache-2.0
"""What expressions give when they run, against the answers that Kubernetes 1.37 gave to the same ones.

runtime.jsonl holds the answers: `match`, the text of the `error`, or the text with which the program was `refused`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dra_driver.cel.checking.check import check
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact import evaluate
from dra_driver.cel.failures import EvaluationError, PlanError
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.model.api.resource_slice import Device

_ATTRIBUTES = {
    "s": {"string": "fish"},
    "i": {"int": 7},
    "b": {"bool": True},
    "v": {"version": "1.2.3"},
    "o.example/s": {"string": "x"},
    "ss": {"strings": ["a", "b"]},
    "ii": {"ints": [1, 2, 3]},
    "bb": {"bools": [True, False]},
    "vs": {"versions": ["1.0.0", "2.0.0"]},
    "neg": {"int": -5},
}
_CAPACITY = {
    "mem": {"value": "80Gi"},
    "n": {"value": "100m"},
    "big": {"value": "100Ti"},
    "o.example/z": {"value": "0"},
}
_DEVICE = DeviceValue(
    "d",
    msgspec.convert({"attributes": _ATTRIBUTES, "capacity": _CAPACITY}, type=Device),
)


def _rows() -> Iterator[dict[str, object]]:
    with Path(__file__).with_name("runtime.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _answer(expression: str, cost_limit: int | None) -> dict[str, object]:
    environment = Environment()
    checked = check(parse(expression, environment), environment)
    try:
        run = evaluate.program(checked, cost_limit)
    except PlanError as error:
        return {"refused": f"program instantiation failed: {error}"}
    try:
        return {"match": evaluate.as_bool(run(_DEVICE))}
    except EvaluationError as error:
        return {"error": str(error)}


def _wanted(row: dict[str, object]) -> dict[str, object]:
    return {key: row[key] for key in ("match", "error", "refused") if key in row}


@pytest.mark.parametrize("topic", sorted({str(row["topic"]) for row in _rows()}))
@pytest.mark.parametrize("cost_limit", [MAX_COST, None], ids=["counted", "not counted"])
def test_expressions_give_what_kubernetes_gives(topic: str, cost_limit: int | None) -> None:
    rows = [row for row in _rows() if row["topic"] == topic]
    if cost_limit is None:
        rows = [row for row in rows if "cost limit" not in str(row.get("error"))]

    found = [(row["expression"], _answer(str(row["expression"]), cost_limit)) for row in rows]

    assert found == [(row["expression"], _wanted(row)) for row in rows]
