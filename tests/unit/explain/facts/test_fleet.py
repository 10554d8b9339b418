# SPDX-License-Identifier: Apache-2.0
"""What a cluster offers, all pools as a whole."""

from typing import Any

import pytest

from dra_driver.allocator.state import DeviceID, PoolID
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.verdict import PoolIncomplete, PoolInvalid
from tests.e2e.fleet import GPU, HOME, device, devices, resource_slice
from tests.unit.explain.clusters import holder, state
from tests.unit.explain.test_reasons import counters

POOL = PoolID(GPU, HOME)


def generation(number: int, count: int, name: str, slices: int = 1) -> dict[str, Any]:
    made = resource_slice(devices(count), name=name, slices=slices)
    made["spec"]["pool"]["generation"] = number
    return made


def test_only_the_newest_generation_counts() -> None:
    fleet = Fleet(state(generation(1, 4, "a"), generation(3, 2, "b"), generation(2, 3, "c")))
    assert list(fleet.devices) == [DeviceID(*POOL[:2], "gpu-0"), DeviceID(*POOL[:2], "gpu-1")]
    assert fleet.unusable == {}
    assert fleet.drivers == {GPU}


def test_an_incomplete_pool_and_an_invalid_one_are_unusable() -> None:
    fleet = Fleet(state(generation(5, 1, "a", slices=3), generation(5, 0, "b", slices=3)))
    assert fleet.unusable == {POOL: PoolIncomplete(str(POOL), 2, 3, 5)}
    twice = resource_slice([device("x"), device("x")])
    assert Fleet(state(twice)).unusable == {POOL: PoolInvalid(str(POOL), "duplicate device name x")}


def test_a_ledger_is_kept_and_names_who_took() -> None:
    whole = counters(2)
    whole[1]["spec"]["devices"].append(device("plain"))
    fleet = Fleet(state(*whole, holder("gpu-0")))
    ledger = fleet.ledger(POOL)
    assert fleet.ledger(POOL) is ledger
    assert ledger.left(("card", "slices")) == 0
    assert [one.claim for one in fleet.users_of_counters(POOL, "card")] == ["ns/holder"]
    assert [one.claim for one in fleet.users_of_counters(POOL, "card", "slices")] == ["ns/holder"]
    assert fleet.users_of_counters(POOL, "card", "media") == ()
    assert fleet.users_of_counters(POOL, "other") == ()
    assert fleet.claims_on(DeviceID(*POOL[:2], "gpu-0")) == ("ns/holder",)


@pytest.mark.parametrize("ended", ["first", "second"])
def test_a_device_of_two_claims_is_free_when_both_have_ended(ended: str) -> None:
    first, second = holder("gpu-0", "first"), holder("gpu-0", "second")
    fleet = Fleet(state(resource_slice(devices(1)), first, second))
    gpu = DeviceID(*POOL[:2], "gpu-0")
    one = fleet.allocator_without({f"ns/{ended}"}, {})
    both = fleet.allocator_without({"ns/first", "ns/second"}, {})
    assert (one.devices_in_use.allocated(gpu), both.devices_in_use.allocated(gpu)) == (True, False)
