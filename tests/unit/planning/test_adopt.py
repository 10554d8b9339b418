# SPDX-License-Identifier: Apache-2.0
"""A lost row, told from the kubelet's words and the CDI document."""

import dataclasses
import json

import pytest
from msgspec.structs import replace

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import DeviceName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import MarkHeld, MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.model.state import (
    NOBODY_KNOWN,
    Held,
    NodeState,
    Phase,
    PodDevice,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.planning.adopt import (
    described_keys,
    free_of_owners,
    plan_adoption,
    plan_adoption_of,
    plan_described,
    plan_name,
    plan_reservation,
    plan_reservation_of,
)
from dra_driver.planning.finish import plan_finish
from dra_driver.planning.prepare import own_keys, plan_prepare, users_of
from dra_driver.testing.builders import (
    A_BOOT,
    A_DRIVER,
    A_PLACE,
    A_POOL,
    a_claim,
    a_device,
    a_ref,
    a_result,
    a_state,
    an_edit,
    an_inventory,
)

REF = a_ref()
KIND = A_PLACE.cdi_kind


def held(device: str, *, share: str = "") -> PodDevice:
    name = f"{KIND}={REF.uid}-{device}{share and '-' + share}"
    key = (A_DRIVER, A_POOL, DeviceName(device), ShareId(share), (name,))
    return PodDevice(REF.namespace, REF.name, *key)


def prepared(found: PodDevice, *, admin: bool = False) -> PreparedDevice:
    return PreparedDevice(
        (), A_POOL, found.device, found.cdi_ids, "", found.share_id, admin_access=admin
    )


def document(*devices: PodDevice, admin: tuple[str, ...] = ()) -> str:
    return CdiSpec(
        KIND,
        tuple(
            CdiDevice(
                found.cdi_ids[0].partition("=")[2],
                ContainerEdits(
                    {"ACME_UUID": f"uuid-{found.device}"}
                    | ({"DRA_ADMIN_ACCESS": "true"} if found.device in admin else {})
                ),
            )
            for found in devices
        ),
    ).to_json()


CLAIM = a_claim(
    results=[
        a_result("gpu-1", request="main/sub"),
        a_result("gpu-0", share="s1"),
        a_result("gpu-9", admin=True),
    ]
)


def test_a_document_of_the_allocation_is_the_row_that_was_lost() -> None:
    plan = plan_prepare(
        CLAIM.ref, CLAIM, place=A_PLACE, inventory=an_inventory(10, shared=True), state=a_state()
    )
    assert isinstance(plan, Plan)
    started = plan.steps[0].claim
    ended = plan_finish(
        plan,
        [an_edit(lease) for lease in started.leases],
        driver=A_PLACE.driver,
        inventory=an_inventory(10, shared=True),
    )
    assert isinstance(ended, Plan)
    text = ended.steps[1].text
    found = plan_adoption_of(CLAIM, text, place=A_PLACE, boot_id=A_BOOT)
    devices = tuple(dataclasses.replace(device, uuid="") for device in started.devices)
    row = replace(started, devices=devices, cdi_spec=text, leases=None)
    assert found == Plan(REF, (MarkStarted(row), MarkPrepared(REF.uid)), devices)


def test_an_older_document_counts_as_it_stands() -> None:
    devices = held("gpu-1"), held("gpu-0", share="s1"), held("gpu-9")
    text = document(*devices)
    found = plan_adoption_of(CLAIM, text, place=A_PLACE, boot_id=A_BOOT)
    assert isinstance(found, Plan)
    row = found.steps[0].claim
    assert (row.cdi_spec, row.users) == (text, Users(("pod-claim",), sole=True))
    assert [device.cdi_ids for device in row.devices] == [device.cdi_ids for device in devices]
    assert [device.request_names for device in row.devices] == [("main",), ("gpu",), ("gpu",)]


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("{", "nothing that can be read"),
        (document(held("gpu-1")), f"{KIND}=uid-claim-gpu-1"),
        (
            document(held("gpu-1"), held("gpu-0", share="s1"), held("gpu-9"), held("gpu-8")),
            ", ".join(f"{KIND}=uid-claim-gpu-{end}" for end in ("0-s1", "1", "8", "9")),
        ),
    ],
)
def test_a_document_of_something_else_is_refused(text: str, described: str) -> None:
    assert plan_adoption_of(CLAIM, text, place=A_PLACE, boot_id=A_BOOT) == Refusal(
        f"its CDI file describes {described}, which is not what it is allocated now; delete its pods when they can be spared"
    )


def test_a_claim_that_is_not_allocated_has_no_document() -> None:
    empty = a_claim(results=[])
    assert isinstance(plan_adoption_of(empty, "{", place=A_PLACE, boot_id=A_BOOT), Refusal)


def as_listed(*names: str) -> list[PodDevice]:
    """As the kubelet lists the devices of `CLAIM`, each with the names of those before it as well."""
    plan = plan_prepare(
        CLAIM.ref, CLAIM, place=A_PLACE, inventory=an_inventory(10, shared=True), state=a_state()
    )
    assert isinstance(plan, Plan)
    listed: list[PodDevice] = []
    ids: tuple[str, ...] = ()
    for device in plan.devices:
        ids = (*ids, *device.cdi_ids)
        key = (A_DRIVER, device.pool, device.device, device.share_id, ids)
        listed.append(PodDevice(CLAIM.ref.namespace, CLAIM.ref.name, *key))
    return [one for one in listed if one.device in names or not names]


def reserve(held: list[PodDevice], claim: Claim | None, state: NodeState) -> PreparedClaim | None:
    found = plan_reservation(CLAIM.ref, held, claim, driver=A_DRIVER, state=state)
    if found is None:
        return None
    (step,) = found.steps
    assert isinstance(step, MarkStarted)
    assert step.claim.devices == found.devices
    return step.claim


def test_what_cannot_be_described_any_more_is_reserved() -> None:
    plan = plan_prepare(
        CLAIM.ref, CLAIM, place=A_PLACE, inventory=an_inventory(10, shared=True), state=a_state()
    )
    assert isinstance(plan, Plan)
    lost = plan.steps[0].claim
    devices = tuple(
        dataclasses.replace(device, request_names=(), uuid="")
        for device in sorted(lost.devices, key=lambda device: device.device)
    )
    row = reserve(as_listed(), CLAIM, a_state())
    assert row == replace(lost, cdi_spec="", devices=devices, leases=None)
    # Without the API server nobody knows of pods and of admin access.
    row = reserve(as_listed(), None, a_state())
    assert row is not None
    assert row.users == NOBODY_KNOWN
    assert [device.admin_access for device in row.devices] == [False] * 3


def test_of_a_claim_that_was_allocated_anew_the_users_have_no_names() -> None:
    row = reserve(as_listed(), a_claim(results=[a_result("gpu-1")]), a_state())
    assert row is not None
    assert row.users == Users(("pod-claim",), sole=True, unnamed=True)
    assert len(row.owned) == 3


def test_admin_access_of_a_later_allocation_reserves_nothing_that_somebody_owns() -> None:
    """The claim had gpu-1 and gpu-9 as the only user. Now it has gpu-1 with admin access, and another claim owns gpu-1."""
    anew = a_claim(results=[a_result("gpu-1", admin=True)])
    owned = {key: a_ref("another") for key in own_keys(CLAIM, A_PLACE)[:1]}
    assert [key.device for key in owned] == ["gpu-1"]
    row = reserve(as_listed("gpu-1", "gpu-9"), anew, replace(a_state(), owners=owned))
    assert row is not None
    assert [(one.device, one.admin_access) for one in row.devices] == [("gpu-9", False)]
    free = reserve(as_listed("gpu-1", "gpu-9"), anew, a_state())
    assert free is not None
    assert [device.admin_access for device in free.devices] == [False, False]


def test_what_somebody_has_by_now_is_not_reserved() -> None:
    owned = {key: a_ref("another") for key in own_keys(CLAIM, A_PLACE)[:1]}
    row = reserve(as_listed(), CLAIM, replace(a_state(), owners=owned))
    assert row is not None
    assert [device.device for device in row.devices] == ["gpu-0", "gpu-9"]
    assert reserve(as_listed("gpu-1"), CLAIM, replace(a_state(), owners=owned)) is None
    # The claim's own row may lack the name.
    for ref in (CLAIM.ref, ClaimRef("", "", CLAIM.ref.uid)):
        own = dict.fromkeys(owned, ref)
        assert reserve(as_listed("gpu-1"), CLAIM, replace(a_state(), owners=own)) is not None


def test_a_row_with_somebody_elses_device_is_not_adopted() -> None:
    devices = held("gpu-1"), held("gpu-0", share="s1"), held("gpu-9")
    text = document(*devices, admin=("gpu-9",))
    plan = plan_adoption_of(CLAIM, text, place=A_PLACE, boot_id=A_BOOT)
    assert isinstance(plan, Plan)
    other = a_ref("another")

    def free(*owned: str, owner: ClaimRef = other) -> Plan | Refusal:
        owners = {one.key: owner for one in plan.devices if one.device in owned}
        return free_of_owners(plan, a_state(owners=owners))

    assert free() == free("gpu-9") == free("gpu-0", owner=ClaimRef("", "", REF.uid)) == plan
    assert free("gpu-0") == Refusal(
        f"device {A_POOL}/gpu-0 of claim {REF} is owned by claim {other}"
    )
    assert free_of_owners(Refusal("why"), a_state()) == Refusal("why")


def test_a_claim_of_which_neither_file_nor_kubelet_tell_reserves_what_it_is_allocated() -> None:
    elsewhere = a_result("gpu-5", pool="another")
    claim = dataclasses.replace(CLAIM, results=(*CLAIM.results, elsewhere))
    plan = plan_reservation_of(claim, place=A_PLACE, state=a_state())
    assert plan is not None
    (step,) = plan.steps
    assert isinstance(step, MarkStarted)
    assert {device.device for device in step.claim.devices} == {"gpu-1", "gpu-0", "gpu-9"}
    assert (step.claim.cdi_spec, step.claim.users) == ("", users_of(CLAIM))
    first, *others = own_keys(CLAIM, A_PLACE)
    owned = replace(a_state(), owners={first: a_ref("another")})
    plan = plan_reservation_of(CLAIM, place=A_PLACE, state=owned)
    assert plan is not None
    assert [device.key for device in plan.devices] == others
    nothing = a_claim(results=[elsewhere])
    assert plan_reservation_of(nothing, place=A_PLACE, state=a_state()) is None


GONE = Held("it is gone", "2026-01-02T03:04:05Z")
SHARE = "5f0c1d2e-0000-4000-8000-0123456789ab"


@pytest.mark.parametrize("hardware", [an_inventory(2), an_inventory(0)])
@pytest.mark.parametrize("mark", [GONE, None])
def test_what_a_document_of_a_claim_that_nobody_knows_describes_stays_its_own(
    hardware: Inventory, mark: Held | None
) -> None:
    devices = held("gpu-1"), held("gpu-0", share=SHARE), held("gpu-9")
    text = document(*devices, admin=("gpu-9",))
    place, state = A_PLACE, a_state()
    plan = plan_described(REF.uid, text, mark, place=place, inventory=hardware, state=state)
    assert plan is not None
    started, *marked = plan.steps
    assert isinstance(started, MarkStarted)
    assert marked == ([] if mark is None else [MarkHeld(REF.uid, mark)])
    assert started.claim.ref.word == REF.uid
    keys = [(key.device, key.share) for key in started.claim.owned]
    # Without a scan nobody knows whether this is a share of gpu-0 or a device whose name ends in a UUID: both are reserved.
    unclear = [] if hardware.devices else [(f"gpu-0-{SHARE}", "")]
    assert keys == [("gpu-1", ""), *unclear, ("gpu-0", SHARE)]
    described = described_keys(REF.uid, text, place=place, inventory=hardware)
    assert set(started.claim.owned) < set(described)


@pytest.mark.parametrize(
    ("name", "there", "keys"),
    [
        (f"gpu-{SHARE}", (f"gpu-{SHARE}",), [(f"gpu-{SHARE}", "")]),
        (f"gpu-{SHARE}", (), [(f"gpu-{SHARE}", ""), ("gpu", SHARE)]),
        # Shares of the device plugin API.
        ("gpu-0-replica-11", ("gpu-0",), [("gpu-0", "replica-11")]),
        ("gpu-0-memory-2", ("gpu-0",), [("gpu-0", "memory-2")]),
        ("gpu-0-memory-2", (), [("gpu-0-memory-2", ""), ("gpu-0", "memory-2")]),
        ("gpu-0-part-2", ("gpu-0",), [("gpu-0-part-2", "")]),
        ("gpu-0-mig-1", ("gpu-0",), [("gpu-0-mig-1", "")]),
        ("gpu-0-mig-1", ("gpu-0", "gpu-0-mig-1"), [("gpu-0-mig-1", "")]),
    ],
)
def test_a_device_whose_name_looks_like_a_share_or_extends_another_name_is_reserved(
    name: str, there: tuple[str, ...], keys: list[tuple[str, str]]
) -> None:
    inventory = Inventory(tuple(a_device(one) for one in there))
    found = described_keys(REF.uid, document(held(name)), place=A_PLACE, inventory=inventory)
    assert [(key.device, key.share) for key in found] == keys


@pytest.mark.parametrize(
    "text", ["", "{}", document(held("gpu-0")).replace("uid-claim", "another")]
)
def test_nothing_stays_for_a_document_of_nothing(text: str) -> None:
    hardware = an_inventory(2)
    place, state = A_PLACE, a_state()
    found = plan_described(REF.uid, text, GONE, place=place, inventory=hardware, state=state)
    assert found is None
    assert described_keys(REF.uid, text, place=place, inventory=hardware) == []


def test_a_reserved_row_takes_the_name_and_the_pods_of_its_claim() -> None:
    claim, hardware = a_claim(), an_inventory(2)
    text = document(held("gpu-0"))
    plan = plan_described(REF.uid, text, None, place=A_PLACE, inventory=hardware, state=a_state())
    assert plan is not None
    (started,) = plan.steps
    assert isinstance(started, MarkStarted)
    named = replace(started.claim, ref=claim.ref, users=users_of(claim))
    assert plan_name(started.claim, claim, place=A_PLACE) == Plan(
        claim.ref, (MarkStarted(named),), named.devices
    )


def test_what_somebody_has_by_now_does_not_stay() -> None:
    text, hardware = document(held("gpu-0")), an_inventory(2)
    (key,) = described_keys(REF.uid, text, place=A_PLACE, inventory=hardware)
    taken = replace(a_state(), owners={key: a_ref("another")})
    found = plan_described(REF.uid, text, GONE, place=A_PLACE, inventory=hardware, state=taken)
    assert found is None


def test_the_row_is_told_from_what_stands_on_the_node() -> None:
    devices = held("gpu-1"), held("gpu-0", share="s1"), held("gpu-9")
    text = document(*devices, admin=("gpu-9",))
    # In the order of the file, in which the kubelet got them when the claim was prepared.
    expected = (
        prepared(devices[0]),
        prepared(devices[1]),
        prepared(devices[2], admin=True),
    )
    assert plan_adoption(REF, devices, text, boot_id=A_BOOT) == Plan(
        REF,
        (
            MarkStarted(PreparedClaim(REF, Phase.STARTED, A_BOOT, expected, text)),
            MarkPrepared(REF.uid),
        ),
        expected,
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", '{"kind": "a/b", "devices": [{"name": "x"}]}', document(held("gpu-1"))],
)
def test_a_document_that_is_not_the_pods_is_no_witness(text: str) -> None:
    found = plan_adoption(REF, [held("gpu-0")], text, boot_id=A_BOOT)
    assert isinstance(found, Refusal)
    assert f"the kubelet names {held('gpu-0').cdi_ids[0]}" in found.reason


def test_a_document_without_variables_describes_its_devices() -> None:
    name = held("gpu-0").cdi_ids[0].partition("=")[2]
    text = json.dumps({"kind": KIND, "devices": [{"name": name, "containerEdits": {}}]})
    plan = plan_adoption(REF, [held("gpu-0")], text, boot_id=A_BOOT)
    assert isinstance(plan, Plan)
    assert plan.devices == (prepared(held("gpu-0")),)
