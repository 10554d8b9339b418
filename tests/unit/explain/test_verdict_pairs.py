# SPDX-License-Identifier: Apache-2.0
"""Each verdict is provoked on a real cluster, or this fails; tests/e2e/test_explain.py plays what is counted here."""

from dra_driver.explain import verdict
from tests.e2e.verdict_pairs import PAIRS


def test_each_member_of_the_union_has_one_pair() -> None:
    paired = [pair.member.__name__ for pair in PAIRS]

    assert sorted(paired) == sorted(member.__name__ for member in verdict.members())


def test_of_each_pair_one_pod_is_placed_and_one_is_not() -> None:
    silent = [
        pair.member.__name__ for pair in PAIRS if not pair.pending.says + pair.pending.refused
    ]
    refused = [pair.member.__name__ for pair in PAIRS if pair.placed.says + pair.placed.refused]

    assert (silent, refused) == ([], [])


def test_the_two_of_a_pair_differ_in_what_is_there_or_in_what_is_asked() -> None:
    alike = [
        pair.member.__name__
        for pair in PAIRS
        if (pair.placed.given, pair.placed.subject) == (pair.pending.given, pair.pending.subject)
    ]

    assert alike == []
