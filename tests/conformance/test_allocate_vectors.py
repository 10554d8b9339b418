# SPDX-License-Identifier: Apache-2.0
"""Does the allocator answer what upstream's answered when the vectors were recorded?"""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.allocation.record import on_published_slices
from dra_driver.testing.conformance.allocate import answer, comparable

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(path.name for path in VECTORS.glob("allocate-*.jsonl"))


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_each_recorded_problem_is_answered_as_upstream_does(name: str) -> None:
    different = {}
    for vector in recorded(name):
        found, wanted = comparable(answer(vector)), comparable(vector["want"])
        if found != wanted:
            different[vector["name"]] = (found, wanted)
    assert different == {}


def test_the_vectors_have_all_implementations_satisfied_and_not_and_refused() -> None:
    vectors = [vector for name in FILES for vector in recorded(name)]
    outcomes = {
        (vector["impl"], vector["want"]["results"] is not None, vector["want"]["error"] != "")
        for vector in vectors
    }
    assert outcomes == {
        (implementation, satisfied, refused)
        for implementation in ("stable", "incubating", "experimental")
        for satisfied, refused in ((True, False), (False, False), (False, True))
    }
    assert len(vectors) > 1_000


def test_the_slices_of_the_driver_are_those_that_upstream_allocated_from() -> None:
    """If this fails, the driver publishes otherwise: record the vectors again, with Go."""
    recorded_slices = {
        vector["name"]: vector["slices"] for vector in recorded("allocate-published.jsonl")
    }
    made = {fact["name"]: fact["slices"] for fact in on_published_slices()}
    assert made == recorded_slices


def test_names_of_shares_and_empty_fields_do_not_matter_but_their_pattern_does() -> None:
    def shares(*names: str) -> dict[str, Any]:
        results = [{"shareID": name, "tolerations": []} for name in names]
        return {"results": [{"devices": {"results": results}}], "error": ""}

    assert comparable(shares("a", "b")) == comparable(shares("c", "d"))
    assert comparable(shares("a", "b")) != comparable(shares("c", "c"))
    assert comparable({"results": []}) != comparable({"results": None})
