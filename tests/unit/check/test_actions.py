# SPDX-License-Identifier: Apache-2.0
"""What does `check` say to do about a mistake? The field and the values that are allowed, where they are known."""

import pytest

from dra_driver.check.given import Known, ReadConfig
from dra_driver.explain.subject.actions import of_type, problem_and_action
from dra_driver.model.decoding import Mistake
from tests.support.sent_manifests import SENT
from tests.unit.check.findings import claim, found, pod

API = ("api-kind", "api-version", "api-malformed", "api-field", "api-value", "api-limit")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (claim("deviceClassName: gpu\ncount: many"), "write a whole number without quotes"),
        (claim("deviceClassName: 5"), "write a text (a number or true in quotes)"),
        (claim("deviceClassName: gpu\nselector: []"), "write selectors, or leave it out"),
        (
            claim("deviceClassName: gpu\nxyzzy: 1"),
            "leave it out: the fields are deviceClassName, selectors, allocationMode, count, ",
        ),
        (
            claim("deviceClassName: gpu\nallocationMode: Some"),
            "write ExactCount for as many devices as count says, or All for each that matches",
        ),
        (
            claim("deviceClassName: gpu\ntolerations: [{effect: Never}]"),
            "write one of these, or leave it out for every effect",
        ),
        (
            claim("deviceClassName: gpu\ncapacity: {requests: {memory: much}}"),
            "write for example 80Gi, 500m or 1e3",
        ),
        (pod("", "resourceClaims: [{name: a}]"), "write the name of a claim, or of a template"),
        ("apiVersion: v1\nkind: Pood\nmetadata: {name: p}\n", "write kind: Pod"),
        ("kind: Pod\nmetadata: {name: p}\n", "write apiVersion: v1"),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {restartPolicy: Always, containers: [{name: c}]}}}\n",
            "write one of these",
        ),
    ],
)
def test_the_action_names_field_and_values(text: str, action: str) -> None:
    actions = [one.action for one in found(text) if one.rule in API]
    assert len(actions) == 1
    assert actions[0].startswith(action)


@pytest.mark.parametrize("name", SENT)
def test_each_refusal_has_an_action_of_its_own(name: str) -> None:
    for one in found(SENT[name].text):
        if one.rule in API:
            assert one.action
            assert "correct that place" not in one.action
            assert not one.message.endswith(one.action)


def mistaken(*mistakes: Mistake, refused: bool = False) -> list[tuple[str, str]]:
    """Message and action of each mistake in a configuration of NVIDIA's plugin."""
    answer = ReadConfig((), mistakes) if refused else ReadConfig(mistakes)
    known = Known(read_plugin_config=lambda _: answer)
    return [(one.message, one.action) for one in found("version: v1\nflags: {}\n", known)]


def test_a_mistake_in_a_configuration_says_what_to_write() -> None:
    assert mistaken(Mistake("flags.a", "'x; y' must be true or false")) == [
        ("flags.a: 'x; y' must be true or false", "write true or false")
    ]
    assert mistaken(Mistake("version", "unknown version: 'x; y'; write v1")) == [
        ("version: unknown version: 'x; y'", "write v1")
    ]
    assert mistaken(Mistake("flags.a", "it is bad")) == [
        ("flags.a: it is bad", "correct it in this file")
    ]
    assert mistaken(Mistake("flags.a", "nobody reads it"), refused=True) == [
        ("flags.a: nobody reads it", "leave it out, if nothing else reads it")
    ]


@pytest.mark.parametrize(
    ("error", "action"),
    [
        ("Expected `array`, got `int`", "write a list"),
        ("Expected `object | null`, got `int`", "write a mapping of fields"),
        (
            "Expected `bool | str`, got `int`",
            "write true or false without quotes or a text (a number or true in quotes)",
        ),
        ("Expected `uuid`, got `int`", "write a value of the type that the field has"),
        ("Integer value out of range", "write a value of the type that the field has"),
    ],
)
def test_a_value_of_another_type_says_which_one_to_write(error: str, action: str) -> None:
    assert of_type(error) == action


def test_a_problem_without_an_action_gets_one() -> None:
    assert problem_and_action("a; b; c") == ("a; b", "c")
    assert problem_and_action("a") == ("a", "write a value of the type that the field has")
