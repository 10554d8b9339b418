# SPDX-License-Identifier: Apache-2.0
"""Turns: no subject and no namespace takes the time of the others, and what one does not use goes to the others."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from dra_driver.explain.outcome import Outcome, Report
from dra_driver.explain.turns import ENDLESS, Time, Told, by_turns

STEP = 0.01
ENDS = math.inf


def said(outcome: Outcome) -> Report:
    return Report(subject="", outcome=outcome, exit_code=0, summary="")


class Run:
    """Subjects, each with its namespace and the seconds that its search takes."""

    def __init__(self, subjects: Sequence[tuple[str, float]], seconds: float = 60.0) -> None:
        self.clock = 0.0
        self.needs = [needs for _, needs in subjects]
        self.turns: list[tuple[int, float]] = []
        told = by_turns([name for name, _ in subjects], self.explain, Time(self.now, seconds))
        self.told: Mapping[int, Told] = {one.place: one for one in told}
        assert sorted(self.told) == list(range(len(subjects)))

    def now(self) -> float:
        return self.clock

    def explain(self, place: int, stop: Callable[[], bool]) -> Report:
        begun = self.clock
        while not stop() and self.clock - begun < self.needs[place]:
            self.clock += STEP
        done = self.clock - begun >= self.needs[place]
        self.turns.append((place, round(self.clock - begun, 1)))
        return said("devices fit" if done else "could not tell")

    @property
    def answered(self) -> list[int]:
        return sorted(
            place
            for place, one in self.told.items()
            if one.report is not None and one.report.outcome == "devices fit"
        )


def test_quick_subjects_have_their_answer_after_any_number_of_slow_ones_of_another_namespace() -> (
    None
):
    for slow in (1, 6, 1000):
        run = Run([*[("aaa", ENDS)] * slow, *[("victim", 0.1)] * 12])
        assert run.answered == list(range(slow, slow + 12))
        assert 59.0 < run.clock < 61.0


def test_quick_subjects_have_their_answer_beside_a_slow_one_of_their_namespace() -> None:
    assert Run([("a", ENDS), *[("a", 0.1)] * 12]).answered == list(range(1, 13))


def test_what_is_left_goes_to_the_slow_ones() -> None:
    run = Run([("a", 40.0), ("b", 0.1)])
    assert run.answered == [0, 1]
    assert run.turns == [(0, 7.5), (1, 0.1), (0, 40.0)]
    assert Run([("a", 20.0), ("a", 20.0)]).answered == [0, 1]


def test_a_single_subject_has_all_the_time() -> None:
    run = Run([("a", 59.0)])
    assert (run.answered, run.turns) == ([0], [(0, 59.0)])


def test_many_ordinary_subjects_have_answers_until_the_time_is_over() -> None:
    """A search of two seconds is ordinary in a large cluster."""
    subjects = [(f"n{number}", 2.0) for number in range(100)]
    assert len(Run(subjects).answered) >= 20
    assert len(Run([("a", 2.0)] * 100).answered) >= 20
    assert len(Run([("a", 10.0)] * 100).answered) >= 3


def test_a_subject_that_had_no_quick_turn_comes_before_those_that_were_slow() -> None:
    run = Run([*[(f"s{number}", ENDS) for number in range(11)], ("victim", 1.0)])
    assert run.answered == [11]


def test_what_slow_subjects_took_is_counted_and_what_the_others_took_is_not() -> None:
    run = Run([("a", ENDS), ("b", 10.0), ("c", 0.1)])
    slow = {place: one.slow_seconds for place, one in run.told.items()}
    assert slow[2] == 0.0
    assert slow[1] == pytest.approx(sum(each for place, each in run.turns if place == 1), abs=0.1)
    assert slow[0] == pytest.approx(sum(each for place, each in run.turns if place == 0), abs=0.1)
    assert sum(slow.values()) < run.clock


def test_who_was_cut_short_by_the_end_of_the_time_had_no_turn() -> None:
    run = Run([(f"n{number}", ENDS) for number in range(12)])
    had = [place for place, one in run.told.items() if one.had_turn]
    last = run.turns[-1][0]
    assert had == [place for place, took in run.turns if took >= 15.0 and place != last]
    assert had


def test_without_time_nobody_has_a_turn_and_without_an_end_everybody() -> None:
    over = Run([("a", 1.0), ("b", 1.0)], seconds=-1.0)
    assert over.told == {0: Told(0), 1: Told(1)}
    report = said("devices fit")
    told = list(by_turns(["a", "b"], lambda _place, stop: (stop(), report)[1], ENDLESS))
    assert told == [Told(0, report, 0.0, had_turn=True), Told(1, report, 0.0, had_turn=True)]
    assert list(by_turns([], lambda _place, _stop: report, ENDLESS)) == []


def test_an_answer_of_the_quick_turn_is_kept_if_the_long_turn_finds_out_less() -> None:
    clock = [0.0]
    outcomes: Iterator[Outcome] = iter(("devices do not fit", "devices fit", "could not tell"))

    def explain(place: int, stop: Callable[[], bool]) -> Report:
        while place == 0 and not stop():
            clock[0] += 1.0
        return said(next(outcomes))

    told = {one.place: one for one in by_turns(["a", "b"], explain, Time(lambda: clock[0], 60.0))}
    assert [one.report and one.report.outcome for one in (told[0], told[1])] == [
        "devices do not fit",
        "devices fit",
    ]
