# SPDX-License-Identifier: Apache-2.0
"""Texts in semver(…) that are no version, and what is written in their place."""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.reasons.mistyped import mistyped_texts
from dra_driver.cel.reasons.selector import ExplainedSelector

VERSION = 'device.attributes["gpu.example.com"].version'


def told(call: str) -> tuple[list[str], str]:
    """What is said about a call, and the expression with it corrected."""
    selector = compile_selector(f"{VERSION}.isLessThan({call})")
    parsed = selector.checked.parsed
    found = list(mistyped_texts(parsed, parsed.root))
    new = {one.number: one.new for text in found for one in text.corrections}
    return [one.says for one in found], ExplainedSelector(selector).corrected(new)


@pytest.mark.parametrize("text", ["9.0", "9", "550.90.07", "v1.2.3"])
def test_a_version_of_another_form_is_normalized(text):
    right = f'semver("{text}", true)'
    assert told(f'semver("{text}")') == (
        [f"'{text}' is no version: write {right}"],
        f"{VERSION}.isLessThan({right})",
    )
    assert told(right)[0] == []


@pytest.mark.parametrize("call", ['semver("newest")', 'semver("newest", true)', 'semver("1.x")'])
def test_what_is_like_no_version_is_told_but_not_corrected(call):
    text = call.split('"')[1]
    says = f"'{text}' is no version: write three numbers, as in 12.4.0"
    assert told(call) == ([says], f"{VERSION}.isLessThan({call})")


@pytest.mark.parametrize("call", ['semver("12.4.0")', "semver(string(9))"])
def test_nothing_is_told_of_a_version(call):
    assert told(call)[0] == []


def test_a_long_text_is_cut():
    (says,), _ = told(f'semver("{"9" * 1000}")')
    assert len(says) < 120
