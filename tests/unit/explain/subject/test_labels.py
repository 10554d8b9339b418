# SPDX-License-Identifier: Apache-2.0
"""Label selectors choose what kubectl's choose."""

import pytest

from dra_driver.explain.subject.labels import EVERYTHING, BadSelector, parse_selector


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", ["a=1,b=2", "a=2", "b", ""]),
        ("a=1", ["a=1,b=2"]),
        ("a==1", ["a=1,b=2"]),
        ("a!=1", ["a=2", "b", ""]),
        ("a", ["a=1,b=2", "a=2"]),
        ("!a", ["b", ""]),
        ("! a", ["b", ""]),
        ("a in (2)", ["a=2"]),
        ("a in (1, 2),b", ["a=1,b=2"]),
        ("a notin (1)", ["a=2", "b", ""]),
        ("b=", ["b"]),
        ("a=1 , b=2", ["a=1,b=2"]),
        ("b in ()", ["b"]),
    ],
)
def test_a_selector_chooses_by_labels(text: str, chosen: list[str]) -> None:
    objects = {
        written: dict((*one.split("="), "")[:2] for one in written.split(",") if one)
        for written in ("a=1,b=2", "a=2", "b", "")
    }
    selector = parse_selector(text)
    assert [name for name, labels in objects.items() if selector.chooses(labels)] == chosen
    assert selector.text == text


def test_an_object_without_labels_has_none() -> None:
    assert EVERYTHING.chooses(None)
    assert not parse_selector("a").chooses(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=1,,b", "from ',b' on"),
        ("a=b=c", "from 'a=b=c' on"),
        ("!a=b", "from '!a=b' on"),
        ("a in 1", "from 'a in 1' on"),
        ("a>1", "from 'a>1' on"),
        ("a in (x y)", "'x y' is no label's value"),
        (",", "from ',' on"),
    ],
)
def test_what_is_no_selector_is_told_with_the_place(text: str, said: str) -> None:
    with pytest.raises(BadSelector, match="is no label selector") as caught:
        parse_selector(text)
    assert said in str(caught.value)
