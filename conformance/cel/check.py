# SPDX-License-Identifier: Apache-2.0
"""Does our CEL say what Kubernetes says? Random cases, asked of the oracle and of us.

`run` asks until `size` cases are answered, aiming more and more at the cells of the coverage table that are still
empty; it fails where answers differ and where a cell stays empty. The oracle walks over maps in random order, so an
answer that it gives only sometimes is no difference: it is asked again before anything is reported.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from conformance.cel import rules
from conformance.cel.cases import Case, Cases
from conformance.cel.coverage import Coverage
from conformance.cel.declarations import Declarations, read
from conformance.cel.shrink import shrink
from conformance.conversation import OURS, Line, Partner
from dra_driver.testing.conformance.verdicts import (
    REFUSED,
    VERDICTS,
    Answer,
    gist,
    same,
    texts,
    verdict,
)

BATCH = 1000
AGAIN = 8  # times that the oracle is asked again about a difference
# What we refuse on purpose, and say so; Kubernetes takes it.
DELIBERATE = (
    "messages of type google.protobuf.",
    "the pattern takes more than ",
    "the pattern is too large to be searched in ",
)
FURTHER = 20  # batches for what chance has left empty after the last of a run
SHRUNK = 25  # differences of different kinds that are shrunk


@dataclass
class Comparison:
    """The oracle and us, side by side."""

    oracle: Partner
    ours: Partner
    equal_texts: Counter[bool] = field(default_factory=Counter)
    deliberate: int = 0

    def ask(self, questions: Sequence[Line]) -> list[tuple[Answer, Answer]]:
        """The oracle's answer and ours for each question."""
        with ThreadPoolExecutor(2) as both:
            theirs = both.submit(self.oracle.ask, questions)
            own = both.submit(self.ours.ask, questions)
            return list(zip(theirs.result(), own.result(), strict=True))

    def differing(self, questions: Sequence[Line]) -> list[bool]:
        """For each question whether the answers differ, as far as one round tells."""
        return [not same(theirs, own) for theirs, own in self.ask(questions)] if questions else []

    def really(self, question: Line, own: Answer) -> bool:
        """Whether the oracle never gives our answer."""
        return not any(same(theirs, own) for theirs in self.oracle.ask([question] * AGAIN))

    def close(self) -> None:
        """End both."""
        self.oracle.close()
        self.ours.close()


@dataclass
class Differences:
    """Those found, by their kind; of each kind the first is kept to be shrunk."""

    kinds: Counter[str] = field(default_factory=Counter)
    first: dict[str, Case] = field(default_factory=dict)

    def add(self, case: Case, theirs: Answer, own: Answer) -> None:
        """One more."""
        kind = _kind(theirs, own)
        self.kinds[kind] += 1
        if kind not in self.first or len(str(case.tree)) < len(str(self.first[kind].tree)):
            self.first[kind] = case


def _kind(theirs: Answer, own: Answer) -> str:
    if str(own["compileError"]).startswith("internal error"):
        return str(own["compileError"])
    if verdict(theirs) == verdict(own) != REFUSED and theirs["cost"] != own["cost"]:
        return "cost"
    return f"{gist(theirs)[0::2]} {gist(theirs)[3]} / {gist(own)[0::2]} {gist(own)[3]}"


def run(oracle: Path, *, size: int, seed: int) -> bool:
    """Ask `size` questions; True if all was well."""
    comparison = Comparison(Partner(str(oracle), "cel"), Partner(*OURS, "cel"))
    try:
        return _run(comparison, oracle, size=size, seed=seed)
    finally:
        comparison.close()


def _run(comparison: Comparison, oracle: Path, *, size: int, seed: int) -> bool:
    declarations = declared(oracle)
    cases = Cases(declarations, random.Random(seed))
    coverage, differences = Coverage(declarations), Differences()
    begun = time.monotonic()
    for batch in batches(cases, coverage, oracle, size):
        answers = comparison.ask([dict(case.line) for case in batch])
        for case, (theirs, own) in zip(batch, answers, strict=True):
            coverage.add(case, verdict(theirs))
            comparison.equal_texts[texts(theirs) == texts(own)] += 1
            said = f"{own['compileError']} {own['matchError']}"
            if any(text in said for text in DELIBERATE):
                comparison.deliberate += 1
            elif not same(theirs, own) and comparison.really(dict(case.line), own):
                differences.add(case, theirs, own)
    print(coverage.table())
    print(
        f"\nCEL: {coverage.summary()} in {time.monotonic() - begun:.0f} s, seed {seed}; same error texts: "
        f"{comparison.equal_texts[True]} of {comparison.equal_texts.total()};"
        f" refused on purpose: {comparison.deliberate}"
    )
    report(differences, comparison)
    gaps = list(coverage.gaps())
    for gap in gaps:
        print("never reached:", *gap, sep="  ")
    return not gaps and not differences.kinds


def declared(oracle: Path) -> Declarations:
    """What the oracle's scheduler declares."""
    partner = Partner(str(oracle), "declarations")
    try:
        return read(partner.ask([{"name": "declarations"}])[0])
    finally:
        partner.close()


def batches(cases: Cases, coverage: Coverage, oracle: Path, size: int) -> Iterator[list[Case]]:
    """All cases; those that are made without chance first, then by what is still missing."""
    fixed = [
        *rules.rule_cases(cases, rounds=2),
        *rules.limit_cases(cases),
        *run_time_costs(cases, oracle),
    ]
    source = iter(fixed)
    while batch := list(islice(source, BATCH)):
        yield batch
    asked = len(fixed)
    while asked < size:
        batch = list(islice(_wanted(cases, coverage), min(BATCH, size - asked)))
        asked += len(batch)
        yield batch
    for _ in range(FURTHER):
        if batch := list(_for_gaps(cases, coverage, attempts=50)):
            yield batch


def _wanted(cases: Cases, coverage: Coverage) -> Iterator[Case]:
    """First the gaps, several times each; then overloads, rules and random ones in turn."""
    yield from _for_gaps(cases, coverage, attempts=3)
    overloads = list(coverage.overloads.values())
    while True:
        for _ in range(6):
            yield cases.overload_case(cases.chance.choice(overloads), cases.chance.choice(VERDICTS))
        yield rules.random_rule_case(cases)
        for _ in range(3):
            yield cases.random_case()


def _for_gaps(cases: Cases, coverage: Coverage, *, attempts: int) -> Iterator[Case]:
    """For each cell that is empty still."""
    for group, focus, aim in list(coverage.gaps()):
        for _ in range(attempts):
            if group == "overload":
                yield cases.overload_case(coverage.overloads[focus], aim)
            elif group in ("macro", "absorption"):
                table = rules.MACROS if group == "macro" else rules.ABSORPTION
                yield rules.rule_case(cases, group, focus, cases.chance.choice(table[focus]))


def run_time_costs(cases: Cases, oracle: Path) -> Iterator[Case]:
    """For each template sizes whose counted cost is just below, at and just above the limit."""
    partner = Partner(str(oracle), "cel", "-details")
    try:
        templates = rules.RUN_TIME_COST
        probes = [(1000, 2000)] * len(templates)
        cost = [
            [
                answer.get("actualCost")
                for answer in partner.ask([_probe(cases, template, at) for at in sizes])
            ]
            for template, sizes in zip(templates, probes, strict=True)
        ]
    finally:
        partner.close()
    for template, (low, high) in zip(templates, cost, strict=True):
        if low and high:
            slope = (high - low) / 1000
            fits = int((rules.MOST_COST - low) / slope) + 1000
            for size in range(fits - 1, fits + 3):
                yield rules.run_time_cost_case(cases, template, size)


def _probe(cases: Cases, template: str, size: int) -> Line:
    return dict(rules.run_time_cost_case(cases, template, size).line)


def report(differences: Differences, comparison: Comparison) -> None:
    """Print how many differences there are of each kind, and one small case of each."""
    for kind, count in differences.kinds.most_common(SHRUNK):
        case = differences.first[kind]
        line = shrink(dict(case.line), case.tree, comparison.differing)
        theirs, own = comparison.ask([line])[0]
        print(f"\nDIFFERENCE ({count} like it): {line['expression']}")
        print(f"  oracle {_shown(theirs)}\n  ours   {_shown(own)}")
        print(f"  {vector(line, theirs)}")
    if differences.kinds:
        print(f"\n{differences.kinds.total()} differences of {len(differences.kinds)} kinds")


def _shown(answer: Answer) -> str:
    text = answer["compileError"] or answer.get("matchError") or ""
    return f"{verdict(answer)}, cost {answer.get('cost')}: {text!r:.300}"


def vector(line: Line, theirs: Answer) -> str:
    """The case as a line of a vector file."""
    want = {key: theirs.get(key) for key in ("compileError", "cost", "match", "matchError")}
    return json.dumps({**line, "want": want}, ensure_ascii=False)
