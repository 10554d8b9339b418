# SPDX-License-Identifier: Apache-2.0
"""A share that does not fit is refused, and the message says what is left and who has the rest."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.api.resource_slice import DeviceCapacity
from dra_driver.model.ids import DeviceKey
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Plan, Refusal
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Consumption
from dra_driver.planning.prepare import plan_prepare
from dra_driver.testing.builders import (
    A_PLACE,
    A_POOL,
    a_claim,
    a_device,
    a_ref,
    a_result,
    a_state,
    an_inventory,
)

ASKED = "ResourceClaim default/wine shall get "
NEXT = (
    "; delete the pod and the claim, so that the scheduler chooses another device, or end the other pods: "
    "the kubelet tries again"
)


def a_share(
    amount: str = "20Gi", share: str = "s1", device: str = "gpu-0", capacity: str = "memory"
) -> DeviceRequestAllocationResult:
    return structs.replace(a_result(device, share=share), consumed_capacity={capacity: amount})


def taken(amount: str, *names: str, shares: int = 1, device: str = "gpu-0") -> Any:
    key = DeviceKey(A_POOL, device)
    users = tuple(map(a_ref, names))
    return {key: Consumption({"memory": Quantity.parse(amount)}, shares, users)}


def decide(
    *results: DeviceRequestAllocationResult,
    consumed: Mapping[DeviceKey, Consumption] | None = None,
    inventory: Inventory | None = None,
) -> str:
    """The reason of the refusal; empty if there is a plan. The devices have 80Gi."""
    claim = a_claim("wine", results=results)
    found = plan_prepare(
        claim.ref,
        claim,
        place=A_PLACE,
        inventory=inventory or an_inventory(shared=True),
        state=a_state(consumed=consumed),
    )
    assert isinstance(found, Plan | Refusal)
    return found.reason if isinstance(found, Refusal) else ""


def test_shares_fit_up_to_the_last_byte() -> None:
    assert decide(a_share("80Gi")) == ""
    assert decide(a_share(), consumed=taken("60Gi", "beer")) == ""
    assert decide(a_share(), a_share(share="s2"), consumed=taken("40Gi", "beer")) == ""


def test_a_share_that_does_not_fit_is_refused_with_what_is_left_and_who_has_the_rest() -> None:
    assert decide(a_share(), consumed=taken("61440Mi", "beer", "tea", shares=2)) == ""
    assert decide(a_share(), consumed=taken("61441Mi", "beer", "tea", shares=2)) == (
        f"{ASKED}20Gi of capacity memory of device gpu-0, which has 20479Mi of 80Gi left beside the shares of default/beer, "
        f"default/tea{NEXT}"
    )
    assert "left beside the shares of default/beer and 7 more;" in decide(
        a_share(), consumed=taken("80Gi", "beer", shares=8)
    )


def test_a_device_that_is_given_away_beyond_its_capacity_already_has_nothing_left() -> None:
    assert "which has 0 of 80Gi left" in decide(a_share("1"), consumed=taken("100Gi", "beer"))


def test_the_shares_of_one_claim_count_together_and_those_of_each_device_alone() -> None:
    assert decide(a_share("60Gi"), a_share("20481Mi", "s2")) == (
        f"{ASKED}81921Mi of capacity memory of device gpu-0, which has 80Gi of 80Gi left{NEXT}"
    )
    assert decide(a_share("60Gi"), a_share("60Gi", "s2", "gpu-1")) == ""
    assert decide(a_share("60Gi"), consumed=taken("60Gi", "beer", device="gpu-1")) == ""


def test_a_capacity_that_the_device_does_not_have_any_more_is_the_backends_business() -> None:
    assert decide(a_share("1k", capacity="cores"), consumed=taken("80Gi")) == ""
    bare = a_device(shared=True)
    nothing = Inventory((replace(bare, api=structs.replace(bare.api, capacity=None)),))
    assert decide(a_share(), inventory=nothing) == ""
    odd = {"memory": DeviceCapacity(value="lots")}
    unreadable = Inventory((replace(bare, api=structs.replace(bare.api, capacity=odd)),))
    assert decide(a_share(), inventory=unreadable) == ""


def test_what_owns_nothing_or_everything_has_no_share_to_fit() -> None:
    full = taken("80Gi", "beer")
    whole = structs.replace(a_share(), share_id=None)
    admin = structs.replace(a_share(), admin_access=True)
    nothing = a_result(share="s1")
    for result in (whole, admin, nothing):
        assert decide(result, consumed=full) == ""


@pytest.mark.parametrize("amount", ["lots", ""])
def test_an_amount_that_is_no_quantity_is_refused(amount: str) -> None:
    said = decide(a_share(amount))
    assert said.startswith("ResourceClaim default/wine: consumedCapacity: ")
    assert "is no quantity" in said
    assert said.endswith("; delete and create the claim again")


def test_a_share_of_less_than_nothing_gives_no_room_to_others() -> None:
    """Schedulers before 1.37 allocate a negative request, and count it as room for more."""
    for shares in ([a_share("-80Gi")], [a_share("-80Gi"), a_share("160Gi", "s2")]):
        assert decide(*shares) == (
            "ResourceClaim default/wine: consumedCapacity: -80Gi of capacity memory of device gpu-0 is less than nothing; "
            "delete and create the claim again"
        )
    assert decide(a_share("0")) == ""
