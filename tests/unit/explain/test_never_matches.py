# SPDX-License-Identifier: Apache-2.0
"""Selectors that no device passes, and such that fail: what is said, and what is tried."""

from typing import Any

import pytest

from dra_driver.explain import closeness
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.selector_answers import MANY
from dra_driver.explain.verdict import (
    DriverPublishesNothing,
    NotEnoughDevices,
    SelectorError,
    SelectorNeverMatches,
    Verdict,
)
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, device_class, request, resource_slice
from tests.unit.explain.clusters import state

A, C = f'device.attributes["{GPU}"]', f'device.capacity["{GPU}"]'
MEMORY = f'{C}.memory.compareTo(quantity("80Gi")) >= 0'
H100 = f'{A}.model == "H100"'
WITHOUT = device("gpu-0", attributes={"numa": {"int": 0}})
OTHERS = resource_slice([device("port-0")], driver="net.example.com")


def answer(cluster: ClusterState, *documents: Any, node: str = "") -> Report:
    return explain(cluster, ManifestSubject(documents, "ns", "f.yaml"), node=node)


def asking(cluster: ClusterState, cel: str = "", *, node: str = "", **more: Any) -> Report:
    return answer(cluster, words.claim(request(cel=cel, **more)), node=node)


def verdicts(report: Report) -> tuple[Verdict, ...]:
    return report.claims[0].requests[0].verdicts


def changes(report: Report) -> list[str]:
    return [f"{one.what} on {one.on}" for one in report.changes]


def model(name: str, **more: Any) -> dict[str, Any]:
    return device(name, attributes={"model": {"string": more.pop("model")}}, **more)


def on(*nodes: str, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A device for each of these nodes, which are made too."""
    made = [words.node(name) for name in nodes if name != HOME]
    return [
        *made,
        *(resource_slice([one], pool=name) for name, one in zip(nodes, listed, strict=True)),
    ]


def test_a_condition_that_all_devices_of_the_driver_fail_is_to_blame() -> None:
    mig = f'device.driver == "{GPU}" && {A}.model == "X" && {A}.numa == 7'
    cluster = state(resource_slice([device("a")]), OTHERS, device_class("mig", expression=mig))
    report = asking(cluster, deviceClassName="mig")
    part, found = f'{A}.model == "X"', 'model is "H100" (1)'
    told = SelectorNeverMatches("class mig", 0, part, found, drivers=(GPU,))
    assert verdicts(report) == (told,)
    assert report.claims[0].requests[0].nearest.device == f"{GPU}/{HOME}/a"


def test_conditions_that_no_device_meets_at_once_are_told_together() -> None:
    listed = [device("a", memory="40Gi"), model("b", model="A100"), model("c", model="A100")]
    told = SelectorNeverMatches(
        "request",
        0,
        H100,
        'model is "A100" (2), "H100" (1); memory is 80Gi (2), 40Gi (1)',
        others=(MEMORY,),
    )
    assert verdicts(asking(state(resource_slice(listed)), f"{H100} && {MEMORY}")) == (told,)
    listed = [device("a"), device("b", numa=1)]
    odd = f"{A}.numa % 2 == 1"
    (told,) = verdicts(asking(state(resource_slice(listed)), f"{odd} && {A}.numa < 1"))
    assert told.found == f"{odd} is false for 1; numa is 0 (1), 1 (1)"


def test_only_texts_are_taken_for_mistyped() -> None:
    for cel, hint in (
        (f'{A}.model == "H10O"', 'did you mean "H100"?'),
        (f'{A}.model == "H200"', ""),
        (f"{A}.numa == 10", ""),
    ):
        (told,) = verdicts(asking(state(resource_slice([device("a", numa=100)])), cel))
        assert told.hint == hint


def test_a_text_is_not_taken_for_a_mistyped_version() -> None:
    published = device("a", attributes={"driverVersion": {"version": "550.54.15"}})
    report = asking(state(resource_slice([published])), f'"550.54.15" == {A}.driverVersion')
    (told,) = verdicts(report)
    right = 'semver("550.54.15") instead of "550.54.15"'
    assert told.hint == f"driverVersion is a version: write {right}"
    assert changes(report) == [
        f"request gpu of claim ns/mine: write {right}, because {A}.driverVersion is a version on {HOME}",
        f'request gpu of claim ns/mine: leave out "550.54.15" == {A}.driverVersion on {HOME}',
    ]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("more", [0, MANY])
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('"560.1.2" == @', 'semver("560.1.2") instead of "560.1.2", because @ is a version'),
        ('"560.1" == @', '@.major() == 560 && @.minor() == 1 instead of "560.1" == @'),
        (
            '"560.1.2" == @ || "555" == @',
            'semver("560.1.2") instead of "560.1.2", because @ is a version; write @.major() == 555 instead of "555" == @',
        ),
    ],
)
def test_a_version_is_corrected_whichever_device_has_it(
    wrong: str, right: str, more: int, order: int
) -> None:
    path = f"{A}.driverVersion"
    versions = ["550.54.15", "560.1.2", *(f"530.1.{number}" for number in range(more))]
    listed = [
        device(f"gpu-{number}", attributes={"driverVersion": {"version": version}})
        for number, version in enumerate(versions[::order])
    ]
    report = asking(state(resource_slice(listed)), wrong.replace("@", path))
    right = right.replace("@", path)
    assert changes(report)[0] == f"request gpu of claim ns/mine: write {right} on {HOME}"


def test_with_a_corrected_version_something_else_is_changed_but_no_other_version_is_proposed() -> (
    None
):
    versions = ("550.54.15", "560.1.2")
    listed = [
        device(f"gpu-{one}", attributes={"model": {"string": "H100"}, "version": {"version": one}})
        for one in versions
    ]
    cluster = state(resource_slice(listed))
    (what,) = changes(asking(cluster, f'{A}.model == "B100" && "560.1.2" == {A}.version'))
    assert what == (
        f'request gpu of claim ns/mine: write semver("560.1.2") instead of "560.1.2", because {A}.version is a version; '
        f'request gpu of claim ns/mine: write {H100} instead of {A}.model == "B100" on {HOME}'
    )
    (what,) = changes(asking(cluster, f'"570.1.2" == {A}.version'))
    assert what == f'request gpu of claim ns/mine: leave out "570.1.2" == {A}.version on {HOME}'


def test_a_driver_that_publishes_nothing_is_told_with_one_that_is_spelled_alike() -> None:
    cluster = state(OTHERS, resource_slice([device("a")], driver="gpus.example.com"))
    told = DriverPublishesNothing(GPU, "did you mean gpus.example.com?")
    assert verdicts(asking(cluster)) == (told,)
    assert verdicts(asking(state(OTHERS))) == (DriverPublishesNothing(GPU),)


def test_a_run_time_error_is_told_before_all_else() -> None:
    report = asking(state(resource_slice([WITHOUT, device("gpu-1")])), H100)
    (told,) = verdicts(report)
    assert isinstance(told, SelectorError)
    assert told.hint == f"{GPU}/{HOME}/gpu-0 has no attribute model, it has: numa"
    assert changes(report) == [
        f"request gpu of claim ns/mine: put has({A}.model) && before {H100} on {HOME}"
    ]


def test_an_error_on_a_node_that_is_tried_later_stops_the_pod_too() -> None:
    report = asking(state(*on(HOME, "n2", listed=[device("gpu-0"), WITHOUT])), H100)
    assert (report.exit_code, type(verdicts(report)[0])) == (1, SelectorError)
    assert changes(report) == [
        f"request gpu of claim ns/mine: put has({A}.model) && before {H100} on {HOME}"
    ]


def test_an_error_where_the_pod_does_not_go_is_not_told_as_the_reason() -> None:
    cluster = state(*on(HOME, "n2", listed=[device("gpu-0"), WITHOUT]))
    pinned = words.pod(nodeSelector={"kubernetes.io/hostname": HOME})
    report = answer(cluster, words.claim(request(cel=H100, count=2)), pinned)
    assert verdicts(report) == (NotEnoughDevices(2, 1),)
    nowhere = words.pod(nodeSelector={"no": "where"})
    only = state(resource_slice([WITHOUT]))
    (told,) = verdicts(answer(only, words.claim(request(cel=H100)), nowhere))
    assert isinstance(told, SelectorError)


def test_a_mistyped_name_is_corrected() -> None:
    report = asking(state(resource_slice([device("gpu-0")])), f'{A}.modle == "H100"')
    (told,) = verdicts(report)
    assert told.hint.endswith("it has: model, numa; did you mean model?")
    assert changes(report) == [
        f"request gpu of claim ns/mine: write {A}.model instead of {A}.modle on {HOME}",
        f'request gpu of claim ns/mine: leave out {A}.modle == "H100" on {HOME}',
    ]


def test_a_guard_is_left_out_with_what_it_guards() -> None:
    report = asking(state(resource_slice([device("gpu-0")])), f'has({A}.x) && {A}.x == "y"')
    assert changes(report) == [
        f'request gpu of claim ns/mine: leave out has({A}.x); leave out {A}.x == "y" on {HOME}'
    ]


def test_an_error_on_another_node_than_the_one_that_is_asked_about_stops_the_pod() -> None:
    cluster = state(*on(HOME, "n2", listed=[device("gpu-0"), WITHOUT]))
    report = asking(cluster, H100, node=HOME)
    assert report.exit_code == 1
    assert report.summary.startswith("the scheduler gives up on all nodes: ")
    (told,) = verdicts(report)
    assert f"{GPU}/n2/gpu-0 has no attribute model" in str(told)
    guard = f'put has(device.attributes["{GPU}"].model) && before {H100}'
    assert changes(report) == [f"request gpu of claim ns/mine: {guard} on {HOME}"]
    assert [group.nodes for group in report.nodes] == [(HOME,)]
    assert asking(cluster, node=HOME).exit_code == 0


def test_a_value_is_meant_that_a_device_has_there(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [model("gpu-0", model="Hopper"), model("gpu-1", model="Ampere")]
    cluster = state(*on(HOME, "n2", listed=listed))

    def hint(node: str) -> str:
        (told,) = verdicts(asking(cluster, f'{A}.model == "Hoper"', node=node))
        assert isinstance(told, SelectorNeverMatches)
        return told.hint

    assert (hint(HOME), hint("n2")) == ('did you mean "Hopper"?', "")
    monkeypatch.setattr(closeness, "MOST_MEANT", 0)  # what all texts of a request cost is bounded
    assert hint(HOME) == ""


def test_a_device_by_another_attribute_is_not_offered_as_a_correction() -> None:
    values = {"numaNode": {"int": 1}, "index": {"int": 1}}
    cluster = state(resource_slice([device("gpu-0", attributes=values)]))
    assert changes(asking(cluster, f"{A}.node == 1")) == [
        f"request gpu of claim ns/mine: write {A}.numaNode instead of {A}.node on {HOME}",
        f"request gpu of claim ns/mine: leave out {A}.node == 1 on {HOME}",
    ]
    assert changes(asking(cluster, f"{A}.mode == 1")) == [
        f"request gpu of claim ns/mine: leave out {A}.mode == 1 on {HOME}"
    ]


def test_a_constraint_on_a_mistyped_attribute_is_corrected() -> None:
    two = words.claim(request("a"), request("b"), constraints=[{"matchAttribute": f"{GPU}/nuna"}])
    report = answer(state(resource_slice([device("a"), device("b")])), two)
    assert changes(report)[0] == f"claim ns/mine: write {GPU}/numa instead of {GPU}/nuna on {HOME}"


def test_mistyped_attributes_of_several_constraints_are_corrected_together() -> None:
    constraints = [{"matchAttribute": f"{GPU}/nuna"}, {"distinctAttribute": f"{GPU}/indexx"}]
    listed = [device(f"gpu-{n}", attributes={"numa": {"int": 0}, "index": {"int": n}}) for n in (0, 1)]  # fmt: skip
    two = words.claim(request("a"), request("b"), constraints=constraints)
    report = answer(state(resource_slice(listed)), two)
    right = f"write {GPU}/numa instead of {GPU}/nuna and write {GPU}/index instead of {GPU}/indexx"
    assert changes(report) == [f"claim ns/mine: {right} on {HOME}"]
