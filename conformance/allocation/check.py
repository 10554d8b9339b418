# SPDX-License-Identifier: Apache-2.0
"""Does our allocator answer as upstream's does? Random problems and those around the limits, and what they exercise.

`run` prints what was covered as tables and each difference as the smallest problem that still has it, written as a line
that can be recorded. It answers False when there is a difference, or when something that should be covered was not.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from conformance.allocation import limits, problems
from conformance.allocation.compare import (
    Oracle,
    as_line,
    backtracked,
    kind_of_error,
    outcome,
)
from conformance.allocation.features import FEATURES, PAIRS, features_of
from conformance.allocation.shrink import shrink
from conformance.conversation import OURS, Partner, PartnerFailed
from dra_driver.testing.conformance.allocate import comparable

Json = dict[str, Any]

BATCH = 500
SHOWN = 10  # differences that are shrunk and shown
LEAST_SHARE = 0.3
SHADES = ((1000, "6"), (300, "5"), (100, "4"), (30, "3"), (10, "2"), (1, "1"), (0, "."))


class Coverage:
    """What the problems asked were like."""

    def __init__(self) -> None:
        self.asked = 0
        self.outcomes: Counter[str] = Counter()
        self.implementations: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.together: Counter[tuple[str, str]] = Counter()
        self.satisfied_together: Counter[tuple[str, str]] = Counter()
        self.features: Counter[str] = Counter()
        self.backtracked: Counter[str] = Counter()

    def add(self, problem: Json, answer: Json) -> None:
        """One more."""
        self.asked += 1
        self.outcomes[outcome(answer)] += 1
        self.implementations[problem["impl"]] += 1
        if answer["error"]:
            self.errors[kind_of_error(answer["error"])] += 1
        self.backtracked[outcome(answer)] += backtracked(problem, answer)
        used = features_of(problem)
        self.features.update(used)
        pairs = [pair for pair in PAIRS if used.issuperset(pair)]
        self.together.update(pairs)
        if answer["results"]:
            self.satisfied_together.update(pairs)

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Pairs that no problem had."""
        return [pair for pair in PAIRS if not self.together[pair]]

    def show(self) -> bool:
        """Print it; answers whether it is enough."""
        satisfied = self.outcomes["satisfied"] / self.asked
        back = self.backtracked.total() / self.asked
        print(f"\n{self.asked:,} random allocation problems: {dict(self.implementations)}")
        print(f"  satisfied {satisfied:.1%} (at least {LEAST_SHARE:.0%}), {dict(self.outcomes)}")
        print(
            f"  took something back {back:.1%} (at least {LEAST_SHARE:.0%}), {dict(self.backtracked)}"
        )
        print("\nKinds of errors:")
        for text, count in self.errors.most_common():
            print(f"  {count:6} {text}")
        self._show_pairs()
        never = [pair for pair in PAIRS if not self.satisfied_together[pair]]
        print(f"\n{len(PAIRS) - len(self.missing)} of {len(PAIRS)} pairs of features together,")
        print(f"  {len(PAIRS) - len(never)} of them in a problem that was satisfied")
        for pair in self.missing:
            print(f"  NEVER TOGETHER: {' + '.join(pair)}")
        return not self.missing and min(satisfied, back) >= LEAST_SHARE

    def _show_pairs(self) -> None:
        print(
            "\nFeatures in one problem: . none, 1 some, 2 ten, 3 thirty, 4 a hundred, 5 three hundred, 6 a thousand"
        )
        names = list(FEATURES)
        print(" " * 32 + "".join(str(number // 10) for number in range(len(names))))
        print(" " * 32 + "".join(str(number % 10) for number in range(len(names))))
        for number, name in enumerate(names):
            row = [self.together[other, name] for other in names[:number]] + [self.features[name]]
            print(f"{number:3} {name:28}" + "".join(map(_shade, row)))


def _shade(count: int) -> str:
    return next(shade for least, shade in SHADES if count >= least)


class Comparison:
    """Both sides, and where they differ."""

    def __init__(self, oracle: Path) -> None:
        self.oracle = Oracle(oracle)
        self.ours = Partner(*OURS, "allocate")
        self.differences: list[tuple[Json, Json, Json]] = []
        self.several_answers = 0
        self.timeouts = 0

    def ask(self, problems: Sequence[Json]) -> list[Json]:
        """The oracle's answers; differences are kept."""
        theirs = self.oracle.ask(problems)
        for problem, wanted, found in zip(problems, theirs, self._ask_ours(problems), strict=True):
            if wanted["error"] == "timeout":
                self.timeouts += 1
            elif self._differs(problem, wanted, found):
                self.differences.append((problem, wanted, found))
        return theirs

    def show(self) -> bool:
        """Print the differences as small as they get; answers whether there are none."""
        print(
            f"\n{len(self.differences)} differences; {self.several_answers} problems to which the oracle"
        )
        print(f"  has several answers, ours among them; {self.timeouts} where it gave up")
        seen: set[str] = set()
        for problem, wanted, found in self.differences:
            kind = f"{outcome(wanted)} {kind_of_error(wanted['error'])} / {outcome(found)} {kind_of_error(found['error'])}"
            if kind in seen or len(seen) >= SHOWN:
                continue
            seen.add(kind)
            self._show_one(problem)
        return not self.differences

    def _show_one(self, problem: Json) -> None:
        smallest = shrink(problem, self._still_differs)
        wanted, found = self.oracle.ask([smallest])[0], self._ask_ours([smallest])[0]
        print(f"\nDIFFERENT: {problem['name']}, shrunk:")
        print(as_line(smallest, wanted))
        print(
            f"  oracle: {json.dumps(comparable(wanted))}\n  ours:   {json.dumps(comparable(found))}"
        )

    def _ask_ours(self, problems: Sequence[Json]) -> list[Json]:
        try:
            return self.ours.ask(problems)
        except PartnerFailed as failed:
            return [{"results": None, "error": f"no answer: {failed}"} for _ in problems]

    def _differs(self, problem: Json, wanted: Json, found: Json) -> bool:
        if comparable(wanted) == comparable(found):
            return False
        if self.oracle.could_answer(problem, found):
            self.several_answers += 1
            return False
        return True

    def _still_differs(self, problem: Json) -> bool:
        wanted, found = self.oracle.ask([problem])[0], self._ask_ours([problem])[0]
        if wanted["error"] == "timeout" or wanted["error"].startswith(("malformed", "panic")):
            return False
        return comparable(wanted) != comparable(found) and not self.oracle.could_answer(
            problem, found
        )

    def close(self) -> None:
        """End both sides."""
        self.oracle.close()
        self.ours.close()


def run(oracle: Path, *, size: int, seed: int) -> bool:
    """Compare so many random problems, and those around the limits."""
    comparison = Comparison(oracle)
    coverage = Coverage()
    try:
        limits_hold = _limits(comparison)
        random = problems.problems(seed, size)
        for batch in _batches(random):
            for problem, answer in zip(batch, comparison.ask(batch), strict=True):
                coverage.add(problem, answer)
        covered = coverage.show()
        return comparison.show() and covered and limits_hold
    finally:
        comparison.close()


def _batches(problems: Iterable[Json]) -> Iterable[list[Json]]:
    problems = iter(problems)
    while batch := list(islice(problems, BATCH)):
        yield batch


def _limits(comparison: Comparison) -> bool:
    """What the oracle says around each limit, as a table."""
    asked = list(limits.problems())
    answers = comparison.ask([problem for _, _, problem in asked])
    found: dict[str, dict[str, set[str]]] = {}
    for (limit, where, _), answer in zip(asked, answers, strict=True):
        told = kind_of_error(answer["error"])[:40] or outcome(answer)
        found.setdefault(limit.what, {}).setdefault(where, set()).add(told)
    print(f"\n{len(found)} limits, below | at | above:")
    for what, places in found.items():
        told = " | ".join("; ".join(sorted(places[where])) for where in ("below", "at", "above"))
        print(f"  {what}: {told}")
    return bool(found)
