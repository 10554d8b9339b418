# SPDX-License-Identifier: Apache-2.0
"""Names that clusters refer to stand in one module: dra_driver/model/names.py. No other module writes one out."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.model import names

ROOT = Path(__file__).resolve().parents[2]
HOME = Path("dra_driver/model/names.py")
TABLES = (names.TAINTS, names.LABELS, names.ANNOTATIONS, names.CONDITIONS, names.EVENT_REASONS)
FIXED = {named.name for table in TABLES for named in table}
REASON_AT = {"NodeEvent": 1, "say": 1}
"""The position of an Event's reason in the arguments of a call."""
NAMES_IN = {"DeviceTaint": "key", "Condition": "type"}
"""The keyword argument of a call that is one of these names."""

TOLD_BY = (*FIXED, names.DOMAIN, *(f"{called}(" for called in (*REASON_AT, *NAMES_IN)))
"""A module without any of these texts writes no name out: to parse all modules takes five seconds."""


def worth_reading(text: str) -> bool:
    return any(told in text for told in TOLD_BY)


def modules() -> dict[str, ast.Module]:
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted((ROOT / "dra_driver").rglob("*.py"))
        if path.relative_to(ROOT) != HOME and "pb" not in path.parts
    }
    return {path: ast.parse(text) for path, text in texts.items() if worth_reading(text)}


def docstrings(tree: ast.Module) -> set[ast.expr]:
    """Texts that are statements: docstrings of modules, functions and constants."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def written_out(tree: ast.Module) -> Iterator[int]:
    """The lines with a name that belongs into the one module."""
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            if node.value in FIXED or names.DOMAIN in node.value:
                yield node.lineno
        elif isinstance(node, ast.Call):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            given = (
                [node.args[REASON_AT[called]]] if len(node.args) > REASON_AT.get(called, 99) else []
            )
            given += [word.value for word in node.keywords if NAMES_IN.get(called) == word.arg]
            for value in given:
                if isinstance(value, ast.Constant | ast.JoinedStr):
                    yield value.lineno


def test_no_other_module_writes_such_a_name_out():
    found = {path: sorted(set(written_out(tree))) for path, tree in modules().items()}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code",
    [
        'x = "gpu.dra-driver.dev/other"',
        'x = f"gpu.dra-driver.dev/{name}"',
        'node.say(key, "NewReason", message)',
        'NodeEvent("Warning", "NewReason", message)',
        'DeviceTaint(key=f"{driver}/held", effect="NoSchedule")',
        'Condition(type="Ready")',
        'reason = "DevicesHeld"',
    ],
)
def test_the_search_finds_each_kind_of_name(code: str):
    assert worth_reading(code)
    assert list(written_out(ast.parse(code)))


def test_every_constant_of_the_module_is_in_a_table():
    tree = ast.parse((ROOT / HOME).read_text())
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    values = {getattr(names, name) for name in assigned if isinstance(getattr(names, name), str)}
    kinds = {getattr(names, name) for name in assigned if name.endswith("_KIND")}
    reasons = {
        names.VANISHED_REASON,
        names.UNHEALTHY_REASON,
        names.HELD_REASON,
        names.NOT_CLEAN_REASON,
        names.OCCUPIED_REASON,
    }
    others = {names.DOMAIN, names.DOCUMENT_VERSION, *reasons}
    assert values - FIXED == others | kinds
