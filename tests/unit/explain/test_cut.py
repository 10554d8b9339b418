# SPDX-License-Identifier: Apache-2.0
"""What is said when the time ends in the middle: that it is not known, and no reason that would be another one with more time."""

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any

import pytest

from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.counting import lacking
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.report import ClaimSubject, explain
from dra_driver.explain.trial import TrialResult
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import device, devices, request, resource_slice
from tests.unit.explain.clusters import claim, state

MINE = ClaimSubject("ns", words.MINE)
LATE = TrialResult(error="the search took too long", cancelled=True)


def cluster(
    slices: Sequence[dict[str, Any]], *requests: dict[str, Any], **parts: Any
) -> ClusterState:
    mine = words.claim(*requests, **parts)
    mine["metadata"]["namespace"] = "ns"
    return state(*slices, words.node("other"), mine)


def after(looks: int) -> Callable[[], bool]:
    left = iter(range(looks))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("more", [{"count": 2}, {"allocationMode": "All"}])
def test_a_device_whose_selector_had_no_time_is_not_counted_as_one_that_does_not_match(
    more: dict[str, Any],
) -> None:
    slow = request(cel="lists.range(200000).all(x, x >= 0)", **more)
    fleet = Fleet(state(resource_slice(devices(2))))
    wanted = next(requests_in(claim(slow)))
    explained = RequestExplained(fleet, wanted, DeviceNodes(fleet.state.nodes), after(40))
    (told,) = lacking(explained, fleet.all_devices)
    assert isinstance(told, CouldNotTell)


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_how_many_devices_there_are_is_not_known_once_a_retry_is_cut(
    monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    answers = chain(repeat(TrialResult(error="no"), answered), repeat(LATE))
    monkeypatch.setattr(NodesExplained, "try_again", lambda *_: next(answers))
    shared = [device(f"d{number}") for number in range(3)]
    report = explain(cluster([resource_slice(shared)], request(count=5)), MINE)
    told = report.claims[0].requests[0].verdicts
    assert any(isinstance(one, CouldNotTell) for one in told), told


def test_a_conflict_of_one_node_is_not_taken_for_that_of_another() -> None:
    def of(first: str, second: str, attribute: str) -> dict[str, Any]:
        return {"requests": [first, second], "matchAttribute": f"{words.GPU}/{attribute}"}

    here = [device(name, numa=number) for number, name in enumerate("xyz")]
    there = [device(name) for name in "pqr"]
    for number, one in enumerate(there):
        one["attributes"]["model"] = {"string": f"m{number}"}
    slices = [resource_slice(here), resource_slice(there, pool="other", nodeName="other")]
    constraints = [of("a", "b", "numa"), of("b", "c", "model")]
    report = explain(
        cluster(slices, request("a"), request("b"), request("c"), constraints=constraints), MINE
    )
    said = [str(one) for node in report.nodes for one in node.devices]
    assert any("numa" in one for one in said), said
    assert any("model" in one for one in said), said
