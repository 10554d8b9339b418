# SPDX-License-Identifier: Apache-2.0
"""A claim of the pod that has devices already stays: nothing is advised that would take it away."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import PodSubject, explain
from dra_driver.explain.verdict import HeldByClaim
from dra_driver.model.api.core import Pod
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, devices, resource_slice
from tests.unit.explain.clusters import state
from tests.unit.explain.test_help_where import of

POD = PodSubject("ns", words.MINE)
ENTRIES = [
    {"name": "devices", "resourceClaimName": words.MINE},
    {"name": "more", "resourceClaimName": "more"},
]


def of_two_claims(cluster: ClusterState) -> ClusterState:
    """The cluster with a pod of two claims, of which `mine` has a device."""
    made = words.pod(resourceClaims=ENTRIES)
    made["metadata"] |= {"namespace": "ns", "uid": words.MINE}
    return msgspec.structs.replace(cluster, pods=(msgspec.convert(made, Pod),))


def asking(*objects: dict[str, Any]) -> Report:
    more = words.claim(name="more")
    more["metadata"] |= {"namespace": "ns"}
    return explain(of_two_claims(state(*objects, more)), POD)


def helps(report: Report) -> list[str]:
    return [one.what for one in report.changes]


@pytest.mark.parametrize("users", [("other",), (words.MINE,)])
def test_the_pods_own_claim_is_not_ended_for_it(users: tuple[str, ...]) -> None:
    report = asking(resource_slice(devices(1)), of(words.MINE, "gpu-0", pods=users))
    assert (report.exit_code, helps(report)) == (1, [])


def test_another_claim_is_ended_although_the_own_one_costs_less() -> None:
    mine = of(words.MINE, "gpu-0", pods=())
    report = asking(resource_slice(devices(2)), mine, of("a", "gpu-1"))
    assert helps(report) == ["end claim ns/a, used by ns/p-a"]
    nearest = report.claims[1].requests[0].nearest
    assert nearest is not None
    assert nearest.device == f"{GPU}/{HOME}/gpu-1"


def test_of_the_users_of_a_counter_only_others_are_ended() -> None:
    takes = [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]
    parts = [device(f"gpu-{n}", consumesCounters=takes) for n in range(3)]
    counters = resource_slice(name="counters", slices=2)
    counters["spec"]["sharedCounters"] = [{"name": "card", "counters": {"slices": {"value": "2"}}}]
    mine, other = of(words.MINE, "gpu-0"), of("a", "gpu-1")
    report = asking(counters, resource_slice(parts, slices=2), mine, other)
    assert helps(report) == ["end claim ns/a, used by ns/p-a"]


def test_the_advice_about_an_own_claim_is_to_free_other_devices() -> None:
    held = HeldByClaim("ns/mine", ("ns/p",))
    assert fix(held, own=("ns/mine",)).startswith("the pod needs this claim as well, so it stays: ")
    assert fix(held, own=("ns/other",)) == fix(held)
