# SPDX-License-Identifier: Apache-2.0
"""Decoding: a structure, or every mistake with its path."""

from enum import Enum
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from dra_driver.model.decoding import MOST_MISTAKES, Mistake, Text, decode, shown, told


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, frozen=True):
    count: Annotated[int, Meta(ge=0, le=9)] = 0

    def __post_init__(self) -> None:
        if self.count == 7:
            raise ValueError("no seven")


class Whole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An author who did not forbid unknown fields."""

    label: Annotated[
        str, Meta(max_length=3, pattern=r"^[ -~]*$(?!\n)", description="Printable ASCII.")
    ] = ""
    choice: Literal["a", "b"] = "a"
    number: int | None = None
    minimal: Annotated[int, Meta(ge=1)] = 1
    size: int | str = 0
    colour: Colour = Colour.RED
    listed: Annotated[str, Meta(extra_json_schema={"enum": ["x", "y"]})] = "x"
    inner: Inner = Inner()
    several: list[Inner] = []
    all_of: tuple[int, ...] = ()
    pair: tuple[int, int] = (1, 2)
    named: dict[str, int] = {}
    whole: float = 1.0
    anything: msgspec.Raw | None = None
    on: bool


def mistakes(value: object, path: str = "") -> list[str]:
    structure, found = decode(value, Whole, path)
    assert structure is None
    return [str(mistake) for mistake in found]


def test_a_right_value_becomes_the_structure() -> None:
    value = {
        "label": "abc",
        "number": None,
        "size": "5",
        "inner": {"count": 3},
        "several": [{"count": 1}, {}],
        "allOf": [1, 2],
        "named": {"a": 1},
        "colour": "blue",
        "on": True,
    }
    assert decode(value, Whole) == (
        Whole(
            label="abc",
            size="5",
            colour=Colour.BLUE,
            inner=Inner(3),
            several=[Inner(1), Inner()],
            all_of=(1, 2),
            named={"a": 1},
            on=True,
        ),
        (),
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "doc.on: missing; it must be true or false"),
        (5, "doc: 5 must be a mapping of fields"),
        (
            {"label": "é"},
            r"doc.label: '\xe9' must be a text of at most 3 characters (Printable ASCII)",
        ),
        (
            {"label": "a\n"},
            r"doc.label: 'a\n' must be a text of at most 3 characters (Printable ASCII)",
        ),
        (
            {"label": "\ud800"},
            r"doc.label: '\ud800' must be a text of at most 3 characters (Printable ASCII)",
        ),
        (
            {"label": None},
            "doc.label: None must be a text of at most 3 characters (Printable ASCII)",
        ),
        ({"choice": "c"}, "doc.choice: 'c' must be one of a, b"),
        ({"number": "1"}, "doc.number: '1' must be a whole number"),
        ({"number": True}, "doc.number: True must be a whole number"),
        ({"minimal": 0}, "doc.minimal: 0 must be a whole number from 1"),
        ({"size": 1.5}, "doc.size: 1.5 must be a whole number or a text"),
        ({"colour": "green"}, "doc.colour: 'green' must be one of red, blue"),
        ({"listed": "z"}, "doc.listed: 'z' must be one of x, y"),
        ({"inner": None}, "doc.inner: None must be a mapping of fields"),
        ({"inner": {"count": 10}}, "doc.inner.count: 10 must be a whole number from 0 up to 9"),
        ({"inner": {"count": 7}}, "doc.inner: no seven"),
        ({"several": [{}, {"count": 7}]}, "doc.several[1]: no seven"),
        ({"several": [{}, {"x": 1}]}, "doc.several[1].x: unknown field; known are count"),
        ({"several": {}}, "doc.several: {} must be a list"),
        ({"allOf": [1, "2"]}, "doc.allOf[1]: '2' must be a whole number"),
        ({"pair": [1]}, "doc.pair: [1] must be a tuple"),
        ({"named": {"a": "1"}}, "doc.named.a: '1' must be a whole number"),
        ({"named": 1}, "doc.named: 1 must be a mapping"),
        ({"named": {1: 1}}, "doc.named.1: 1 must be a text"),
        ({"whole": "x"}, "doc.whole: 'x' must be a number"),
        ({1: 2}, "doc.1: unknown field; known are label, choice"),
        ({"a\n=../": 2}, r"doc.a\n=../: unknown field; known are label, choice"),
    ],
)
def test_every_wrong_value_is_told_with_its_path(value: object, said: str) -> None:
    whole = {"on": True} | value if isinstance(value, dict) and value else value
    (found,) = mistakes(whole, "doc")
    assert found.startswith(said)


def test_all_mistakes_are_told_and_no_endless_list() -> None:
    assert mistakes({"label": 1, "colour": 2}) == [
        "label: 1 must be a text of at most 3 characters (Printable ASCII)",
        "colour: 2 must be one of red, blue",
        "on: missing; it must be true or false",
    ]
    assert len(mistakes({str(index): index for index in range(100)})) == MOST_MISTAKES


def test_a_rule_of_the_whole_structure_is_told_without_a_path() -> None:
    assert decode({"count": 7}, Inner) == (None, (Mistake("", "no seven"),))
    assert told((Mistake("", "no seven"), Mistake("a", "b"))) == "no seven; a: b"


def test_a_structure_without_fields_knows_none() -> None:
    class Empty(msgspec.Struct):
        pass

    assert decode({"a": 1}, Empty)[1] == (Mistake("a", "unknown field; known are none"),)


def test_a_text_of_a_command_line_may_stand_for_another_type() -> None:
    given = {"on": Text("true"), "number": Text("5"), "size": Text("null"), "label": "x"}
    assert decode(given, Whole) == (Whole(on=True, number=5, size="null", label="x"), ())
    assert mistakes({"on": Text("perhaps")}) == ["on: 'perhaps' must be true or false"]
    assert mistakes({"on": "true"}) == ["on: 'true' must be true or false"]


def test_a_text_that_looks_like_null_stays_a_text() -> None:
    class Words(msgspec.Struct):
        word: str | None = None

    assert decode({"word": "null"}, Words)[0] == Words("null")


def test_a_strangers_value_is_escaped_and_cut() -> None:
    assert shown("a\x1b\n") == r"'a\x1b\n'"
    assert len(shown("x" * 500)) == 80


def test_one_of_several_types_or_nothing() -> None:
    class Loose(msgspec.Struct):
        size: int | str | None = None

    assert decode({"size": None}, Loose)[0] == Loose(None)
    assert decode({"size": "5"}, Loose)[0] == Loose("5")
    assert decode({"size": 1.5}, Loose)[1] == (
        Mistake("size", "1.5 must be a whole number or a text or null"),
    )


class Ratio(msgspec.Struct, frozen=True, tag=True):
    parts: int = 1

    def __post_init__(self) -> None:
        _ = 1 // self.parts


class Other(msgspec.Struct, frozen=True, tag=True):
    pass


class Ratios(msgspec.Struct, frozen=True):
    ratio: Ratio | None = None
    either: Ratio | Other | None = None


def test_a_defect_in_a_rule_of_the_author_is_a_mistake_of_the_value() -> None:
    """The author of a claim chooses the value, and must not make a call fail that has other claims too."""
    for structure, value in ((Ratio, {"parts": 0}), (Ratios, {"ratio": {"parts": 0}})):
        (mistake,) = decode(value, structure, "top")[1]
        assert str(mistake) == (
            "top: a rule of this configuration failed: ZeroDivisionError: integer division or modulo by zero"
        )
    (mistake,) = decode({"either": {"type": "Ratio", "parts": 0}}, Ratios)[1]
    assert str(mistake).startswith("either: {'type': 'Ratio', 'parts': 0} must be ")
