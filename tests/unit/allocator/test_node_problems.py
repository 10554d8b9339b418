# SPDX-License-Identifier: Apache-2.0
"""The words for node selectors that no API server accepts."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator.node_problems import integer, quoted, selector_problems
from dra_driver.model.api.core import NodeSelector

AT = "nodeSelectorTerms[0].matchExpressions[0]"
NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc',"
    " regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def problems(kind: str, key: str, operator: str, values: list[str] | None = None) -> list[str]:
    requirement: dict[str, Any] = {"key": key, "operator": operator, "values": values}
    selector = {"nodeSelectorTerms": [{kind: [requirement]}]}
    return list(selector_problems(msgspec.convert(selector, NodeSelector)))


def of_labels(key: str, operator: str, values: list[str] | None = None) -> list[str]:
    return problems("matchExpressions", key, operator, values)


def test_what_is_well_formed_has_no_problems() -> None:
    assert of_labels("zone", "In", ["west", ""]) == []
    assert of_labels("example.com/zone", "Exists") == []
    assert of_labels("rank", "Gt", ["-5"]) == [
        (
            f'{AT}.values[0][rank]: Invalid value: "-5": a valid label must be an empty string or'
            " consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
            " alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345',"
            " regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    ]
    assert of_labels("rank", "Lt", ["5"]) == []
    assert problems("matchFields", "metadata.name", "In", ["node-1"]) == []


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        ("Near", None, '.operator: Unsupported value: "Near": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'),
        ("In", None, ".values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        ("NotIn", [], ".values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ("Exists", ["a"], '.values: Invalid value: ["a"]: values set must be empty for exists and does not exist'),
        ("Gt", [], ".values: Invalid value: []: for 'Gt', 'Lt' operators, exactly one value is required"),
        ("Gt", ["x"], ".values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
        ("In", ["x" * 64], f'.values[0][zone]: Invalid value: "{"x" * 64}": must be no more than 63 bytes'),
    ],
)  # fmt: skip
def test_operators_and_values_have_to_go_together(
    operator: str, values: list[str] | None, problem: str
) -> None:
    assert of_labels("zone", operator, values) == [AT + problem]


def test_several_problems_of_one_requirement_are_one() -> None:
    (found,) = of_labels("zone", "Gt", ["x", "y"])
    assert found.startswith("[")
    assert found.count("Invalid value") == 3


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("A B", NAME_PART),
        ("", f"name part must be non-empty; {NAME_PART}"),
        ("x" * 64, "name part must be no more than 63 bytes"),
        ("/zone", "prefix part must be non-empty"),
        ("y" * 254 + "/zone", "prefix part must be no more than 253 bytes"),
        (
            "X_y/zone",
            (
                "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric"
                " characters, '-' or '.', and must start and end with an alphanumeric character"
                " (e.g. 'example.com', regex used for validation is"
                r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ),
        ),
        (
            "a/b/c",
            NAME_PART.replace("name part", "a valid label key")
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
    ],
)
def test_keys_are_qualified_names(key: str, problem: str) -> None:
    assert of_labels(key, "Exists") == [f'{AT}.key: Invalid value: "{key}": {problem}']


def test_fields_know_two_operators_with_one_value() -> None:
    at = "nodeSelectorTerms[0].matchFields[0]"
    assert problems("matchFields", "metadata.name", "Exists") == [
        f'{at}.operator: Unsupported value: "Exists": supported values: "In", "NotIn"'
    ]
    assert problems("matchFields", "metadata.name", "In", ["a", "b"]) == [
        f'{at}.values: Invalid value: ["a","b"]: must have one element'
    ]
    assert problems("matchFields", "metadata.name", "NotIn") == [
        f"{at}.values: Invalid value: null: must have one element"
    ]


def test_integers_have_64_bits() -> None:
    assert [integer(text) for text in ("5", "+5", "-5", "x", "", str(2**63), str(2**63 - 1))] == [
        5,
        5,
        -5,
        None,
        None,
        None,
        2**63 - 1,
    ]


def test_quotes_inside_quotes_are_escaped() -> None:
    assert quoted('a"b\\') == '"a\\"b\\\\"'
