# SPDX-License-Identifier: Apache-2.0
"""What fits what, and what is learned of unknown types."""

import pytest

from dra_driver.cel import types
from dra_driver.cel.checking.unify import MAX_STEPS, Substitutions, TooManyStepsError, more_general
from dra_driver.cel.types import Type

A, B, C = (types.parameter(name) for name in "ABC")


def of(text: str) -> Type:
    return types.parse(text)


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        ("int", "int", True),
        ("int", "uint", False),
        ("int", "dyn", True),
        ("google.protobuf.Any", "int", True),
        ("error", "int", True),
        ("list(int)", "list(dyn)", True),
        ("list(int)", "list(string)", False),
        ("list(int)", "map(int, int)", False),
        ("map(string, int)", "map(string, dyn)", True),
        ("type(int)", "type(string)", True),
        ("type(int)", "int", False),
        ("int", "type(int)", False),
        ("null_type", "null_type", True),
        ("null_type", "int", False),
        ("null_type", "wrapper(int)", True),
        ("null_type", "google.protobuf.Duration", True),
        ("kubernetes.Quantity", "null_type", True),
        ("list(int)", "null_type", False),
        ("kubernetes.Quantity", "kubernetes.Semver", False),
        ("optional_type(int)", "optional_type(dyn)", True),
        ("optional_type(int)", "net.IP", False),
        ("net.IP", "net.IP", True),
    ],
)
def test_what_fits(given, wanted, fits):
    assert Substitutions().assignable(of(given), of(wanted)) is fits


def test_a_parameter_becomes_what_stands_for_it():
    known = Substitutions()
    assert known.assignable(types.INT, A)
    assert known.resolved(types.list_of(A)).declared == "list(int)"
    assert not known.assignable(types.STRING, A)
    assert known.assignable(A, types.INT)


def test_the_more_general_type_is_kept():
    known = Substitutions()
    assert known.assignable(of("list(int)"), A)
    assert known.assignable(of("list(dyn)"), A)
    assert known.resolved(A).declared == "list(dyn)"
    assert known.assignable(of("list(string)"), A)
    assert known.resolved(A).declared == "list(dyn)"


def test_a_failed_attempt_teaches_nothing():
    known = Substitutions()
    assert not known.all_assignable((types.INT, types.INT), (A, types.STRING))
    assert known.resolved(A) == A
    assert known.assignable(of("list(int)"), A)
    assert not known.all_assignable((of("list(dyn)"), types.INT), (A, types.STRING))
    assert known.resolved(A).declared == "list(int)"
    assert not known.all_assignable((types.INT,), (types.INT, types.INT))


def test_what_stays_unknown_becomes_dyn_in_the_end():
    known = Substitutions()
    assert known.assignable(types.list_of(B), A)
    assert known.resolved(of("map(string, A)")).declared == "map(string, list(<B>))"
    assert known.resolved(types.map_of(A, A), finally_=True).declared == (
        "map(list(dyn), list(dyn))"
    )


def test_no_type_contains_itself():
    known = Substitutions()
    assert not known.assignable(types.list_of(A), A)
    assert known.assignable(types.list_of(B), A)
    assert not known.assignable(types.map_of(A, A), B)
    assert known.assignable(A, types.parameter("A"))


def test_two_unknown_types_may_be_one():
    known = Substitutions()
    assert known.assignable(A, B)
    assert known.assignable(B, C)
    assert known.assignable(types.INT, C)
    assert known.resolved(types.list_of(A)).declared == "list(int)"


def test_a_general_type_that_contains_the_unknown_one_is_not_kept():
    known = Substitutions()
    assert known.assignable(of("map(int, dyn)"), A)
    assert known.assignable(types.map_of(types.DYN, A), A)
    assert known.resolved(A) == types.DYN


@pytest.mark.parametrize(
    ("one", "other", "general"),
    [
        ("dyn", "int", "dyn"),
        ("int", "dyn", "dyn"),
        ("int", "int", "int"),
        ("list(A)", "list(int)", "list(A)"),
        ("list(int)", "list(A)", "list(A)"),
        ("map(string, int)", "map(string, dyn)", "map(string, dyn)"),
        ("type(int)", "type(dyn)", "type(int)"),
        ("optional_type(dyn)", "net.IP", "net.IP"),
        ("net.IP", "net.CIDR", "net.CIDR"),
        ("kubernetes.Quantity", "null_type", "null_type"),
    ],
)
def test_of_two_types_the_one_that_says_less(one, other, general):
    assert more_general(of(one), of(other)) == of(general)


def test_types_that_grow_beyond_bounds_are_given_up():
    known = Substitutions()
    for index in range(40):
        inner = types.parameter(f"v{index + 1}")
        assert known.assignable(types.map_of(inner, inner), types.parameter(f"v{index}"))
    with pytest.raises(TooManyStepsError):
        known.resolved(types.parameter("v0"))


def test_comparing_without_end_is_given_up():
    known = Substitutions()
    many = [types.INT] * (MAX_STEPS + 1)
    with pytest.raises(TooManyStepsError):
        known.all_assignable(many, many)
