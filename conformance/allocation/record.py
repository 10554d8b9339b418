# SPDX-License-Identifier: Apache-2.0
"""Records what upstream answers to chosen allocation problems: python -m conformance.allocation.record

Facts and limits are recorded for each implementation that has their features; of random problems those that have
pairs of features that no earlier one had. A problem to which upstream has several answers is left out. Lines are the questions of the conformance door, with
upstream's answer as `want`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from conformance.allocation import (
    facts,
    gated_facts,
    limits,
    packing_facts,
    problems,
    published_facts,
)
from conformance.allocation.compare import Oracle, as_line
from conformance.allocation.features import PAIRS, SUPPORTED, features_of
from conformance.oracle.build import oracle_binary

Json = dict[str, Any]

VECTORS = Path(__file__).resolve().parents[2] / "tests" / "conformance" / "vectors"
SEED, DRAWN = 7, 4_000
NEW_PAIRS = 4  # fewer are not worth a line


def main() -> None:
    """Write the four files."""
    oracle = Oracle(oracle_binary())
    VECTORS.mkdir(parents=True, exist_ok=True)
    parts = (facts, gated_facts, packing_facts)
    all_facts = [fact for part in parts for fact in part.facts()]
    _write(oracle, "facts", (each for fact in all_facts for each in _everywhere(fact)))
    _write(oracle, "published", on_published_slices())
    _write(oracle, "limits", _limits())
    _write(oracle, "random", _chosen())
    oracle.close()


def on_published_slices() -> Iterator[Json]:
    """What is allocated from slices that this driver makes."""
    return (each for fact in published_facts.facts() for each in _everywhere(fact))


def _everywhere(fact: Json) -> Iterator[Json]:
    """The fact for each implementation that has its features."""
    for implementation, gates in SUPPORTED.items():
        if gates.issuperset(fact["features"]):
            name = f"{fact['name']}, {implementation}"
            yield fact | {"name": name, "impl": implementation}


def _limits() -> Iterator[Json]:
    """For the oldest and the newest implementation; they are long."""
    for _, _, problem in limits.problems():
        if problem["impl"] != "incubating":
            yield problem


def _chosen() -> Iterator[Json]:
    """Random problems, each with some pairs of features that the ones before did not have."""
    seen: set[tuple[str, str]] = set()
    for problem in problems.problems(SEED, DRAWN):
        used = features_of(problem)
        new = {pair for pair in PAIRS if used.issuperset(pair)} - seen
        if len(new) >= NEW_PAIRS:
            seen |= new
            yield problem


def _write(oracle: Oracle, name: str, problems: Iterable[Json]) -> None:
    lines = [
        as_line(problem, oracle.ask([problem])[0])
        for problem in problems
        if oracle.always_answers(problem)
    ]
    path = VECTORS / f"allocate-{name}.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines):6} {path.stat().st_size:9,} bytes {path.name}")


if __name__ == "__main__":
    main()
