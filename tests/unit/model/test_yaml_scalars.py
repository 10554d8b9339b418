# SPDX-License-Identifier: Apache-2.0
"""Words of YAML mean what they mean for kubectl, and each text comes back as that text."""

import io
from typing import Any

import pytest
import yaml

from dra_driver.model.yaml_documents import documents
from dra_driver.model.yaml_scalars import key_text, resolved, sent, tagged
from dra_driver.model.yaml_text import yaml_in_one_line, yaml_text
from tests.support.yaml_words import KEYS, WORDS


def read(text: str) -> Any:
    (one,) = documents(io.BytesIO(text.encode()))
    return one.content


@pytest.mark.parametrize(("word", "value"), WORDS.items())
def test_a_word_has_the_value_that_kubectl_sends(word: str, value: object) -> None:
    found = sent(resolved(word))
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("word", "key"), KEYS.items())
def test_a_key_is_the_text_that_kubectl_sends(word: str, key: str) -> None:
    assert key_text(resolved(word)) == key


def test_nothing_is_null_and_null_is_no_key() -> None:
    assert resolved("") is None
    assert key_text(resolved("~")) is None


@pytest.mark.parametrize("word", [".nan", ".NaN", ".inf", "+.Inf", "-.INF"])
def test_json_has_no_such_number(word: str) -> None:
    with pytest.raises(ValueError, match=r"inf|nan"):
        sent(resolved(word))


@pytest.mark.parametrize("word", [".iNF", ".nAn", "+.nan"])
def test_another_spelling_is_text(word: str) -> None:
    assert sent(resolved(word)) == word


def test_a_tag_must_fit() -> None:
    prefix = "tag:yaml.org,2002:"
    assert tagged(f"{prefix}int", "010") == 8
    assert tagged(f"{prefix}bool", "y") is True
    assert tagged(f"{prefix}null", "~") is None
    found = tagged(f"{prefix}float", "3")
    assert (type(found), found) == (float, 3.0)
    for kind, word in (("int", "1.5"), ("float", "y"), ("bool", "1"), ("int", "08"), ("x", "a")):
        with pytest.raises(ValueError, match=word):
            tagged(prefix + kind, word)


@pytest.mark.parametrize("word", [*WORDS, *KEYS, "", ".inf", "<<", "a: b", "é", "- a", "-"])
def test_a_text_is_written_so_that_each_reader_reads_that_text(word: str) -> None:
    document = {"a": [word], word: word, "b": {"c": word}}
    for text in (yaml_text(document), yaml_text(document, is_ascii=True)):
        assert read(text) == document
        assert yaml.safe_load(text) == document
    assert read("a: 1\nb: " + yaml_in_one_line(document)) == {"a": 1, "b": document}


def test_other_values_come_back_too() -> None:
    document = {"a": [1, -1, 1.5, 1e21, 2.0**63, True, False, None, 2**63 - 1, [], {}]}
    assert read(yaml_text(document)) == document
    assert yaml.safe_load(yaml_text(document)) == document
