# SPDX-License-Identifier: Apache-2.0
"""What of a message may stand in an Event, and how long did it take?"""

import pytest

from dra_driver.cli.pending_decisions import Spent, without_others


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("held by b/x", "held by another namespace"),
        ("held by claims b/x, a/y, b/z.1, c/d, … (9 claims)",
         "held by claims another namespace, a/y, another namespace, … (9 claims)"),
        ("(claim b/x is being deleted since now)", "(claim another namespace is being deleted since now)"),
        ("(claim b/x is being deleted since T, kept by finalizer ask/team-b)",
         "(claim another namespace is being deleted since T, kept by 1 finalizer)"),
        ("(claim b/x is being deleted since T, kept by finalizers e/f, e/g)",
         "(claim another namespace is being deleted since T, kept by 2 finalizers)"),
        ("(claim a/x is being deleted since T, kept by finalizer ask/team-b)",
         "(claim a/x is being deleted since T, kept by finalizer ask/team-b)"),
        ("(claim b/x is being deleted since T, kept by finalizers orphan, e/f, e/g, e/h, … (1,000 finalizers); pod b/y is being deleted since T, kept by finalizer orphan)",
         "(claim another namespace is being deleted since T, kept by finalizers orphan and 999 more; pod another namespace is being deleted since T, kept by finalizer orphan)"),
        ("1 device (gpu.example.com/b/x): e/f", "1 device (gpu.example.com/b/x): e/f"),
    ],
)  # fmt: skip
def test_names_of_others_are_found_wherever_they_are(message: str, shown: str) -> None:
    assert without_others(message, "a", {"a", "b", "c"}) == shown


def test_time_is_counted_for_the_namespace_of_the_pod_that_is_looked_at() -> None:
    now = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    spent = Spent(lambda: next(now))
    for namespace in ("a", "b", "a", "", "a", ""):
        spent.at(namespace)
    assert spent.seconds == {"a": 1.0 + 4.0 + 16.0, "b": 2.0}
