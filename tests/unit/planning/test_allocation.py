# SPDX-License-Identifier: Apache-2.0
"""Which allocation a row belongs to, and what its devices are called."""

import dataclasses

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import Claim
from dra_driver.model.plan import MarkStarted, Plan
from dra_driver.model.state import PreparedClaim, PreparedDevice
from dra_driver.planning.allocation import allocation_digest, cdi_name, is_allocation_of
from dra_driver.planning.prepare import plan_prepare
from dra_driver.testing.builders import (
    A_DRIVER,
    A_PLACE,
    a_claim,
    a_config,
    a_result,
    a_state,
    an_inventory,
)

CLAIM = a_claim("wine", results=[a_result(), a_result("gpu-1", share="s1")])


def row_of(claim: Claim) -> PreparedClaim:
    plan = plan_prepare(
        claim.ref, claim, place=A_PLACE, inventory=an_inventory(shared=True), state=a_state()
    )
    assert isinstance(plan, Plan)
    (started,) = [step for step in plan.steps if isinstance(step, MarkStarted)]
    return started.claim


def older(row: PreparedClaim) -> PreparedClaim:
    """As a driver wrote it whose names did not tell the allocation."""

    def named(device: PreparedDevice) -> PreparedDevice:
        share = f"-{device.share_id}" if device.share_id else ""
        name = f"{A_PLACE.cdi_kind}={row.ref.uid}-{device.device}{share}"
        return dataclasses.replace(device, cdi_ids=(name,))

    return replace(row, devices=tuple(map(named, row.devices)))


def same(row: PreparedClaim, claim: Claim) -> bool:
    return is_allocation_of(row, claim, A_DRIVER, A_PLACE.cdi_kind)


def test_the_same_allocation_makes_the_same_names_in_every_process() -> None:
    assert allocation_digest(CLAIM, A_DRIVER) == "a041606b"
    assert cdi_name(CLAIM.ref.uid, "a041606b", CLAIM.results[1]) == "uid-wine-a041606b-gpu-1-s1"
    assert cdi_name(CLAIM.ref.uid, "", CLAIM.results[0]) == "uid-wine-gpu-0"


def test_users_and_other_drivers_are_no_part_of_an_allocation() -> None:
    others = dataclasses.replace(
        CLAIM,
        results=(a_result(driver="nic.example.com"), *(CLAIM.results or ())),
        configs=(a_config(driver="nic.example.com"),),
        reserved_for=("somebody",),
        sole_pod=None,
    )
    assert same(row_of(CLAIM), others)


CHANGES = {
    "another device": dataclasses.replace(CLAIM, results=(a_result("gpu-2"), CLAIM.results[1])),
    "another share": dataclasses.replace(
        CLAIM, results=(CLAIM.results[0], a_result("gpu-1", share="s2"))
    ),
    "one device less": dataclasses.replace(CLAIM, results=CLAIM.results[:1]),
    "another pool": dataclasses.replace(CLAIM, results=(a_result(pool="x"), CLAIM.results[1])),
    "admin access": dataclasses.replace(CLAIM, results=(a_result(admin=True), CLAIM.results[1])),
    "none": dataclasses.replace(CLAIM, results=None),
}
UNSEEN = {
    "another request": dataclasses.replace(
        CLAIM, results=(a_result(request="x"), CLAIM.results[1])
    ),
    "another configuration": dataclasses.replace(CLAIM, configs=(a_config(label="x"),)),
    "another time": dataclasses.replace(CLAIM, allocation_timestamp="2027-01-15T08:00:00Z"),
}


@pytest.mark.parametrize("claim", [*CHANGES.values(), *UNSEEN.values()], ids=[*CHANGES, *UNSEEN])
def test_whatever_else_is_allocated_is_another_allocation(claim: Claim) -> None:
    assert not same(row_of(CLAIM), claim)


@pytest.mark.parametrize("claim", CHANGES.values(), ids=CHANGES)
def test_of_an_older_row_the_devices_are_compared(claim: Claim) -> None:
    assert same(older(row_of(CLAIM)), CLAIM)
    assert not same(older(row_of(CLAIM)), claim)


@pytest.mark.parametrize("claim", UNSEEN.values(), ids=UNSEEN)
def test_an_older_row_does_not_tell_the_rest(claim: Claim) -> None:
    assert same(older(row_of(CLAIM)), claim)


def test_parameters_that_no_text_can_hold_cost_nothing() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    claim = dataclasses.replace(CLAIM, configs=(a_config(deep),))
    assert len(allocation_digest(claim, A_DRIVER)) == 8
