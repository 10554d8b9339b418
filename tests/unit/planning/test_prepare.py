# SPDX-License-Identifier: Apache-2.0
"""Plans as literals: the order of the steps is the crash-safety argument."""

import dataclasses
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.backends.simulated_config import LABEL, LabelConfig
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceKey
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkStarted,
    OwnerConflict,
    Plan,
    Refusal,
)
from dra_driver.model.state import NOBODY_KNOWN, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.planning.prepare import (
    is_safe_uid,
    own_keys,
    plan_prepare,
    users_for,
    users_of,
)
from dra_driver.testing.builders import (
    A_PLACE,
    A_POOL,
    a_claim,
    a_config,
    a_device,
    a_ref,
    a_result,
    a_state,
    an_inventory,
)

KIND = "k8s.gpu.dra-driver.dev/claim"


def decide(claim: Claim, *, owners=None, requested: ClaimRef | None = None, inventory=None):
    return plan_prepare(
        requested or claim.ref,
        claim,
        place=A_PLACE,
        inventory=inventory or an_inventory(shared=True),
        state=a_state(owners=owners),
    )


def replace_api(device: AllocatableDevice, **changes: Any) -> Device:
    return structs.replace(device.api, **changes)


def key(device: str = "gpu-0", share: str = "") -> DeviceKey:
    return DeviceKey(A_POOL, device, share)


@pytest.mark.parametrize(
    ("first", "second", "admin", "fits"),
    [
        ("gpu-0", "gpu-1", False, False),
        ("gpu-1", "gpu-0", False, False),
        ("gpu-0", "gpu-1", True, True),
        ("gpu-1", "gpu-2", False, True),
    ],
    ids=["the whole and its part", "a part and the whole", "admin access", "two parts"],
)
def test_a_claim_gets_no_hardware_twice(
    first: str, second: str, *, admin: bool, fits: bool
) -> None:
    parts = {"gpu-0": (), "gpu-1": ("s0",), "gpu-2": ("s1",)}
    devices = [
        replace(a_device(name), hardware=Hardware("GPU-1", slices))
        for name, slices in parts.items()
    ]
    results = [a_result(first, request="one"), a_result(second, request="two", admin=admin)]
    found = decide(a_claim(results=results), inventory=Inventory(tuple(devices)))
    assert isinstance(found, Plan) is fits
    if isinstance(found, Refusal):
        assert f"devices {first} and {second}, which are the same hardware" in found.reason


def test_the_plan_reserves_the_devices_with_their_leases_before_it_configures_them() -> None:
    claim = a_claim(
        "wine",
        results=[a_result("gpu-1", request="main/small"), a_result("gpu-0", request="other")],
        configs=[a_config(label="red", requests=["main"])],
    )
    answers = (
        PreparedDevice(
            ("main",), A_POOL, "gpu-1", (f"{KIND}=uid-wine-11e49657-gpu-1",), "uuid-gpu-1"
        ),
        PreparedDevice(
            ("other",), A_POOL, "gpu-0", (f"{KIND}=uid-wine-11e49657-gpu-0",), "uuid-gpu-0"
        ),
    )
    first = Lease(
        claim.ref.uid,
        "main/small",
        "gpu-1",
        config=LABEL.config(LabelConfig(label="red")),
        parent="uuid-gpu-1",
    )
    second = Lease(claim.ref.uid, "other", "gpu-0", 1, parent="uuid-gpu-0")
    users = Users(("pod-wine",), sole=True)
    row = PreparedClaim(
        claim.ref, Phase.STARTED, "boot-1", answers, "", users, leases=(first, second)
    )
    steps = (MarkStarted(row), ConfigureDevice(first), ConfigureDevice(second))
    assert decide(claim) == Plan(claim.ref, steps, answers)


def test_a_lease_says_what_is_used_of_which_hardware() -> None:
    result = structs.replace(a_result("gpu-0", share="s1"), consumed_capacity={"memory": "10Gi"})
    part = replace(
        a_device(),
        api=replace_api(a_device(), allow_multiple_allocations=True),
        hardware=Hardware("GPU-1", ("slice-0", "slice-1"), "2g.20gb"),
        backend="acme",
    )
    plan = decide(a_claim("wine", results=[result]), inventory=Inventory((part,)))
    assert isinstance(plan, Plan)
    assert plan.steps[1] == ConfigureDevice(
        Lease(
            "uid-wine",
            "gpu",
            "gpu-0",
            share_id="s1",
            consumed_capacity={"memory": "10Gi"},
            backend="acme",
            parent="GPU-1",
            parts=("slice-0", "slice-1"),
            profile="2g.20gb",
        )
    )


def test_a_share_is_in_the_key_the_answer_the_name_and_the_lease() -> None:
    claim = a_claim("wine", results=[a_result(share="a1-b2")])
    plan = decide(claim)
    assert isinstance(plan, Plan)
    cdi_id = f"{KIND}=uid-wine-ca6e8636-gpu-0-a1-b2"
    assert plan.devices == (
        PreparedDevice(("gpu",), A_POOL, "gpu-0", (cdi_id,), "uuid-gpu-0", "a1-b2"),
    )
    (started, configure) = plan.steps
    assert configure.lease.share_id == "a1-b2"
    assert started.claim.owned == (key(share="a1-b2"),)


def test_two_shares_of_one_device_stand_beside_each_other_in_one_claim() -> None:
    plan = decide(a_claim(results=[a_result(share="s1"), a_result(share="s2", request="more")]))
    assert isinstance(plan, Plan)
    assert [device.key for device in plan.devices] == [key(share="s1"), key(share="s2")]


def test_the_devices_of_a_request_are_in_the_order_of_their_pci_addresses() -> None:
    """Those without an address first, as the scheduler chose them, and each with its request's configuration."""
    addresses = {"gpu-0": "10000:01:00.0", "gpu-1": "0000:C1:00.0", "gpu-2": "0000:8b:00.0"}
    devices = [
        a_device(name, attributes={"resource.kubernetes.io/pciBusID": address})
        for name, address in addresses.items()
    ]
    devices += [a_device("gpu-4"), a_device("gpu-3", attributes={"model": "A"})]
    label = {"apiVersion": "gpu.dra-driver.dev/v1alpha1", "kind": "DeviceConfig", "label": "red"}
    claim = a_claim(
        results=[
            *(a_result(name, request="more") for name in ("gpu-4", "gpu-0", "gpu-3", "gpu-1")),
            a_result("gpu-2", request="one"),
        ],
        configs=[a_config(label, requests=["one"])],
    )
    plan = decide(claim, inventory=Inventory(tuple(devices)))
    assert isinstance(plan, Plan)
    assert [device.device for device in plan.devices] == [
        "gpu-4", "gpu-3", "gpu-1", "gpu-0", "gpu-2",
    ]  # fmt: skip
    leases = [step.lease for step in plan.steps if isinstance(step, ConfigureDevice)]
    assert [(lease.device, lease.index) for lease in leases] == [
        (device.device, index) for index, device in enumerate(plan.devices)
    ]
    assert [lease.config.value for lease in leases] == [*[None] * 4, LabelConfig(label="red")]


def test_admin_access_owns_nothing_and_is_in_the_lease() -> None:
    plan = decide(a_claim(results=[a_result(admin=True)]), owners={key(): a_ref("user")})
    assert isinstance(plan, Plan)
    started, configure = plan.steps
    assert started.claim.owned == ()
    assert plan.devices[0].admin_access is True
    assert configure.lease.admin_access is True


def test_a_device_of_another_claim_is_a_conflict() -> None:
    claim = a_claim("second", results=[a_result("gpu-1"), a_result("gpu-0")])
    owners = {key("gpu-0"): a_ref("first")}
    assert decide(claim, owners=owners) == OwnerConflict(claim.ref, a_ref("first"), "gpu-0")


def test_an_owner_of_another_share_is_no_conflict() -> None:
    claim = a_claim(results=[a_result(share="s1")])
    assert isinstance(decide(claim, owners={key(share="s2"): a_ref("other")}), Plan)


def test_its_own_reservation_is_no_conflict() -> None:
    claim = a_claim()
    assert isinstance(decide(claim, owners={key(): claim.ref}), Plan)


def test_a_row_of_another_allocation_is_in_the_claims_own_way() -> None:
    claim = a_claim("wine")
    first = decide(a_claim("wine", results=[a_result("gpu-1")]))
    assert isinstance(first, Plan)
    row = first.steps[0].claim
    found = plan_prepare(
        claim.ref,
        claim,
        place=A_PLACE,
        inventory=an_inventory(),
        state=a_state(claims=[row], owners={key(): a_ref("other")}),
    )
    assert found == OwnerConflict(claim.ref, claim.ref, "gpu-1")


@pytest.mark.parametrize(
    ("boot_id", "users"),
    [("boot-1", Users(("old", "new"))), ("boot-0", Users(("new",)))],
)
def test_who_used_the_allocation_before_is_remembered_until_the_next_boot(
    boot_id: str, users: Users
) -> None:
    first = decide(a_claim("wine", sole=False, pods=["old"]))
    assert isinstance(first, Plan)
    claim = a_claim("wine", sole=False, pods=["new"])
    again = plan_prepare(
        claim.ref,
        claim,
        place=A_PLACE,
        inventory=an_inventory(),
        state=a_state(claims=[replace(first.steps[0].claim, boot_id=boot_id)]),
    )
    assert isinstance(again, Plan)
    assert again.steps[0].claim.users == users


def test_users_are_the_pod_that_it_was_made_for_and_those_that_it_is_reserved_for() -> None:
    claim = dataclasses.replace(a_claim(pods=["one", "two", "one"], sole=False), unnamed_users=True)
    assert users_of(claim) == Users(("one", "two"), unnamed=True)
    assert users_of(dataclasses.replace(claim, sole_pod="three")) == Users(
        ("three", "one", "two"), True, True
    )
    nameless = dataclasses.replace(a_claim(pods=(), sole=False), unnamed_users=True)
    assert isinstance(decide(nameless), Plan)


@pytest.mark.parametrize(
    ("claim", "users"),
    [
        (a_claim("wine", pods=["one"], sole=False), Users(("one",))),
        (a_claim("wine", pods=(), sole=False), Users((), unnamed=True)),
        (
            a_claim("wine", pods=["two"], sole=False, results=[a_result("gpu-1")]),
            Users(("two",), unnamed=True),
        ),
        (a_claim("wine", pods=["one"]), Users(("one",), sole=True)),
    ],
    ids=["still-reserved", "reserved-no-more", "allocated-anew", "of-a-template"],
)
def test_whoever_used_a_lost_claim_before_its_reservation_ended_has_no_name(
    claim: Claim, users: Users
) -> None:
    first = decide(a_claim("wine", sole=False))
    assert isinstance(first, Plan)
    lost = replace(first.steps[0].claim, users=NOBODY_KNOWN)
    assert users_for(lost, claim, A_PLACE) == users


def test_users_of_a_row_that_knows_some_are_those_that_the_claim_names_now() -> None:
    first = decide(a_claim("wine", sole=False, pods=["one"]))
    assert isinstance(first, Plan)
    claim = a_claim("wine", pods=(), sole=False)
    assert users_for(first.steps[0].claim, claim, A_PLACE) == Users(())


def test_results_and_configuration_of_other_drivers_are_not_looked_at() -> None:
    own = a_claim()
    other = "nic.example.com"
    mixed = dataclasses.replace(
        own,
        results=(
            a_result("nic-0", driver=other, pool="elsewhere"),
            *own.results,
            a_result("gpu-0", driver=other),
        ),
        configs=(a_config({"kind": "NicConfig", "speed": [1]}, driver=other),),
    )
    assert decide(mixed) == decide(own)
    assert own_keys(mixed, A_PLACE) == (key(),)


def test_a_claim_without_allocation_has_no_keys() -> None:
    assert own_keys(Claim(a_ref()), A_PLACE) == ()


@pytest.mark.parametrize(
    ("claim", "requested", "reason"),
    [
        (
            a_claim(uid="new"),
            a_ref(uid="old"),
            (
                "ResourceClaim default/claim was replaced: the pod was scheduled with uid old, the API server has new; "
                "delete the pod, its successor gets the new claim"
            ),
        ),
        (
            a_claim(uid="../x"),
            a_ref(uid="../x"),
            "ResourceClaim default/claim: uid '../x' is no UID of the API server; nothing was done",
        ),
        (
            Claim(a_ref()),
            a_ref(),
            "ResourceClaim default/claim is not allocated; the scheduler allocates it again, delete the pod if it stays so",
        ),
        (
            a_claim(results=[]),
            a_ref(),
            "ResourceClaim default/claim has no device of driver gpu.dra-driver.dev, only of: none",
        ),
        (
            a_claim(
                results=[a_result(driver="b.io"), a_result(driver="a.io"), a_result(driver="b.io")]
            ),
            a_ref(),
            "ResourceClaim default/claim has no device of driver gpu.dra-driver.dev, only of: a.io, b.io",
        ),
        (
            a_claim(results=[a_result(), a_result(admin=True)]),
            a_ref(),
            "ResourceClaim default/claim names device node-1/gpu-0 twice; delete and create the claim again",
        ),
        (
            a_claim(results=[a_result(share="s1"), a_result(request="other")]),
            a_ref(),
            "ResourceClaim default/claim names device node-1/gpu-0 share s1 twice; delete and create the claim again",
        ),
        (
            a_claim(pods=(), sole=False),
            a_ref(),
            (
                "ResourceClaim default/claim is reserved for no pod (any more); delete the pod if it stays so, its successor is "
                "scheduled anew"
            ),
        ),
        (
            a_claim(results=[a_result(share="a=b\n../")]),
            a_ref(),
            (
                "ResourceClaim default/claim: share ID 'a=b\\n../' of device gpu-0 is no share ID that the scheduler makes; "
                "delete and create the claim again"
            ),
        ),
        (
            a_claim(results=[a_result(pool="node-2")]),
            a_ref(),
            (
                "ResourceClaim default/claim is allocated from pool node-2, this node's pool is node-1; "
                "the pod cannot run here, delete it"
            ),
        ),
        (
            a_claim(results=[a_result("gpu-9")]),
            a_ref(),
            (
                "device gpu-9 of ResourceClaim default/claim is not found on this node (any more); "
                "`dra-driver devices` shows what is; delete the pod and the claim, so that the scheduler chooses another device"
            ),
        ),
        (
            a_claim(configs=[a_config({"kind": "X"}, index=2)]),
            a_ref(),
            (
                "ResourceClaim default/claim: configuration refused at status.allocation.devices.config[2].opaque.parameters: "
                "apiVersion None, kind 'X': the device reads gpu.dra-driver.dev/v1alpha1 DeviceConfig; "
                "correct it in the claim or its DeviceClass and create the claim again"
            ),
        ),
    ],
)
def test_a_refusal_says_what_was_found_and_what_to_do(
    claim: Claim, requested: ClaimRef, reason: str
) -> None:
    assert decide(claim, requested=requested) == Refusal(reason)


def test_a_device_of_a_backend_that_has_not_answered_yet_is_not_missing() -> None:
    waiting = dataclasses.replace(an_inventory(), unanswered=("acme",), had={"gpu-8": "simulated"})
    decision = decide(a_claim(results=[a_result("gpu-9")]), inventory=waiting)
    assert decision == Refusal(
        "device gpu-9 of ResourceClaim default/claim is not known yet: since the driver started, no scan of backend acme has "
        "succeeded, see the driver's log; the kubelet tries again"
    )
    vanished = decide(a_claim(results=[a_result("gpu-8")]), inventory=waiting)
    assert isinstance(vanished, Refusal)
    assert "is not found on this node" in vanished.reason
    assert isinstance(decide(a_claim(), inventory=waiting), Plan)


def test_a_share_of_a_device_that_cannot_be_shared_is_refused() -> None:
    claim = a_claim(results=[a_result(share="s1")])
    assert decide(claim, inventory=an_inventory()) == Refusal(
        "ResourceClaim default/claim has share s1 of device gpu-0, which cannot be shared (any more); "
        "delete the pod and the claim, so that the scheduler allocates it again"
    )


@pytest.mark.parametrize(
    ("uid", "safe"),
    [
        ("2f4e0d3c-9b1f-4b59-a0d8-0d3a8f2e8c11", True),
        ("a", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a/b", False),
        ("..", False),
        ("a\n", False),
        ("a\0", False),
        ("ü", False),
        ("٣", False),
    ],
)
def test_only_what_the_api_server_makes_is_a_safe_uid(uid: str, safe: bool) -> None:
    assert is_safe_uid(ClaimUid(uid)) is safe


def test_a_claim_with_configuration_that_cannot_be_read_is_refused_after_one_of_another_uid() -> (
    None
):
    claim = a_claim("a", results=[a_result("gpu-0")])
    unusable = dataclasses.replace(claim, unusable="parameters cannot be read (no UTF-8)")
    assert decide(unusable) == Refusal(
        f"cannot read claim {claim.ref}: parameters cannot be read (no UTF-8)"
    )
    other = decide(unusable, requested=replace(claim.ref, uid=ClaimUid("uid-before")))
    assert isinstance(other, Refusal)
    assert "was replaced" in other.reason


class Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_claim_of_many_shares_is_looked_through_once() -> None:
    def comparisons(shares: int) -> int:
        names = [Compared("gpu-0") for _ in range(shares)]
        claim = a_claim(results=[a_result(name, share=f"s{n}") for n, name in enumerate(names)])
        Compared.times = 0
        assert isinstance(decide(claim), Plan)
        return Compared.times

    assert comparisons(200) < 11 * comparisons(20)
