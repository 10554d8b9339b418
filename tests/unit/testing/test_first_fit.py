# SPDX-License-Identifier: Apache-2.0
"""Which devices does the stand-in for the allocator give, and what does it say when it gives none?"""

from typing import Any

import pytest

from dra_driver.testing.first_fit import (
    Candidate,
    DeviceId,
    FirstFit,
    Unsatisfied,
    candidates,
    holders,
    results,
)

DRIVER = "gpu.example.com"
NODE = "node-1"
Object = dict[str, Any]


def device(name: str, memory: str = "80Gi", **more: Any) -> Object:
    return {"name": name, "capacity": {"memory": {"value": memory}}, **more}


def stored(
    name: str, *devices: Object, generation: int = 1, count: int = 1, **place: Any
) -> Object:
    pool = {"name": NODE, "generation": generation, "resourceSliceCount": count}
    where = place or {"nodeName": NODE}
    return {
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "pool": pool, "devices": list(devices), **where},
    }


def device_class(expression: str = "true", **more: Any) -> Object:
    return {"spec": {"selectors": [{"cel": {"expression": expression}}], **more}}


def at_least(memory: str) -> list[Object]:
    expression = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0'
    return [{"cel": {"expression": expression}}]


def claim(*requests: Object, **more: Any) -> Object:
    return {
        "metadata": {"namespace": "default", "name": "c"},
        "spec": {"devices": {"requests": list(requests), **more}},
    }


def exactly(name: str = "gpu", **asked: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **asked}}


def first_fit(*devices: Object, held: dict[DeviceId, str] | None = None) -> FirstFit:
    offered = candidates([stored("s", *devices)], NODE)
    return FirstFit({"gpu": device_class()}, offered, held or {})


def given(answer: Object | Unsatisfied) -> list[tuple[str, str]]:
    assert not isinstance(answer, Unsatisfied), str(answer)
    return [(result["request"], result["device"]) for result in answer["devices"]["results"]]


def refusal(answer: Object | Unsatisfied) -> Unsatisfied:
    assert isinstance(answer, Unsatisfied)
    return answer


def test_the_first_device_that_matches_is_given() -> None:
    fit = first_fit(device("a", "10Gi"), device("b"), device("c"))
    assert fit.allocate(claim(exactly(selectors=at_least("40Gi")))) == {
        "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "b"}]}
    }
    assert fit.holders == {DeviceId(DRIVER, NODE, "b"): "default/c"}


def test_a_refusal_has_one_line_for_each_device_with_what_it_has() -> None:
    taken = {DeviceId(DRIVER, NODE, "b"): "default/other"}
    fit = first_fit(device("a", "10Gi"), device("b"), held=taken)
    answer = refusal(fit.allocate(claim(exactly(selectors=at_least("40Gi")))))
    assert str(answer).splitlines() == [
        "request gpu: 0 of 1 devices of DeviceClass gpu",
        f'  selector 0 of the request: device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
        "  a: selector 0 of the request is false (memory 10Gi)",
        "  b: allocated to claim default/other",
    ]
    assert fit.holders == taken


def test_selectors_of_the_class_come_before_those_of_the_request() -> None:
    fit = FirstFit({"gpu": device_class("false")}, candidates([stored("s", device("a"))], NODE), {})
    answer = refusal(fit.allocate(claim(exactly(selectors=at_least("40Gi")))))
    assert answer.devices == ("a: selector 0 of DeviceClass gpu is false",)


def test_a_selector_that_fails_ends_the_attempt_though_another_device_would_match() -> None:
    fit = first_fit({"name": "a"}, device("b"))
    answer = refusal(fit.allocate(claim(exactly(selectors=at_least("40Gi")))))
    assert answer.request == "request gpu: a selector failed, which ends the attempt"
    assert "no such key: memory" in str(answer)


def test_two_requests_of_a_claim_get_different_devices() -> None:
    fit = first_fit(device("a"), device("b"), device("c"))
    answer = fit.allocate(claim(exactly("x"), exactly("y", count=2)))
    assert given(answer) == [("x", "a"), ("y", "b"), ("y", "c")]


def test_a_count_that_is_not_there_gives_nothing() -> None:
    answer = refusal(first_fit(device("a")).allocate(claim(exactly("x"), exactly("y"))))
    assert answer.request == "request y: 0 of 1 devices of DeviceClass gpu"
    assert answer.devices == ("a: taken by another request of this claim",)


def test_all_means_every_device_that_matches() -> None:
    fit = first_fit(device("a"), device("b", "10Gi"), device("c"))
    asked = exactly(allocationMode="All", selectors=at_least("40Gi"))
    assert given(fit.allocate(claim(asked))) == [("gpu", "a"), ("gpu", "c")]


def test_all_gives_nothing_when_one_of_them_is_taken() -> None:
    taken = {DeviceId(DRIVER, NODE, "b"): "default/other"}
    fit = first_fit(device("a"), device("b"), held=taken)
    answer = refusal(fit.allocate(claim(exactly(allocationMode="All"))))
    assert answer.request == "request gpu: 1 of all devices of DeviceClass gpu"
    assert answer.devices == ("b: allocated to claim default/other",)


def test_all_of_nothing_is_nothing() -> None:
    answer = refusal(first_fit().allocate(claim(exactly(allocationMode="All"))))
    assert answer.devices == ("no complete pool offers a device on this node",)


def test_the_first_alternative_that_fits_is_taken() -> None:
    subs = [
        {"name": "huge", "deviceClassName": "gpu", "selectors": at_least("1Ti")},
        {"name": "large", "deviceClassName": "gpu", "selectors": at_least("40Gi")},
    ]
    fit = first_fit(device("a", "10Gi"), device("b"))
    assert given(fit.allocate(claim({"name": "gpu", "firstAvailable": subs}))) == [
        ("gpu/large", "b")
    ]


def test_when_no_alternative_fits_each_says_why() -> None:
    subs = [{"name": "huge", "deviceClassName": "gpu", "selectors": at_least("1Ti")}]
    answer = refusal(
        first_fit(device("a")).allocate(claim({"name": "gpu", "firstAvailable": subs}))
    )
    assert answer.request == "request gpu: no alternative fits"
    assert answer.devices[0] == "request gpu/huge: 0 of 1 devices of DeviceClass gpu"
    assert answer.devices[-1] == "  a: selector 0 of the request is false (memory 80Gi)"


def test_admin_access_neither_needs_a_free_device_nor_takes_one() -> None:
    taken = {DeviceId(DRIVER, NODE, "a"): "default/other"}
    fit = first_fit(device("a"), held=dict(taken))
    answer = fit.allocate(claim(exactly(adminAccess=True)))
    assert given(answer) == [("gpu", "a")]
    assert not isinstance(answer, Unsatisfied)
    assert answer["devices"]["results"][0]["adminAccess"] is True
    assert fit.holders == taken


def test_configuration_of_the_class_comes_first_and_of_alternatives_not_chosen_not_at_all() -> None:
    opaque = {"driver": DRIVER, "parameters": {"kind": "X"}}
    classes = {"gpu": device_class(config=[{"opaque": opaque}]), "other": device_class()}
    offered = candidates([stored("s", device("a"), device("b"))], NODE)
    subs = [{"name": name, "deviceClassName": "gpu"} for name in ("first", "second")]
    wanted = claim(
        {"name": "x", "firstAvailable": subs},
        {"name": "y", "exactly": {"deviceClassName": "other"}},
        config=[
            {"requests": ["x/second"], "opaque": opaque},
            {"requests": ["x"], "opaque": opaque},
            {"opaque": opaque},
        ],
    )
    answer = FirstFit(classes, offered, {}).allocate(wanted)
    assert not isinstance(answer, Unsatisfied)
    assert answer["devices"]["config"] == [
        {"source": "FromClass", "requests": ["x/first"], "opaque": opaque},
        {"source": "FromClaim", "requests": ["x"], "opaque": opaque},
        {"source": "FromClaim", "opaque": opaque},
    ]


def test_configuration_of_a_class_that_all_requests_use_names_none() -> None:
    opaque = {"driver": DRIVER, "parameters": {}}
    offered = candidates([stored("s", device("a"))], NODE)
    fit = FirstFit({"gpu": device_class(config=[{"opaque": opaque}])}, offered, {})
    answer = fit.allocate(claim(exactly()))
    assert not isinstance(answer, Unsatisfied)
    assert answer["devices"]["config"] == [{"source": "FromClass", "opaque": opaque}]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (claim(exactly(), constraints=[{"matchAttribute": "x/y"}]), "constraints are not known"),
        (
            claim({"name": "g", "exactly": {"deviceClassName": "none"}}),
            "no DeviceClass none; there are gpu",
        ),
        (claim(exactly(capacity={"requests": {"memory": "1Gi"}})), "capacity requests"),
        (claim(exactly(derivedAttributes=[{"name": "a/b"}])), "derived attributes"),
    ],
)
def test_what_the_stand_in_does_not_know_is_refused(wanted: Object, why: str) -> None:
    assert why in str(refusal(first_fit(device("a")).allocate(wanted)))


def test_a_device_with_taints_is_left_alone() -> None:
    fit = first_fit(device("a", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert "a: has taints" in str(refusal(fit.allocate(claim(exactly()))))


def test_more_than_32_devices_in_a_claim_are_refused() -> None:
    fit = first_fit(*(device(f"d{index}") for index in range(33)))
    answer = refusal(fit.allocate(claim(exactly(allocationMode="All"))))
    assert answer.request == "33 devices in one claim; 32 is the API's limit"


def test_only_complete_pools_of_the_newest_generation_on_this_node_count() -> None:
    old = stored("a", device("old"), generation=1)
    new = [
        stored("c", device("second"), generation=2, count=2),
        stored("b", device("first"), generation=2, count=2),
    ]
    elsewhere = stored("d", device("away"), nodeName="node-2")
    elsewhere["spec"]["pool"]["name"] = "node-2"
    names = [found.id.device for found in candidates([old, *new, elsewhere], NODE)]
    assert names == ["first", "second"]
    assert candidates(new[:1], NODE) == ()


def test_a_slice_for_all_nodes_counts_everywhere() -> None:
    entry = device("a")
    assert candidates([stored("s", entry, allNodes=True)], "any") == (
        Candidate(DeviceId(DRIVER, NODE, "a"), entry),
    )


def test_holders_are_read_from_allocations_but_for_admin_access() -> None:
    entries = [
        {"request": "g", "driver": DRIVER, "pool": NODE, "device": "a"},
        {"request": "g", "driver": DRIVER, "pool": NODE, "device": "b", "adminAccess": True},
    ]
    allocated = {
        "metadata": {"namespace": "ns", "name": "c"},
        "status": {"allocation": {"devices": {"results": entries}}},
    }
    open_claim = {"metadata": {"namespace": "ns", "name": "d"}}
    assert holders([allocated, open_claim]) == {DeviceId(DRIVER, NODE, "a"): "ns/c"}
    assert results(open_claim) == []
