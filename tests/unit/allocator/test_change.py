# SPDX-License-Identifier: Apache-2.0
"""What would have to be different: proposals made of what the nearest device misses."""

from typing import Any

import pytest

from dra_driver.allocator.asked import asked_of
from dra_driver.allocator.change import fewer, from_miss, nearest, other_class
from dra_driver.model.cluster import ClusterState
from tests.e2e.fleet import GPU, device, device_class, devices, request, resource_slice
from tests.unit.allocator.clusters import claim, explained, holder, state
from tests.unit.allocator.test_explain import counters

A = f'device.attributes["{GPU}"]'
TAINT = [{"key": "k", "value": "v", "effect": "NoSchedule"}]


def proposals(cluster: ClusterState, wanted: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    found, fleet = explained(cluster, claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    assert miss is not None
    return [(one.what, one.ended) for one in from_miss(found.asked, miss)]


def one(**more: Any) -> dict[str, Any]:
    return resource_slice([device("gpu-0", **more)])


def asking(**amounts: str) -> dict[str, Any]:
    return request(capacity={"requests": amounts})


def test_a_taint_is_tolerated() -> None:
    assert proposals(state(one(taints=TAINT)), request()) == [
        ("request gpu: tolerate k=v:NoSchedule", ())
    ]


def test_conditions_are_relaxed_or_left_out_and_the_others_kept() -> None:
    wanted = request()
    texts = ["true", f"{A}.numa == 7 && {A}.numa > 8", "1 == 2"]
    wanted["exactly"]["selectors"] = [{"cel": {"expression": text}} for text in texts]
    found, fleet = explained(state(one()), claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    (proposal,) = from_miss(found.asked, miss)
    (body,) = (asked.body for asked in asked_of(proposal.claim))
    assert [selector.cel.expression for selector in body.selectors] == ["true", f"{A}.numa == 0"]
    assert proposal.what == (
        f"request gpu: write {A}.numa == 0 instead of {A}.numa == 7; leave out {A}.numa > 8; "
        "leave out 1 == 2"
    )


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (asking(memory="100Gi"), "request gpu: ask for memory 80Gi instead of 100Gi"),
        (asking(none="1"), "request gpu: do not ask for none"),
        (asking(none="1", memory="1Gi"), "request gpu: do not ask for none"),
    ],
)
def test_an_amount_is_lowered(wanted: dict[str, Any], what: str) -> None:
    assert proposals(state(one()), wanted) == [(what, ())]


def test_what_is_left_of_a_shared_device_is_proposed_unless_it_is_nothing() -> None:
    shared = one(allowMultipleAllocations=True)
    some = holder("gpu-0", shareID="s", consumedCapacity={"memory": "50Gi"})
    assert proposals(state(shared, some), asking(memory="40Gi")) == [
        ("request gpu: ask for memory 30Gi instead of 40Gi", ())
    ]
    rest = holder("gpu-0", shareID="s", consumedCapacity={"memory": "80Gi"})
    assert proposals(state(shared, rest), asking(memory="40Gi")) == []
    assert proposals(state(shared, some), request()) == []


def test_claims_in_the_way_are_ended() -> None:
    assert proposals(state(one(), holder("gpu-0")), request()) == [
        ("end claim ns/holder", ("ns/holder",))
    ]
    parts = state(*counters(2), holder("gpu-0"))
    found, fleet = explained(parts, claim(request()))
    miss = nearest(found, list(fleet.devices.values())[1:])
    assert [(p.what, p.ended) for p in from_miss(found.asked, miss)] == [
        ("end claim ns/holder", ("ns/holder",))
    ]


def test_what_no_request_can_change_is_not_proposed() -> None:
    incomplete = resource_slice(devices(1), slices=2)
    assert proposals(state(incomplete), request()) == []
    other = device_class("other", expression='device.driver == "x"')
    assert proposals(state(one(), other), request(deviceClassName="other")) == []


def test_the_device_that_misses_least_is_nearest() -> None:
    listed = [device("a", taints=TAINT, numa=1), device("b", taints=TAINT), device("c", numa=1)]
    wanted = request(cel=f"{A}.numa == 0")
    found, fleet = explained(state(resource_slice(listed)), claim(wanted))
    miss = nearest(found, list(fleet.devices.values()))
    assert (miss.device.id.device, len(miss.reasons)) == ("b", 1)
    assert nearest(found, []) is None


def test_fewer_devices_or_another_class_are_proposed() -> None:
    (exact,) = asked_of(claim(request(count=4)))
    (everything,) = asked_of(claim(request(allocationMode="All", count=0)))
    assert fewer(exact, 2).what == "request gpu: ask for 2 instead of 4"
    less = fewer(everything, 2)
    (body,) = (asked.body for asked in asked_of(less.claim))
    assert (less.what, body.allocation_mode, body.count) == (
        "request gpu: ask for 2 instead of all",
        "ExactCount",
        2,
    )
    other = other_class(exact, "big")
    assert [asked.body.device_class_name for asked in asked_of(other.claim)] == ["big"]
