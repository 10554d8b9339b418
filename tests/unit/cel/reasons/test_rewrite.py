# SPDX-License-Identifier: Apache-2.0
"""Expressions with another name at a path, or with a check that it is there."""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.rewrite import guard, presence, renamed, wrapped

A, C = 'device.attributes["d"]', 'device.capacity["d"]'
OLD = DevicePath("attributes", "d", "modle")


@pytest.mark.parametrize(
    ("expression", "new"),
    [
        (f'{A}.modle == "modle"', f'{A}.model == "modle"'),
        (f'has({A}.modle) && {A}["modle"] == "x"', f'has({A}.model) && {A}["model"] == "x"'),
        (f'{A}.?modle.orValue("") == "x"', f'{A}.?model.orValue("") == "x"'),
        (f'"modle" in {A} && "modle" in {C}', f'"model" in {A} && "modle" in {C}'),
        (f"{A}.modle in [{A}.modle, {A}.x]", f"{A}.model in [{A}.model, {A}.x]"),
        (f'["x"].exists(q, q == {A}.modle)', f'["x"].exists(q, q == {A}.model)'),
        (f'{{"k": {A}.modle}}["k"] == "x"', f'{{"k": {A}.model}}["k"] == "x"'),
        (
            f'"x" in {C} && {C}.modle.isGreaterThan({C}.x)',
            f'"x" in {C} && {C}.modle.isGreaterThan({C}.x)',
        ),
        ("1 in [1]", "1 in [1]"),
    ],
)
def test_a_name_is_changed_wherever_its_path_is_read(expression: str, new: str) -> None:
    parsed = compile_selector(expression).checked.parsed
    assert renamed(parsed, {OLD: "model"}) == new


def test_a_guard_is_a_test_of_its_path() -> None:
    assert guard(OLD) == f"has({A}.modle)"
    texts = [guard(OLD), f'"modle" in {A}', f'{A}.modle == "x"', '"modle" in ["modle"]']
    roots = [compile_selector(text).checked.parsed.root for text in texts]
    assert [presence(root) for root in roots] == [OLD, OLD, None, None]


@pytest.mark.parametrize(
    ("expression", "call", "new"),
    [
        (f"{A}.modle.isLessThan(semver('1.0.0'))", "semver(…)", "semver(@).isLessThan"),
        (f'{A}["modle"].isLessThan(semver("1.0.0"))', "semver(…, true)", "semver(#, true).is"),
        (f"has({A}.modle) && {A}.modle.isLessThan(semver('1.0.0'))", "semver(…)", "has(@) && sem"),
        (f'["x"].exists(q, semver(q).isLessThan({A}.modle))', "semver(…)", "Than(semver(@))"),
        (f"{A}.modle in [{A}.modle, {A}.x]", "semver(…)", "semver(@) in [semver(@), "),
        (f'["x"].all(q, has({A}.modle) && {A}.modle == q)', "semver(…)", "has(@) && semver(@)"),
    ],
)
def test_a_text_is_parsed_wherever_it_is_read(expression: str, call: str, new: str) -> None:
    parsed = compile_selector(expression).checked.parsed
    told = wrapped(parsed, {OLD: call})
    assert new.replace("@", f"{A}.modle").replace("#", f'{A}["modle"]') in told
