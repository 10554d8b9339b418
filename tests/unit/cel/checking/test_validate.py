# SPDX-License-Identifier: Apache-2.0
"""Literals that say nothing where they stand; the API server's words for the rest are in test_verdicts.py."""

import pytest

from dra_driver.cel.checking.check import check
from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment

NOW = Environment()


def problems(expression: str) -> list[str]:
    try:
        check(parse(expression, NOW), NOW)
    except CompileError as error:
        lines = error.message.split("\n")
        return [line.split(" ", 2)[2] for line in lines if line.startswith("ERROR")]
    return []


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("[1, dyn(1)]", ["expected type 'int' but found 'dyn'"]),
        ("[1, 'a', 'b']", ["expected type 'int' but found 'string'"]),
        (
            "{1: 1, 'a': 'a'}",
            ["expected type 'int' but found 'string'", "expected type 'int' but found 'string'"],
        ),
        ("[?optional.of(1), 2]", []),
        ("{?1: optional.of(1), 2: 2}", []),
        ("'%s%s'.format([1, 'a'])", []),
        ("'%s%s'.format([1, ['a', 2]])", []),
        ("size([1, 'a']) == 1", ["expected type 'int' but found 'string'"]),
        ("duration('1h')", []),
        ("duration('1')", ["invalid duration argument"]),
        ("duration(null)", ["invalid duration argument"]),
        ("duration(device.driver)", []),
        ("timestamp('2026-01-31T12:00:00Z')", []),
        ("timestamp('2026-01-32T12:00:00Z')", ["invalid timestamp argument"]),
        ("timestamp(253402300800)", ["invalid timestamp argument"]),
        ("timestamp(253402300799)", []),
        ("timestamp(null)", ["invalid timestamp argument"]),
        ("'a'.matches('[')", ["invalid matches argument"]),
        ("'a'.matches(device.driver)", []),
        ("matches('[', 'a')", ["invalid matches argument"]),
        ("'%d'.format([device.driver])", ["error during formatting: decimal clause can only be used on integers, was given string"]),
        ("'%s'.format([quantity('1')])", ["error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity"]),
        ("'%s%%%s'.format([1])", ["index 1 out of range"]),
        ("'a%'.format([1])", ["unexpected end of string"]),
        ("'a'.format([1])", ["too many arguments supplied to string.format (expected 0, got 1)"]),
        ("'%.f'.format([1.0])", ['could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax']),
        ("'%.9'.format([1.0])", ["could not parse formatting clause: error while parsing precision: could not find end of precision specifier"]),
        ("'%z'.format([1.0])", ['could not parse formatting clause: unrecognized formatting clause "z"']),
        ("device.driver.format([1])", []),
        ("'%d'.format(dyn(['a']))", []),
    ],
)  # fmt: skip
def test_literals(expression, wanted):
    assert problems(expression) == wanted


@pytest.mark.parametrize("expression", ["[?dyn(optional.of(1))]", "{?1: dyn(optional.of(1))}"])
def test_an_optional_of_no_known_type_is_refused_as_the_api_server_falls_over_it(expression):
    assert problems(expression) == [
        "an element marked with ? must have the type optional_type, not dyn"
    ]
