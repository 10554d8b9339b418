# SPDX-License-Identifier: Apache-2.0
"""What would have to be different: proposals made of what the nearest device misses."""

from typing import Any

import pytest

from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.explain import closeness
from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.misses import nearest
from dra_driver.explain.mistyped import mistyped
from dra_driver.explain.proposals import fewer, from_errors, from_miss, other_class
from dra_driver.explain.reasons import RequestExplained
from dra_driver.model.cluster import ClusterState
from tests.e2e.fleet import GPU, device, device_class, devices, request, resource_slice
from tests.unit.explain.clusters import claim, explained, holder, state
from tests.unit.explain.test_reasons import counters

A = f'device.attributes["{GPU}"]'
TAINT = [{"key": "k", "value": "v", "effect": "NoSchedule"}]


def proposals(cluster: ClusterState, wanted: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    found, fleet = explained(cluster, claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    assert miss is not None
    return [(one.what, one.ended) for one in from_miss(found, found.request, miss)]


def one(**more: Any) -> dict[str, Any]:
    return resource_slice([device("gpu-0", **more)])


def asking(**amounts: str) -> dict[str, Any]:
    return request(capacity={"requests": amounts})


def test_a_taint_is_tolerated() -> None:
    assert proposals(state(one(taints=TAINT)), request()) == [
        ("request gpu of claim ns/mine: tolerate k=v:NoSchedule", ())
    ]


def test_conditions_are_relaxed_or_left_out_and_the_others_kept() -> None:
    wanted = request()
    texts = ["true", f"{A}.numa == 7 && {A}.numa > 8", "1 == 2"]
    wanted["exactly"]["selectors"] = [{"cel": {"expression": text}} for text in texts]
    found, fleet = explained(state(one()), claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    (proposal,) = from_miss(found, found.request, miss)
    (body,) = (asked.body for asked in requests_in(proposal.claim))
    assert [selector.cel.expression for selector in body.selectors] == ["true", f"{A}.numa == 0"]
    assert proposal.what == (
        f"request gpu of claim ns/mine: write {A}.numa == 0 instead of {A}.numa == 7; leave out {A}.numa > 8; "
        "leave out 1 == 2"
    )


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (
            asking(memory="100Gi"),
            "request gpu of claim ns/mine: ask for memory 80Gi instead of 100Gi",
        ),
        (asking(none="1"), "request gpu of claim ns/mine: do not ask for none"),
        (asking(none="1", memory="1Gi"), "request gpu of claim ns/mine: do not ask for none"),
    ],
)
def test_an_amount_is_lowered(wanted: dict[str, Any], what: str) -> None:
    assert proposals(state(one()), wanted) == [(what, ())]


def test_what_is_left_of_a_shared_device_is_proposed_unless_it_is_nothing() -> None:
    shared = one(allowMultipleAllocations=True)
    some = holder("gpu-0", shareID="s", consumedCapacity={"memory": "50Gi"})
    ended = ("", ("ns/holder",))
    assert proposals(state(shared, some), asking(memory="40Gi")) == [
        ended,
        ("request gpu of claim ns/mine: ask for memory 30Gi instead of 40Gi", ()),
    ]
    rest = holder("gpu-0", shareID="s", consumedCapacity={"memory": "80Gi"})
    assert proposals(state(shared, rest), asking(memory="40Gi")) == [ended]
    assert proposals(state(shared, some), request()) == [
        ended,
        ("request gpu of claim ns/mine: ask for memory 30Gi", ()),
    ]
    assert proposals(state(shared, rest), request()) == [ended]


def valid(**policy: Any) -> dict[str, Any]:
    return one(capacity={"memory": {"value": "80Gi", "requestPolicy": policy}})


def test_an_amount_is_lowered_to_what_the_policy_of_the_device_allows() -> None:
    steps = valid(validRange={"min": "10Gi", "max": "25Gi", "step": "10Gi"}, default="10Gi")
    lowered = [("request gpu of claim ns/mine: ask for memory 20Gi instead of 30Gi", ())]
    assert proposals(state(steps), asking(memory="30Gi")) == lowered
    values = valid(validValues=["10Gi", "20Gi", "100Gi"], default="10Gi")
    assert proposals(state(values), asking(memory="30Gi")) == lowered
    nothing = valid(validRange={"min": "100Gi"}, default="100Gi")
    assert proposals(state(nothing), asking(memory="30Gi")) == [
        ("request gpu of claim ns/mine: do not ask for memory", ())
    ]
    other = {"memory": {"value": "80Gi", "requestPolicy": {"validValues": ["100Gi"]}}}
    unasked = one(capacity={**other, "cores": {"value": "1"}}, allowMultipleAllocations=True)
    assert proposals(state(unasked), asking(cores="1")) == []


def test_above_the_maximum_of_the_policy_what_is_left_is_proposed() -> None:
    policy = {"validRange": {"min": "10Gi", "max": "60Gi", "step": "10Gi"}, "default": "10Gi"}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    shared = one(capacity=capacity, allowMultipleAllocations=True)
    some = holder("gpu-0", shareID="s", consumedCapacity={"memory": "50Gi"})
    assert proposals(state(shared, some), asking(memory="70Gi")) == [
        ("request gpu of claim ns/mine: ask for memory 30Gi instead of 70Gi", ())
    ]
    rest = holder("gpu-0", shareID="s", consumedCapacity={"memory": "80Gi"})
    assert proposals(state(shared, rest), asking(memory="70Gi")) == [
        ("request gpu of claim ns/mine: do not ask for memory", ())
    ]


def test_claims_in_the_way_are_ended() -> None:
    assert proposals(state(one(), holder("gpu-0")), request()) == [("", ("ns/holder",))]
    parts = state(*counters(2), holder("gpu-0"))
    found, fleet = explained(parts, claim(request()))
    miss = nearest(found, list(fleet.devices.values())[1:])
    assert [(p.what, p.ended) for p in from_miss(found, found.request, miss)] == [
        ("", ("ns/holder",))
    ]


def test_what_no_request_can_change_is_not_proposed() -> None:
    incomplete = resource_slice(devices(1), slices=2)
    assert proposals(state(incomplete), request()) == []
    other = device_class("other", expression='device.driver == "x"')
    assert proposals(state(one(), other), request(deviceClassName="other")) == []


@pytest.mark.parametrize(
    ("key", "effect"),
    [("k", "NoExecute"), ("gpu.example.com/xid", "NoSchedule"), ("unhealthy", "NoSchedule")],
)
def test_a_device_that_does_not_work_is_not_proposed(key: str, effect: str) -> None:
    broken = [{"key": key, "value": "79", "effect": effect}]
    assert proposals(state(one(taints=broken)), request()) == []


MODEL, MEMORY = f"{A}.model", f'device.capacity["{GPU}"].memory'
CARDS = [("A100-SXM4-40GB", "40Gi"), ("H100 80GB HBM3", "81559Mi"), ("T4", "15360Mi")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize(
    ("condition", "relaxed"),
    [
        (
            f'{MEMORY}.compareTo(quantity("80Gi")) >= 0',
            f'{MEMORY}.compareTo(quantity("81559Mi")) >= 0',
        ),
        (f'{MODEL} == "H100"', f'{MODEL} == "H100 80GB HBM3"'),
        (f'{MODEL} == "H100-80GB"', f'{MODEL} == "H100 80GB HBM3"'),
        (f'{MODEL} in ["T4 16GB"]', f'{MODEL} in ["T4 16GB", "T4"]'),
        (
            f'{MODEL} == "A10O-SXM4-4OGB" && {MEMORY} == quantity("41Gi")',
            f'{MODEL} == "A100-SXM4-40GB" && {MEMORY} == quantity("40Gi")',
        ),
        (
            f'{MODEL} == "H100" && {MEMORY}.compareTo(quantity("0")) > 0',
            f'{MODEL} == "H100 80GB HBM3"',
        ),
    ],
)
def test_of_equally_near_devices_the_one_with_the_closest_values_is_nearest(
    order: tuple[int, ...], condition: str, relaxed: str
) -> None:
    """Whatever the order of the devices."""
    listed = [
        device(f"gpu-{place}", attributes={"model": {"string": model}}, memory=memory)
        for place, (model, memory) in enumerate(CARDS[card] for card in order)
    ]
    found, fleet = explained(state(resource_slice(listed)), claim(request(cel=condition)))
    miss = nearest(found, list(fleet.devices.values()))
    assert miss is not None
    assert " && ".join(part.relaxed for _, part in miss.parts) == relaxed


def test_a_device_without_the_value_is_no_nearer_than_one_with_another() -> None:
    listed = [device("gpu-0"), device("gpu-1", attributes={"kind": {"string": "A100"}})]
    wanted = request(cel=f'has({A}.kind) && {A}.kind == "B300"')
    found, fleet = explained(state(resource_slice(listed)), claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    assert miss is not None
    assert miss.device.id.device == "gpu-1"


def test_of_very_many_different_values_the_first_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closeness, "MOST_COMPARED", 2)
    listed = [device(f"gpu-{number}", memory=f"{number}Gi") for number in range(1, 5)]
    wanted = request(cel=f'{MEMORY}.compareTo(quantity("8Gi")) >= 0')
    found, fleet = explained(state(resource_slice(listed)), claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    assert miss is not None
    assert miss.device.id.device == "gpu-2"


def test_the_more_values_are_asked_for_the_fewer_devices_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closeness, "MOST_COMPARED", 4)
    listed = [device(f"gpu-{number}", numa=number) for number in range(1, 5)]
    for asked, compared in (("[8]", "gpu-4"), ("[8, 9]", "gpu-2"), ("[8, 9, 10, 11, 12]", "gpu-1")):
        found, fleet = explained(
            state(resource_slice(listed)), claim(request(cel=f"{A}.numa in {asked}"))
        )
        miss = nearest(found, list(fleet.devices.values()))
        assert miss is not None
        assert miss.device.id.device == compared


def looked_up(listed: list[dict[str, Any]], *texts: str, over: bool = False) -> list[str]:
    """The models that texts mean, each as one of the same request."""
    wanted = claim(request(cel=f'{MODEL} == "x"'))
    fleet = explained(state(resource_slice(listed)), wanted)[1]
    asked = next(requests_in(wanted))
    found = RequestExplained(fleet, asked, DeviceNodes(()), lambda: over)
    near = closeness.closeness_for(found).meant
    return [near(DevicePath("attributes", GPU, "model"), f'"{text}"') for text in texts]


HOPPER = [
    device(f"gpu-{place}", attributes={"model": {"string": model}})
    for place, model in enumerate(("Grace", "Hopper", "H100"))
]


def test_of_very_many_texts_the_first_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each costs one, and one for each value of the same model: a text without digits two.
    monkeypatch.setattr(closeness, "MOST_MEANT", 8)
    assert looked_up(HOPPER, "Hoppr", "Hopper", "Hoper", "Hoppr", "Hpper", "Grac") == [
        '"Hopper"', "", '"Hopper"', '"Hopper"', '"Hopper"', "",
    ]  # fmt: skip
    assert looked_up(HOPPER, "H200", "H1O0", "H10O", "Hoppr", "Grac") == [
        "", '"H100"', '"H100"', '"Hopper"', "",
    ]  # fmt: skip


def test_no_text_is_looked_up_when_the_time_is_over() -> None:
    assert looked_up(HOPPER, "Hoppr") == ['"Hopper"']
    assert looked_up(HOPPER, "Hoppr", over=True) == [""]


def test_no_mistyped_value_is_looked_for_when_the_time_is_over() -> None:
    wanted = claim(request(cel=f'{MODEL} == "H1O0"'))
    found, fleet = explained(state(resource_slice(HOPPER)), wanted)
    miss = nearest(found, list(fleet.devices.values()))
    assert miss is not None
    assert mistyped(found, fleet.all_devices, miss) is not None
    late = RequestExplained(fleet, found.request, DeviceNodes(()), lambda: True)
    assert mistyped(late, fleet.all_devices, miss) is None


def test_the_device_that_misses_least_is_nearest() -> None:
    listed = [device("a", taints=TAINT, numa=1), device("b", taints=TAINT), device("c", numa=1)]
    wanted = request(cel=f"{A}.numa == 0")
    found, fleet = explained(state(resource_slice(listed)), claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    assert (miss.device.id.device, len(miss.reasons)) == ("b", 1)
    assert nearest(found, []) is None


def test_a_device_of_another_driver_is_never_nearer() -> None:
    ours, other = (
        resource_slice([device("a")]),
        resource_slice([device("b")], pool="x", driver="x.y"),
    )
    wanted = f'device.driver == "{GPU}" && {A}.model == "B" && {A}.numa == 7 && {A}.model != "H100"'
    anything = device_class("c", expression="true")
    asking_it = claim(request(deviceClassName="c", cel=wanted))
    found, fleet = explained(state(other, ours, anything), asking_it)
    listed = sorted(fleet.devices.values(), key=lambda one: one.id.driver, reverse=True)
    assert [one.id.device for one in listed] == ["b", "a"]
    assert nearest(found, listed).device.id.device == "a"


def from_failing(listed: list[dict[str, Any]], *texts: str) -> list[tuple[str, list[str]]]:
    wanted = request()
    wanted["exactly"]["selectors"] = [{"cel": {"expression": text}} for text in texts]
    found, _ = explained(state(resource_slice(listed)), claim(wanted))
    return [
        (
            proposal.what,
            [
                one.cel.expression
                for asked in requests_in(proposal.claim)
                for one in asked.body.selectors
            ],
        )
        for proposal in from_errors(found, None)
    ]


def test_a_name_that_no_device_has_is_corrected_or_guarded() -> None:
    guard = f"has({A}.modle)"
    assert from_failing([device("a")], "true", f'{A}.modle == "x"') == [
        (
            f"request gpu of claim ns/mine: write {A}.model instead of {A}.modle",
            ["true", f'{A}.model == "x"'],
        ),
        (
            f'request gpu of claim ns/mine: put {guard} && before {A}.modle == "x"',
            ["true", f'{guard} && {A}.modle == "x"'],
        ),
        (f'request gpu of claim ns/mine: leave out {A}.modle == "x"', ["true"]),
    ]
    assert from_failing([device("a")], "true") == []
    assert from_failing([device("a")], f"{A}.numa / 0 == 1 && {A}.numa == 0") == [
        (f"request gpu of claim ns/mine: leave out {A}.numa / 0 == 1", [f"{A}.numa == 0"])
    ]
    lacking = [device("a"), device("b", attributes={"numa": {"int": 0}})]
    assert [what for what, _ in from_failing(lacking, f'{A}.model == "H100"')] == [
        f'request gpu of claim ns/mine: put has({A}.model) && before {A}.model == "H100"'
    ]


def test_a_selector_of_a_class_is_corrected_in_the_class() -> None:
    right = f"class broken: write {A}.model instead of {A}.modle"
    for text, miss in ((f'{A}.modle == "H100"', False), (f"has({A}.modle)", True)):
        broken = device_class("broken", expression=text)
        cluster = state(one(), broken)
        found, fleet = explained(cluster, claim(request(deviceClassName="broken")))
        listed = list(fleet.devices.values())
        near = nearest(found, listed)
        assert bool(near.parts) is miss
        first = next(from_miss(found, found.request, near) if miss else from_errors(found, None))
        (selector,) = first.classes["broken"].spec.selectors
        assert (first.what, first.kind, first.claim.spec) == (
            right,
            "correct",
            claim(request(deviceClassName="broken")).spec,
        )
        assert selector.cel.expression == text.replace("modle", "model")


def test_a_mistyped_name_in_a_guard_is_corrected_throughout() -> None:
    cel = f'has({A}.modle) && {A}.modle == "H100"'
    assert [what for what, _ in proposals(state(one()), request(cel=cel))] == [
        f"request gpu of claim ns/mine: write {A}.model instead of {A}.modle",
        f'request gpu of claim ns/mine: leave out has({A}.modle); leave out {A}.modle == "H100"',
    ]


def test_fewer_devices_or_another_class_are_proposed() -> None:
    (exact,) = requests_in(claim(request(count=4)))
    (everything,) = requests_in(claim(request(allocationMode="All", count=0)))
    assert fewer(exact, 2).what == "request gpu of claim ns/mine: ask for 2 instead of 4"
    less = fewer(everything, 2)
    (body,) = (asked.body for asked in requests_in(less.claim))
    assert (less.what, body.allocation_mode, body.count) == (
        "request gpu of claim ns/mine: ask for 2 instead of all",
        "ExactCount",
        2,
    )
    other = other_class(exact, "big")
    assert [asked.body.device_class_name for asked in requests_in(other.claim)] == ["big"]


def test_a_device_that_a_correction_finds_is_nearer_than_one_that_needs_another_value() -> None:
    listed = [device("a", numa=1), device("b", attributes={"nuna": {"int": 0}})]
    found, fleet = explained(
        state(resource_slice(listed)), claim(request(cel=f"has({A}.numa) && {A}.numa == 0"))
    )
    assert nearest(found, list(fleet.devices.values())).device.id.device == "b"
