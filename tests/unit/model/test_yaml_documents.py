# SPDX-License-Identifier: Apache-2.0
"""YAML of anybody: what the API server would see, or a sentence, and never more than a document may cost."""

import io
from typing import Any

import pytest
import yaml

from dra_driver.model.yaml_documents import MOST_TEXT, BadDocument, documents, path_text


def read(text: str | bytes) -> list[Any]:
    content = text.encode() if isinstance(text, str) else text
    return [one.content for one in documents(io.BytesIO(content))]


def refused(text: str | bytes) -> str:
    with pytest.raises(BadDocument) as raised:
        read(text)
    return str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [1, -2, 0x10, 017, 1_000, 2.5, 1.5e+3, .5]\n",
        "[true, on, No, null, ~, '', '1', \"a\\n\", No]\n",
        "{a: {b: [{c: d}, []]}, ? x : z}\n",
        "a: |\n  text\n  more\nb: >-\n  folded\n  text\n",
        "a: &x {k: [1]}\nb: *x\nc: [*x, *x]\nd: &y text\ne: *y\n",
        "base: &b {a: 1, b: 2}\none: {<<: *b, b: 3}\ntwo: {<<: [*b, {a: 9, c: 4}], d: 5}\n",
        "a: !!str 1\nb: !!int '2'\nc: !!float 3\nd: ! 4\ne: !!map {}\nf: !!seq []\n",
        '{"kind": "Pod", "metadata": {"name": "x", "labels": {"a": "\\u00e9"}}}',
    ],
)
def test_documents_say_what_other_readers_find_in_them(text: str) -> None:
    assert read(text) == list(yaml.safe_load_all(text))


def test_documents_that_hold_nothing_are_passed_over() -> None:
    assert read("---\n---\na: 1\n---\n# nothing\n---\nb\n...\n") == [{"a": 1}, "b"]
    assert read(b"") == []


def test_a_date_and_bytes_stay_text_as_in_json() -> None:
    assert read("a: 2020-01-01\nb: !!binary aGk=\n") == [{"a": "2020-01-01", "b": "aGk="}]


def test_a_long_number_is_text_and_costs_no_arithmetic() -> None:
    digits = "1" * 100_000
    assert read(f"a: {digits}\nb: 0x{digits}") == [{"a": digits, "b": f"0x{digits}"}]


def test_a_document_costs_what_its_aliases_stand_for() -> None:
    (one,) = documents(io.BytesIO(b"a: &x [1, 2]\nb: [*x, *x]\n"))
    assert (one.values, one.text) == (13, 8)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{c}: &{c} {{<<: [{','.join([f'*{b}'] * 9)}]}}\n"
    for b, c in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "line 6, column 11: a document of more than 150,000 values (aliases count)"),
        (MERGED, "a document of more than 150,000 values (aliases count)"),
        ("[" + "1," * 150_000 + "]", "a document of more than 150,000 values"),
        ("a: &a '" + "x" * 100_000 + "'\nb: [" + "*a," * 40 + "]", "more than 3,145,728 char"),
        ("a: '" + "x" * 3 * MOST_TEXT + "'", "one value is longer than 6,291,456 bytes"),
        ("#" * 3 * MOST_TEXT, "one value is longer than 6,291,456 bytes"),
        ("[" * 3000, "line 1, column 101: it is nested deeper than 100 levels"),
        ("{a: " * 3000, "it is nested deeper than 100 levels"),
        ("&a [*a]", "line 1, column 5: found undefined alias 'a'"),
        ("*b", "line 1, column 1: found undefined alias 'b'"),
        ("a: 1\nb: [", "line 3, column 1: "),
        ("a: 1\n\tb: 2", "line 2, column 1: "),
        (b"\xff\xfe\x00", "incomplete UTF-16 character"),
        (b"a: \x00", "control characters are not allowed"),
        ("!!python/object:os.system {}", "line 1, column 1: the tag 'tag:yaml.org,2002:python/obj"),
        ("!!python/name:os.system x", "'x' is no 'tag:yaml.org,2002:python/name:os.system'"),
        ("!!int x", "line 1, column 1: 'x' is no 'tag:yaml.org,2002:int'"),
        ("!!bool 7", "'7' is no 'tag:yaml.org,2002:bool'"),
        ("!!set {a}", "the tag 'tag:yaml.org,2002:set' is not known"),
        ("? [a]\n: b", "a mapping's key is a list or a mapping"),
        ("~: b", "a mapping's key is null"),
        ("a: [.nan]", "line 1, column 5: '.nan' is no number of JSON: write it in quotes"),
        ("{<<: 3}", "<< needs a mapping, or a list of mappings"),
    ],
)
def test_what_is_no_manifest_is_a_sentence_with_its_place(text: str | bytes, said: str) -> None:
    assert said in refused(text)


def test_an_endless_stream_is_left_after_a_few_megabytes() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b"x" * size

    stream = Endless()
    with pytest.raises(BadDocument):
        list(documents(stream))  # type: ignore[arg-type]
    assert stream.given < 4 * MOST_TEXT


def test_a_key_that_is_there_twice_counts_once_or_is_refused() -> None:
    text = b"a: {b: 1, b: 2}\nc: &x {d: 1}\ne: {<<: *x, d: 2}\n"
    assert read(text) == [{"a": {"b": 2}, "c": {"d": 1}, "e": {"d": 2}}]
    with pytest.raises(BadDocument) as raised:
        list(documents(io.BytesIO(text), unique_keys=True))
    assert str(raised.value) == "line 1, column 11: the key 'b' is there twice; remove one of them"
    fine = b"a: &x {d: 1}\ne: {<<: *x, d: 2}\n---\na: 1\n"
    assert len(list(documents(io.BytesIO(fine), unique_keys=True))) == 2


def test_a_text_that_is_said_to_be_a_long_number_is_refused() -> None:
    assert refused(f"a: !!int '{'1' * 401}'").startswith("line 1, column 4: '1111")


def test_the_places_of_keys_and_values_are_noted() -> None:
    text = "# c\n---\nä: {x: 1, 'y': [2, \"é\"]}\nb:\n- m: &a v\n  e: |\n    t\n  [1]: x\n- *a\n"
    text = text.replace("  [1]: x\n", "")
    (one,) = documents(io.BytesIO(text.encode()), with_places=True)
    shown = {
        path: (place.line, place.column, text[place.start : place.end], place.style)
        for path, place in one.places.values.items()
    }
    assert shown == {
        (): (3, 1, "", "-"),
        ("ä",): (3, 4, "{x: 1, 'y': [2, \"é\"]}", "{"),
        ("ä", "x"): (3, 8, "1", ""),
        ("ä", "y"): (3, 16, '[2, "é"]', "["),
        ("ä", "y", 0): (3, 17, "2", ""),
        ("ä", "y", 1): (3, 20, '"é"', '"'),
        ("b",): (5, 1, "-", "-"),
        ("b", 0): (5, 3, "", "-"),
        ("b", 0, "m"): (5, 6, "&a v", ""),
        ("b", 0, "e"): (6, 6, "|\n    t\n", "|"),
        ("b", 1): (8, 3, "*a", "*"),
    }
    keys = {path: text[place.start : place.end] for path, place in one.places.keys.items()}
    assert keys == {
        ("ä",): "ä",
        ("ä", "x"): "x",
        ("ä", "y"): "'y'",
        ("b",): "b",
        ("b", 0, "m"): "m",
        ("b", 0, "e"): "e",
    }


def test_a_key_stands_under_the_name_that_it_has_for_the_api_server() -> None:
    (one,) = documents(io.BytesIO(b"y: 1\n08: {1e3: a}\n"), with_places=True)
    assert one.content == {"true": 1, "8": {"1000": "a"}}
    assert list(one.places.keys) == [("true",), ("8",), ("8", "1000")]
    assert list(one.places.values) == [(), ("true",), ("8",), ("8", "1000")]


def test_a_key_that_is_an_alias_has_no_place() -> None:
    (one,) = documents(io.BytesIO(b"a: &x k\n*x : 1\n"), with_places=True)
    assert one.content == {"a": "k", "k": 1}
    assert list(one.places.keys) == [("a",)]


def test_without_places_there_are_none_and_documents_are_equal() -> None:
    (without,) = documents(io.BytesIO(b"a: 1"))
    (with_them,) = documents(io.BytesIO(b"a: 1"), with_places=True)
    assert without.places.values == {}
    assert with_them.places.values
    assert without == with_them


def test_a_mistake_in_a_text_of_a_file_has_the_line_of_the_file() -> None:
    found = BadDocument("it is wrong", line=2, column=3).below(10)
    assert (found.problem, found.line, found.column) == ("it is wrong", 12, 3)
    assert BadDocument("it is wrong").below(10).line == 0


def test_a_path_is_written_as_the_api_server_does_it() -> None:
    assert path_text(("spec", "requests", 0, "name\x1b")) == "spec.requests[0].name\\x1b"
    assert path_text((0, "a")) == "[0].a"
    assert path_text(()) == ""


def test_keys_are_texts_as_in_json() -> None:
    """Many numbers with one hash would make each look into their mapping slow."""
    text = "{1: a, true: b, off: c, 1.5: d, 2.0: e, 0x10: f, 2024-01-01: g}"
    assert read(text) == [
        {"1": "a", "true": "b", "false": "c", "1.5": "d", "2": "e", "16": "f", "2024-01-01": "g"}
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n\tb: 1\n", "no tab may indent a line, write blanks"),
        ("a: @b\n", "a text that begins with @ or ` needs quotes"),
        ("a:\n  b: 1\n\tc: 2\n", "tab character that violates indentation: write blanks"),
    ],
)
def test_a_tab_is_told_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(BadDocument) as raised:
        list(documents(io.BytesIO(text.encode())))
    assert told in raised.value.problem
