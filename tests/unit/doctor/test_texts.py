# SPDX-License-Identifier: Apache-2.0
"""The table of `doctor`: each text is whole, each is used, and the page has them all."""

import ast
import re
from pathlib import Path

import pytest

from dra_driver.doctor.texts import CHECKS, TEXTS, gaps, sections

ROOT = Path(__file__).resolve().parents[3] / "dra_driver"
CODE = [*(ROOT / "doctor").glob("*.py"), *(ROOT / "cli").glob("doctor*.py")]


def calls(name: str) -> list[ast.Call]:
    trees = [ast.parse(path.read_text()) for path in CODE]
    return [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_whole(name: str) -> None:
    text = TEXTS[name]
    assert text.check in CHECKS
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert name not in CHECKS or name == text.check
    for words in (text.title, text.meaning, text.next_step):
        assert words
        assert not words.endswith(".")


def test_every_text_is_used() -> None:
    source = "".join(path.read_text() for path in CODE if not path.stem.endswith("texts"))
    assert [name for name in TEXTS if f'"{name}"' not in source] == []


def test_every_gap_of_a_command_is_filled() -> None:
    """Each call of `finding` gives exactly the gaps that the command of its text has."""
    seen = 0
    for call in calls("finding"):
        first = call.args[0]
        if isinstance(first, ast.Constant) and first.value in TEXTS:
            seen += 1
            given = {one.arg for one in call.keywords}
            assert given == gaps(TEXTS[first.value]), first.value
    assert seen > 25


def test_every_check_has_a_finding() -> None:
    assert {text.check for text in TEXTS.values()} == set(CHECKS)


def test_the_page_has_each_finding_once_and_its_command_with_gaps_in_capitals() -> None:
    page = sections()
    for name in TEXTS:
        assert page.count(f"\n### {name}\n") == 1
    assert "rmdir PATH && nvidia-smi -L" in page
    assert "{" not in page
