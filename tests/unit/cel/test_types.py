# SPDX-License-Identifier: Apache-2.0
"""Types are written in two ways, and declarations are read in one of them."""

import pytest

from dra_driver.cel import types
from dra_driver.cel.types import Kind, Type


@pytest.mark.parametrize(
    ("text", "in_messages"),
    [
        ("int", "int"),
        ("dyn", "dyn"),
        ("google.protobuf.Any", "any"),
        ("google.protobuf.Timestamp", "timestamp"),
        ("google.protobuf.Duration", "duration"),
        ("null_type", "null"),
        ("error", "!error!"),
        ("list(int)", "list(int)"),
        ("map(string, list(google.protobuf.Duration))", "map(string, list(duration))"),
        ("type(int)", "type(int)"),
        ("type", "type"),
        ("optional_type(dyn)", "optional_type(dyn)"),
        ("kubernetes.Quantity", "kubernetes.Quantity"),
        ("net.IP", "net.IP"),
        ("wrapper(int)", "wrapper(int)"),
    ],
)
def test_a_declared_type_is_read_and_written(text, in_messages):
    parsed = types.parse(text)
    assert (parsed.declared, str(parsed)) == (text, in_messages)


def test_one_capital_letter_stands_for_any_type():
    parsed = types.parse("map(K, list(int))")
    assert parsed == types.map_of(types.parameter("K"), types.list_of(types.INT))
    assert (parsed.declared, parsed.open, parsed.size) == ("map(<K>, list(int))", True, 4)
    assert types.renamed(parsed, {"K": types.STRING}).declared == "map(string, list(int))"
    assert types.renamed(types.INT, {}) is types.INT


@pytest.mark.parametrize("text", ["list(int))", "map(int, string) "])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(ValueError, match="a type is expected"):
        types.parse(text)


def test_kinds_of_types_without_parameters():
    assert types.parse("net.CIDR").kind is Kind.OPAQUE
    assert types.parse("kubernetes.Semver").kind is Kind.STRUCT
    assert types.parse("list(A)").kind is Kind.LIST


def test_a_wrapper_is_equal_to_its_primitive():
    assert types.wrapper_of(types.INT) == types.INT
    assert types.wrapper_of(types.INT).wrapper


def test_dyn_and_optional():
    assert [types.is_dyn(one) for one in (types.DYN, types.ANY, types.INT)] == [True, True, False]
    assert types.is_optional(types.optional_of(types.INT))
    assert not types.is_optional(Type(Kind.OPAQUE, "net.IP"))
    assert types.type_of(types.INT).declared == "type(int)"
