# SPDX-License-Identifier: Apache-2.0
"""Three rules of the scheduler differ between releases: incomplete pools, allocationMode All with nothing to allocate, and counters."""

from typing import Any

import pytest

from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CountersUsedUp,
    NotEnoughDevices,
    PoolIncomplete,
)
from tests.e2e.fleet import GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state
from tests.unit.explain.test_corners import asking

HALF = resource_slice(devices(1), slices=2)
NOTHING = "device.driver == 'nobody'"


def version(minor: int) -> str:
    return f"v1.{minor}.4" if minor else ""


@pytest.mark.parametrize("minor", [32, 33, 34])
def test_before_1_35_devices_of_an_incomplete_pool_are_taken(minor: int) -> None:
    report = asking(request(), cluster=state(HALF, kubernetesVersion=version(minor)))
    assert report.exit_code == 0
    assert [one.device for one in report.nodes[0].placement] == ["gpu-0"]
    more = asking(request(count=2), cluster=state(HALF, kubernetesVersion=version(minor)))
    assert more.claims[0].requests[0].verdicts == (NotEnoughDevices(2, 1),)


@pytest.mark.parametrize("minor", [35, 36, 37, 0])
def test_from_1_35_on_no_device_of_an_incomplete_pool_is_taken(minor: int) -> None:
    report = asking(request(), cluster=state(HALF, kubernetesVersion=version(minor)))
    assert report.exit_code == 1
    (group,) = report.claims[0].requests[0].devices
    assert group.verdict == PoolIncomplete(f"{GPU}/{HOME}", 1, 2, 1)


@pytest.mark.parametrize("minor", [32, 34, 35, 37])
def test_in_every_release_an_incomplete_pool_blocks_a_request_for_all_devices(minor: int) -> None:
    cluster = state(HALF, kubernetesVersion=version(minor))
    report = asking(request(allocationMode="All"), cluster=cluster)
    assert report.exit_code == 1
    (told,) = report.claims[0].requests[0].verdicts
    assert isinstance(told, AllUnsatisfied)
    (group,) = report.claims[0].requests[0].devices
    assert group.verdict == PoolIncomplete(f"{GPU}/{HOME}", 1, 2, 1)


@pytest.mark.parametrize(("minor", "code"), [(34, 1), (35, 0)])
def test_before_1_35_all_devices_are_not_had_of_a_pool_with_slices_for_other_nodes(
    minor: int, code: int
) -> None:
    there = resource_slice([device("there")], name="there", slices=2, nodeName="elsewhere")
    cluster = state(HALF, there, kubernetesVersion=version(minor))
    report = asking(request(allocationMode="All"), cluster=cluster)
    assert report.exit_code == code
    assert "currently being updated" in str(report.nodes[0].devices) or code == 0
    assert asking(request(), cluster=cluster).exit_code == 0


@pytest.mark.parametrize("minor", [32, 34])
def test_an_invalid_pool_blocks_also_if_it_is_incomplete(minor: int) -> None:
    twice = resource_slice([device("x"), device("x")], slices=2)
    assert asking(request(), cluster=state(twice, kubernetesVersion=version(minor))).exit_code == 1


@pytest.mark.parametrize(("minor", "code"), [(32, 0), (33, 1), (34, 1), (37, 1)])
@pytest.mark.parametrize("published", [[resource_slice(devices(1))], []])
def test_only_in_1_32_all_devices_may_be_none(
    minor: int, code: int, published: list[object]
) -> None:
    cluster = state(*published, kubernetesVersion=version(minor))
    report = asking(request(cel=NOTHING, allocationMode="All"), cluster=cluster)
    assert report.exit_code == code


def test_a_request_that_gets_no_devices_is_not_blamed_for_another_one() -> None:
    wanted = request("all", cel=NOTHING, allocationMode="All"), request("two", count=2)
    cluster = state(resource_slice(devices(1)), kubernetesVersion=version(32))
    report = asking(*wanted, cluster=cluster)
    served, short = report.claims[0].requests
    assert (served.verdicts, short.verdicts) == ((), (NotEnoughDevices(2, 1),))
    assert report.nodes[0].devices == (NotEnoughDevices(2, 1),)
    cluster = state(resource_slice(devices(1)), kubernetesVersion=version(33))
    served, _ = asking(*wanted, cluster=cluster).claims[0].requests
    assert served.verdicts


def partitions(*slices: str) -> list[dict[str, Any]]:
    """Slices of a pool in the form of 1.33 and 1.34: a whole device and two halves of it, with their counters."""
    made = []
    for name in slices:
        consumers = [
            device(
                f"{name}-{part}",
                memory=memory,
                consumesCounters=[
                    {"counterSet": "card", "counters": {"memory": {"value": memory}}}
                ],
            )
            for part, memory in (("whole", "80Gi"), ("half", "40Gi"), ("rest", "40Gi"))
        ]
        one = resource_slice(consumers, name=name, slices=len(slices))
        counters = {"memory": {"value": "80Gi"}}
        one["spec"]["sharedCounters"] = [{"name": "card", "counters": counters}]
        made.append(one)
    return made


WHOLE = f"device.capacity['{GPU}'].memory.compareTo(quantity('80Gi')) == 0"


@pytest.mark.parametrize("minor", [33, 34])
def test_before_1_35_partitions_are_had_of_the_slice_with_their_counters(minor: int) -> None:
    release = {"kubernetesVersion": version(minor), "gates": ["DRAPartitionableDevices"]}
    free = state(*partitions("card"), **release)
    report = asking(request(cel=WHOLE), cluster=free)
    assert (report.exit_code, report.nodes[0].placement[0].device) == (0, "card-whole")
    two = asking(request(cel=f"!({WHOLE})", count=2), cluster=free)
    assert two.exit_code == 0
    used = state(*partitions("card"), holder("card-half"), **release)
    report = asking(request(cel=WHOLE), cluster=used)
    assert report.exit_code == 1
    found = [one.verdict for one in report.claims[0].requests[0].devices]
    assert CountersUsedUp("card", "memory", "80Gi", "40Gi", ("ns/holder",)) in found


def test_before_1_35_the_counters_of_one_slice_are_not_those_of_another() -> None:
    release = {"kubernetesVersion": version(34), "gates": ["DRAPartitionableDevices"]}
    cluster = state(*partitions("one", "two"), holder("one-half"), **release)
    report = asking(request(cel=WHOLE), cluster=cluster)
    assert (report.exit_code, report.nodes[0].placement[0].device) == (0, "two-whole")
    both = asking(request(cel=WHOLE, count=2), cluster=cluster)
    told = [str(one.verdict) for one in both.claims[0].requests[0].devices]
    assert "counter card of slice one/memory: 40Gi left < 80Gi, used by ns/holder" in told
