# SPDX-License-Identifier: Apache-2.0
"""Which name was meant: only what differs is compared."""

from collections.abc import Callable
from itertools import product
from time import process_time

import pytest

from dra_driver.cel.reasons.similar import (
    likely,
    likely_attribute,
    meant,
    model_in,
    question,
    same_but_for_looks,
    unlikeness,
    without_quotes,
)


@pytest.mark.parametrize(
    ("word", "there", "near"),
    [
        ("modle", ["numa", "model"], "model"),
        ("NUMA", ["numb", "numa"], "numa"),
        ("numa", ["numa", "numb"], ""),
        ("numa", [], ""),
        ("x", ["numa"], ""),
        ('"B200"', ['"H100"'], ""),
        ('"H10O"', ['"H100"'], '"H100"'),
        ('"mig"', ['"gpu"'], ""),
        ("gpu.example.com", ["fpga.example.com"], ""),
        ("gpuu.example.com", ["fpga.example.com", "gpu.example.com"], "gpu.example.com"),
        ("gpu.example.con", ["gpu.example.com"], "gpu.example.com"),
        ("example.com", ["gpu.example.com"], ""),
        ("gpu.example.com/nuna", ["gpu.example.com/numa"], "gpu.example.com/numa"),
        ("gpu.example.com/color", ["gpu.example.com/numa"], ""),
    ],
)
def test_the_most_similar_name_is_the_likely_one(word: str, there: list[str], near: str) -> None:
    assert likely(word, there) == near
    assert meant(word, there) == (f"did you mean {near}?" if near else "")


GPU = ["type", "productName", "index", "uuid", "numaNode", "memoryMiB", "driverVersion"]
MORE = [*GPU, "cudaDriverVersion", "cudaComputeCapability", "pcieRoot", "x.example/color"]


@pytest.mark.parametrize(
    ("word", "there", "near"),
    [
        ("memroyMiB", GPU, "memoryMiB"),
        ("memoryMb", GPU, "memoryMiB"),
        ("productname", GPU, "productName"),
        ("pcieroot", MORE, "pcieRoot"),
        ("cudaComputeCapabilty", MORE, "cudaComputeCapability"),
        # It has two thirds of its characters in common with both index and numaNode.
        ("node", GPU, "numaNode"),
        ("node", ["index", "uuid"], ""),
        ("node", ["mode", "numaNode"], "numaNode"),
        ("mode", GPU, ""),
        ("mode", ["model"], "model"),
        ("model", GPU, "productName"),
        ("model", ["numaNode", "index"], ""),
        ("product", ["model", "productLine"], "model"),
        ("x.example/model", ["productName", "x.example/product"], "x.example/product"),
        # The one with the fewest other words, if there is one.
        ("version", MORE, "driverVersion"),
        ("cuda", MORE, ""),
        ("b", GPU, ""),
        ("colour", MORE, ""),
        ("x.example/colour", MORE, "x.example/color"),
        ("uuid", GPU, ""),
    ],
)
def test_an_attribute_is_meant_by_its_words_or_by_most_of_its_characters(
    word: str, there: list[str], near: str
) -> None:
    assert likely_attribute(word, there) == near
    assert likely_attribute(word, there[::-1]) == near


def in_common(one: str, other: str) -> int:
    """The length of the longest common subsequence, as a textbook finds it."""
    row = [0] * (len(other) + 1)
    for character in one:
        before = 0
        for place, another in enumerate(other, 1):
            here = before + 1 if character == another else max(row[place], row[place - 1])
            before, row[place] = row[place], here
    return row[-1]


def test_names_are_alike_that_have_most_of_their_characters_in_the_same_order() -> None:
    texts = ["".join(letters) for length in (2, 3, 5) for letters in product("abx", repeat=length)]
    for one, other in product(texts[::7], texts):
        is_near = one != other and 2 * in_common(one, other) / (len(one) + len(other)) >= 0.6
        assert likely(one, [other]) == (other if is_near else ""), (one, other)


def test_what_is_longer_than_a_name_is_like_no_other() -> None:
    longest = "ab" * 126 + "c"
    assert likely(longest[1:], [longest]) == longest
    assert likely(longest, [f"{longest}d"]) == likely(f"{longest}d", [longest]) == ""


def test_texts_of_few_different_letters_take_no_longer() -> None:
    """They may be written on purpose. What looks for equal parts of them, and again in their rests, takes a hundred times as long."""

    def seconds(one: str, other: str) -> float:
        spent = []
        for _ in range(3):
            begin = process_time()
            for number in range(20):
                likely(f"{one}{number}", [other])
            spent.append(process_time() - begin)
        return min(spent)

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    assert seconds("a" * 60, "ab" * 30) / seconds(letters, letters[::-1]) < 20


@pytest.mark.parametrize(
    ("word", "there", "same"),
    [
        ('"H10O"', ['"A100"', '"H100"'], '"H100"'),
        ('"h100"', ['"H100"'], '"H100"'),
        ('"NVIDIA_H100 80GB"', ['"NVIDIA-H100-80GB"'], '"NVIDIA-H100-80GB"'),
        ('"H1OO"', ['"H100"', '"H1OO"'], ""),
        ('"A100"', ['"H100"'], ""),
        ('"L40"', ['"L40S"'], ""),
        ("57.01.0", ["570.1.0"], ""),
        ("x", [], ""),
    ],
)
def test_a_name_that_only_looks_alike_is_the_same(word: str, there: list[str], same: str) -> None:
    assert same_but_for_looks(word, there) == same


@pytest.mark.parametrize(
    ("word", "there", "same"),
    [
        ('"2"', ["1", "2"], "2"),
        ('"true"', ["true"], "true"),
        ('"2"', ['"2"', "2"], ""),
        ('"3"', ["1", "2"], ""),
        ("2", ["2"], ""),
        ('"-2"', ["-2"], "-2"),
        ('"550.54.15"', ["550.54.15"], ""),
    ],
)
def test_a_text_of_a_number_is_that_number(word: str, there: list[str], same: str) -> None:
    assert without_quotes(word, there) == same


def test_another_number_is_another_model() -> None:
    there = ["NVIDIA L40S", "NVIDIA H100 80GB HBM3", "7g.40gb", "NVIDIA-A100-SXM4-80GB"]
    models = list(map(model_in, there))
    for another in ("NVIDIA H200", "NVIDIA A100 80GB HBM3", "3g.20gb"):
        assert model_in(another) not in models
    assert model_in("NVlDIA A1OO SXM4 80GB") == models[3]


@pytest.mark.parametrize(
    ("wanted", "nearer", "farther"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"),
        ("H100-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA A100 80GB PCIe"),
        ("H100-80GB", "NVIDIA A100 80GB PCIe", "Tesla T4"),
        ("A1OO", "NVIDIA A100", "NVIDIA H100"),
        ("h1oo", "H100", "NVIDIA H100"),
        ("Ada Lovelace", "NVIDIA Ada", "Hopper"),
        ("Hopper", "Grace Hopper", "Ampere"),
    ],
)
def test_a_text_with_the_wanted_words_is_nearer(wanted, nearer, farther):
    assert unlikeness(wanted, nearer) < unlikeness(wanted, farther) <= 1


def test_texts_that_only_look_different_are_not_unlike():
    assert unlikeness("A1OO", "a100") == 0
    assert unlikeness("", "a100") == unlikeness("...", "a100") == 1


@pytest.mark.parametrize("find", [likely, likely_attribute, meant, same_but_for_looks])
def test_texts_of_signs_are_like_others_or_not(find: Callable[[str, list[str]], str]) -> None:
    """Nobody is kept from writing a point, a slash or a quote where a name has none."""
    signs = ["".join(text) for length in range(4) for text in product('a./"', repeat=length)]
    for one, other in product(signs, signs):
        assert find(one, [other]) in ("", other, question(other))
        assert 0 <= unlikeness(one, other) <= 1
    assert likely(".gpu.example.com", ["gpu.example.com"]) == "gpu.example.com"
