# SPDX-License-Identifier: Apache-2.0
"""Expressions that are expensive: which are refused, and how often the others are evaluated."""

import dataclasses

import pytest

from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import ClassSource, Sharing
from dra_driver.model.plugin_policy import PluginPolicy, SharingRule
from dra_driver.planning.plugin.problems import ResourceProblem
from dra_driver.planning.plugin.resources import ResourcePlans
from dra_driver.planning.plugin.selectors import Failure, SelectorAnswers, compiled
from dra_driver.testing.builders import A_DRIVER
from tests.support.plugin_values import OWN, a_class, a_gpu, gpus, offered


def loops(entries: int) -> str:
    """Three loops in each other, over a list with so many entries."""
    numbers = f"[{','.join(['1'] * entries)}]"
    return f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c > 0)))"


def test_an_expression_that_the_api_server_refuses_for_its_cost_is_refused() -> None:
    assert not isinstance(compiled(a_class("c", loops(40)).device_class, ""), ResourceProblem)
    bad = a_class("bad", "true", loops(60)).device_class
    assert compiled(bad, "DeviceClass bad") == ResourceProblem(
        "DeviceClass bad",
        "spec.selectors[1].cel.expression",
        "the API server estimates its cost as 1995251, and takes 1000000 at most",
        "the class offers nothing, all others do; write an expression with fewer loops in each other, or with shorter lists",
    )


class Counted:
    """A selector that counts its evaluations."""

    def __init__(self, expression: str) -> None:
        self._real = compile_selector(expression)
        self.selector = dataclasses.replace(self._real, matches=self._matches)
        self.evaluations = 0

    def _matches(self, device: DeviceValue, cancelled: Check = never) -> bool:
        self.evaluations += 1
        return self._real.matches(device, cancelled)


def value(device: AllocatableDevice) -> DeviceValue:
    return DeviceValue(A_DRIVER, device.api)


@pytest.mark.parametrize(
    "expression", [f"{OWN}.index == 0", f"{OWN}.index == 1", f"{OWN}.other == 1"]
)
def test_a_selector_is_evaluated_once_for_a_device_that_stays_as_it_is(expression: str) -> None:
    answers, counted = SelectorAnswers(A_DRIVER), Counted(expression)

    def ask(index: int = 0) -> bool | Failure:
        answers.begin()
        # The device is found anew by each scan.
        return answers.selects([counted.selector], value(a_gpu("gpu-0", {"index": index})))

    first = ask()
    assert [ask(), ask()] == [first, first]
    assert counted.evaluations == 1
    ask(1)
    assert counted.evaluations == 2


def test_the_answers_of_other_selectors_and_devices_are_others() -> None:
    answers = SelectorAnswers(A_DRIVER)
    selectors = [compile_selector(f"{OWN}.index == {number}") for number in range(2)]
    devices = [value(a_gpu(f"gpu-{number}", {"index": number})) for number in range(2)]

    def ask() -> list[list[bool | Failure]]:
        answers.begin()
        return [[answers.selects([one], device) for device in devices] for one in selectors]

    assert ask() == ask() == [[True, False], [False, True]]


def test_an_answer_that_a_plan_did_not_need_is_forgotten() -> None:
    answers, counted = SelectorAnswers(A_DRIVER), Counted("true")
    device = value(a_gpu("gpu-0"))
    answers.selects([counted.selector], device)
    answers.begin()
    answers.begin()
    answers.selects([counted.selector], device)
    assert counted.evaluations == 2


def test_plans_of_one_node_follow_its_devices_and_classes() -> None:
    plans = ResourcePlans(driver=A_DRIVER, domain="a.b")

    def plan(index: int, expression: str) -> dict[str, list[str]]:
        inventory = gpus(a_gpu("gpu-0", {"index": index}))
        found = plans.plan(
            inventory, [a_class("c", expression)], policy=PluginPolicy(), customary=False
        )
        return offered(found.resources)

    one = {"a.b/c": ["gpu-0"]}
    steps = [(0, "0"), (0, "0"), (1, "0"), (1, "1"), (0, "1"), (0, "0")]
    assert [plan(index, f"{OWN}.index == {wanted}") for index, wanted in steps] == [
        one,
        one,
        {},
        one,
        {},
        one,
    ]


def test_a_plan_is_made_anew_if_the_devices_the_classes_or_the_policy_are_others() -> None:
    plans = ResourcePlans(driver=A_DRIVER, domain="a.b")
    inventory = gpus(a_gpu("gpu-0", {"vendor": "nvidia", "type": "gpu"}))
    classes, policy = [a_class("c", "true")], PluginPolicy()
    none: list[ClassSource] = []
    first = plans.plan(inventory, classes, policy=policy, customary=False)
    assert plans.plan(inventory, classes, policy=policy, customary=False) is first
    twice = PluginPolicy(
        sharing=(SharingRule(ResourceName("a.b/c"), Sharing.REPLICAS, replicas=2),)
    )
    assert [
        offered(plans.plan(devices, some, policy=asked, customary=customary).resources)
        for devices, some, asked, customary in (
            (inventory, classes, twice, False),
            (gpus(a_gpu("gpu-1")), classes, twice, False),
            (inventory, none, twice, False),
            (inventory, none, twice, True),
        )
    ] == [{"a.b/c": ["gpu-0"] * 2}, {"a.b/c": ["gpu-1"] * 2}, {}, {"nvidia.com/gpu": ["gpu-0"]}]
