# SPDX-License-Identifier: Apache-2.0
"""Write tests/conformance/vectors/cel-*.jsonl: what the releases of Kubernetes answer.

    python -m conformance.cel.record [--seed N]

For the newest release a selection of everything: the facts of facts.yaml in all environments, the templates, and of
the random cases a few for each cell of the coverage table. For each older release the cases that it answers otherwise
than the next one. Devices are cut down to what the expression names, before the answer is recorded.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from conformance.cel.cases import Case, Cases, overload_cases
from conformance.cel.check import declared
from conformance.cel.rules import limit_cases, rule_cases
from conformance.cel.trees import leaf
from conformance.conversation import Line, Partner, PartnerFailed
from conformance.oracle.build import NEWEST, RELEASES, oracle_binary
from dra_driver.testing.conformance.verdicts import Answer, gist, texts, verdict

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "conformance" / "vectors"
WANTED = ("compileError", "cost", "match", "matchError")
LONGEST = 2000  # bytes of an expression that is worth a line in the tree
PART, SILENCE = 50, 5  # questions of one batch, and seconds that an oracle may think about one
EACH = 1  # vectors for each cell of the coverage table
EACH_DIFFERENCE = 2  # vectors for each focus that two releases answer differently


def main() -> int:
    """Ask all oracles, write all files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    cases = Cases(declared(oracle_binary()), random.Random(seed))
    pool = [*facts(), *(cut_down(case) for case in _pool(cases))]
    rest = [
        cut_down(cases.random_case()) for _ in range(1000)
    ]  # some of these take old releases minutes
    newer = ask(NEWEST, [*pool, *rest])
    write(NEWEST, zip([*pool, *rest], newer, strict=True), selection=_Selection(EACH))
    newer = newer[: len(pool)]
    for minor in sorted(set(RELEASES) - {NEWEST}, reverse=True):
        older = ask(minor, pool)
        differing = [
            (case, answer)
            for case, answer, other in zip(pool, older, newer, strict=True)
            if answer and other and gist(answer) != gist(other)
        ]
        write(minor, differing, selection=_Selection(EACH_DIFFERENCE))
        newer = older
    return 0


def facts() -> Iterator[Case]:
    """The facts, in every environment."""
    for number, fact in enumerate(
        yaml.safe_load((Path(__file__).parent / "facts.yaml").read_text())
    ):
        line: Line = {
            "expression": fact["e"],
            "driver": fact.get("driver", "dra.example.com"),
            "attributes": fact.get("a", {}),
            "capacity": fact.get("c", {}),
        }
        if "shared" in fact:
            line["allowMultipleAllocations"] = fact["shared"]
        for env in ("NewExpressions", "StoredExpressions"):
            for consumable in (False, True):
                for lists in (False, True):
                    gates = {
                        "EnableConsumableCapacity": consumable,
                        "EnableListTypeAttributes": lists,
                    }
                    name = (
                        f"fact-{number}-{env[:3].lower()}{'-shared' * consumable}{'-lists' * lists}"
                    )
                    asked = {"name": name, **line, "env": env, "features": gates}
                    yield Case(asked, leaf(fact["e"]), "fact", name)


def _pool(cases: Cases) -> Iterator[Case]:
    yield from rule_cases(cases, rounds=2)
    yield from (case for case in limit_cases(cases) if _is_cheap(case))
    yield from overload_cases(cases, rounds=4)


def _is_cheap(case: Case) -> bool:
    """Whether old releases can answer it: they need gigabytes for literals nested over a hundred deep."""
    return len(case.line["expression"]) <= LONGEST and not case.focus.startswith("nested")


def cut_down(case: Case) -> Case:
    """The case over a device that has only what the expression names."""
    line = dict(case.line)
    for part in ("attributes", "capacity"):
        kept = {
            name: value
            for name, value in line[part].items()
            if name.rpartition("/")[2] in line["expression"]
        }
        line[part] = kept
    return Case(line, case.tree, case.group, case.focus, case.aim)


def ask(minor: int, pool: Sequence[Case]) -> list[Answer | None]:
    """The answers of a release; None where it does not always say the same, or panics."""
    partner = Partner(str(oracle_binary(minor)), "cel", silence_seconds=SILENCE)
    lines = [dict(case.line) for case in pool]
    try:
        rounds = [_ask_by_parts(partner, lines) for _ in range(3)]
    finally:
        partner.close()
    return [_steady(answers) for answers in zip(*rounds, strict=True)]


def _ask_by_parts(partner: Partner, lines: list[Line]) -> list[Answer]:
    """The answers; what an old release never answers, because it runs out of time and memory, is a panic."""
    answers: list[Answer] = []
    for start in range(0, len(lines), PART):
        part = lines[start : start + PART]
        try:
            answers += partner.ask(part)
        except PartnerFailed:
            answers += _one_by_one(partner, part)
    return answers


def _one_by_one(partner: Partner, lines: list[Line]) -> list[Answer]:
    answers: list[Answer] = []
    for line in lines:
        try:
            answers += partner.ask([line])
        except PartnerFailed:
            answers.append({"compileError": "panic"})
    return answers


def _steady(answers: Sequence[Answer]) -> Answer | None:
    first = answers[0]
    unsure = any(texts(other) != texts(first) or gist(other) != gist(first) for other in answers)
    panics = (
        "panic" in str(first["compileError"])
        or first.get("matchError") == "timeout"
        or "cost" not in first
    )
    return None if unsure or panics else first


class _Selection:
    """Takes the first few of each kind; facts, templates and limits all."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.taken: Counter[tuple[str, ...]] = Counter()

    def takes(self, case: Case, answer: Answer) -> bool:
        if len(case.line["expression"]) > LONGEST:
            return False
        if case.group == "fact":
            return True
        kind = (
            case.group,
            case.focus,
            verdict(answer),
            *(() if case.group == "overload" else (str(gist(answer)),)),
        )
        self.taken[kind] += 1
        return self.taken[kind] <= self.each


def write(minor: int, answered: Iterable[tuple[Case, Any]], *, selection: _Selection) -> None:
    """The vectors of one release."""
    lines = [
        json.dumps(
            {**case.line, "want": {key: answer[key] for key in WANTED}},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for case, answer in answered
        if answer and selection.takes(case, answer)
    ]
    path = VECTORS / f"cel-1.{minor}.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    print(f"{path.name}: {len(lines)} vectors, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    raise SystemExit(main())
