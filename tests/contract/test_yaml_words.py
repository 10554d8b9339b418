# SPDX-License-Identifier: Apache-2.0
"""Whether kubectl reads the words of YAML as we say, and the texts that we write as those texts."""

import json
import subprocess
from typing import Any

import pytest

from dra_driver.model.yaml_text import yaml_text
from hack.testbed.onenode.build import build
from tests.support.yaml_words import KEYS, WORDS

pytestmark = pytest.mark.real

HEAD = "apiVersion: example.com/v1\nkind: Words\nmetadata: {name: x}\n"


def sent(text: str) -> Any:
    """What kubectl makes of an object of a kind that it does not know."""
    kubectl = build().kubernetes / "kubectl"
    command = [kubectl, "annotate", "--local", "-f", "-", "-o", "json", "read=yes"]
    ended = subprocess.run(command, input=text.encode(), check=True, capture_output=True)
    return json.loads(ended.stdout, parse_int=number)["spec"]


def number(text: str) -> float:
    """A number that is too long for an integer of Go has been a float: its last digits are zeros."""
    return int(text) if -(2**63) <= int(text) < 2**63 else float(text)


def test_kubectl_reads_each_word_as_our_table_says() -> None:
    found = sent(f"{HEAD}spec:\n  words:\n" + "".join(f"  - {word}\n" for word in WORDS))["words"]
    assert [(one is True or one is False, one) for one in found] == [
        (isinstance(one, bool), one) for one in WORDS.values()
    ]


def test_kubectl_reads_each_key_as_our_table_says() -> None:
    text = f"{HEAD}spec:\n" + "".join(f"  - {word}: 1\n" for word in KEYS)
    assert [next(iter(one)) for one in sent(text)] == list(KEYS.values())


def test_kubectl_reads_what_we_write() -> None:
    words = [*WORDS, *KEYS, "", ".inf", "<<", "a: b", "é"]
    document = {"apiVersion": "example.com/v1", "kind": "Words", "metadata": {"name": "x"}}
    assert sent(yaml_text({**document, "spec": words})) == words
