# SPDX-License-Identifier: Apache-2.0
"""The parts of a JSON text, found without decoding it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.kube.scan import NotJson, elements, members, value_end

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
BEHIND = b" ]]}}"
"""What stands behind a value must not matter."""


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), VALUES), st.booleans(), st.sampled_from([None, 1]))
def test_members_are_those_that_a_decoder_finds(
    whole: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    text = b" " + json.dumps(whole, ensure_ascii=ascii_only, indent=indent).encode() + BEHIND
    found = {json.loads(key): json.loads(text[a:b]) for key, (a, b) in members(text)}
    assert found == whole


@settings(deadline=None, max_examples=50)
@given(st.lists(VALUES))
def test_elements_are_those_that_a_decoder_finds(whole: list[object]) -> None:
    text = json.dumps(whole).encode() + BEHIND
    assert [json.loads(text[a:b]) for a, b in elements(text)] == whole


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'"\\ud800"',
        b'"\xff\xfe\\"]}"',
        b'["\xc0\x80", "}"]',
        b"9" * 5000,
    ],
)
def test_what_no_decoder_takes_is_passed_over(value: bytes) -> None:
    text = b'{"bad":' + value + b',"good":[1]}'
    (_, (start, end)), (key, (after, last)) = members(text)
    assert text[start:end] == value
    assert (key, text[after:last]) == (b'"good"', b"[1]")


@pytest.mark.parametrize(
    "text",
    [b"", b"x", b'{"a"', b'{"a"x', b'{"a":', b'{"a":1', b'{"a":1 2}', b"{1:2}", b'{"a":"b', b'{"a":["x]}'],
)  # fmt: skip
def test_a_text_that_breaks_is_no_json(text: bytes) -> None:
    with pytest.raises(NotJson):
        list(members(text))


@pytest.mark.parametrize("text", [b"[1", b"[1 2]", b"{}", b"[", b"[,"])
def test_a_list_that_breaks_is_no_json(text: bytes) -> None:
    with pytest.raises(NotJson):
        list(elements(text))


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(min_size=1), VALUES, min_size=1), st.data())
def test_a_text_that_was_cut_off_shows_what_stood_before(
    whole: dict[str, object], data: st.DataObject
) -> None:
    text = json.dumps(whole).encode()
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    seen: list[tuple[str, bytes]] = []
    with pytest.raises(NotJson):
        seen.extend((json.loads(key), cut[a:b]) for key, (a, b) in members(cut, cut=True))
    for (name, value), (key, known) in zip(seen[:-1], whole.items(), strict=False):
        assert (name, json.loads(value)) == (key, known)


def test_the_end_of_a_value_lies_before_other_closing_brackets() -> None:
    assert value_end(b"[[1]]]]]", 0) == 5
    assert value_end(b" -1.5e3,", 1) == 7
