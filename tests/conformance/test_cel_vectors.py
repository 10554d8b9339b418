# SPDX-License-Identifier: Apache-2.0
"""What each release of Kubernetes answered (conformance/cel/record.py), asked of us."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.testing.conformance import cel
from dra_driver.testing.conformance.verdicts import gist

KNOWN: dict[str, dict[str, list[str]]] = yaml.safe_load(
    (Path(__file__).parent / "known.yaml").read_text()
)
VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(VECTORS.glob("cel-1.*.jsonl"))
PART = 200


@cache
def vectors(path: Path) -> list[dict[str, Any]]:
    with path.open() as lines:  # splitlines() would part texts in JSON at other characters, too
        return [json.loads(line) for line in lines]


# Parts of some hundred cases, so that they spread over the processes that run tests.
PARTS = [(path, start) for path in FILES for start in range(0, len(vectors(path)), PART)]


@pytest.mark.parametrize(("path", "start"), PARTS, ids=lambda part: getattr(part, "stem", part))
def test_every_recorded_case_has_the_answer_of_its_release_but_for_those_that_are_known(
    path: Path, start: int
) -> None:
    minor = int(path.stem.rpartition(".")[2])
    cases = vectors(path)[start : start + PART]
    differing = {}
    for asked in cases:
        own = cel.answer(json.dumps(asked).encode(), minor=minor)
        if gist(own) != gist(asked["want"]):
            differing[asked["name"]] = (asked["expression"], asked["want"], own)
    known = known_of(path) & {asked["name"] for asked in cases}
    assert {name: case for name, case in differing.items() if name not in known} == {}
    assert known - set(differing) == set()  # these agree again: take them out of known.yaml


def known_of(path: Path) -> set[str]:
    return {name for names in KNOWN.get(path.stem, {}).values() for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_known_case_is_a_recorded_one(path: Path) -> None:
    assert known_of(path) - {asked["name"] for asked in vectors(path)} == set()


def test_every_release_has_recorded_cases() -> None:
    assert [path.stem for path in FILES] == [f"cel-1.{minor}" for minor in range(32, 38)]


def test_the_recorded_cases_of_the_newest_release_have_all_verdicts() -> None:
    wanted = [asked["want"] for asked in vectors(VECTORS / "cel-1.37.jsonl")]
    assert {gist(want)[0] for want in wanted} == {
        "true",
        "false",
        "run-time error",
        "compile error",
    }
