# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's checkpoint says of a row of two units: a part of it is nobody's only if other pods had it before."""

import json
from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, UnitId
from dra_driver.model.lease import Lease
from dra_driver.model.plan import MarkStarted, ResetDevice, WriteCdiSpec
from dra_driver.model.plugin import UnitsOfContainer
from dra_driver.model.state import PreparedClaim, Users
from dra_driver.planning.plugin.parted import parted, parted_by_call
from dra_driver.planning.plugin.rows import answered_units, unanswered_units
from tests.unit.planning.plugin.test_rows import GPU, KIND, a_device, a_row

UID = ClaimUid("plugin-1")
ZERO, ONE = a_device("gpu-0", "GPU-0"), a_device("gpu-1", "GPU-1")
LEASES = tuple(Lease(UID, f"GPU-{n}", DeviceName(f"gpu-{n}"), n) for n in (0, 1))
COMMON = ContainerEdits({"BOTH": "1"})
TEXT = CdiSpec(
    KIND,
    tuple(
        CdiDevice(f"x-gpu-{n}", COMMON.merged(ContainerEdits({f"OWN_{n}": "1"}))) for n in (0, 1)
    ),
).to_json()
ROW = replace(
    a_row(ZERO, ONE),
    cdi_spec=TEXT,
    leases=LEASES,
    users=Users((PodUid("a"), PodUid("b")), sole=True),
)


def has(pod: str, *units: str) -> UnitsOfContainer:
    return UnitsOfContainer(PodUid(pod), "main", GPU, frozenset(map(UnitId, units)))


@pytest.mark.parametrize(
    ("row", "containers"),
    [
        (ROW, []),
        (ROW, [has("b", "GPU-2")]),
        (ROW, [has("b", "GPU-0", "GPU-1")]),
        (ROW, [has("b", "GPU-0"), has("b", "GPU-1")]),
        # An older entry: nobody else had the row.
        (replace(ROW, users=Users((PodUid("b"),))), [has("b", "GPU-0")]),
        (replace(ROW, users=Users()), [has("b", "GPU-0")]),
        (a_row(), [has("b", "GPU-0")]),
    ],
)
def test_a_row_stays_whole(row: PreparedClaim, containers: list[UnitsOfContainer]) -> None:
    assert parted(row, containers) is None


def test_a_pod_keeps_its_part_and_the_pods_before_are_those_of_the_rest() -> None:
    found = parted(ROW, [has("b", "GPU-0"), has("c", "GPU-7")])
    assert found is not None
    assert (found.kept.devices, found.kept.leases) == ((ZERO,), LEASES[:1])
    assert found.kept.users == ROW.users
    assert (found.rest.devices, found.rest.leases) == ((ONE,), LEASES[1:])
    assert found.rest.users == Users((PodUid("a"),), sole=True)


def test_first_the_text_goes_then_the_set_up_and_the_owner_last() -> None:
    found = parted(ROW, [has("b", "GPU-1")])
    assert found is not None
    told = found.told.claim
    assert (told.devices, told.leases) == ((ONE, ZERO), LEASES[::-1])
    assert answered_units(told) == {"GPU-1"}
    assert unanswered_units(told) == {"GPU-0"}
    assert found.plan.steps == (
        WriteCdiSpec(UID, told.cdi_spec),
        ResetDevice(LEASES[0]),
        MarkStarted(found.kept),
    )
    before, after = json.loads(TEXT), json.loads(told.cdi_spec)
    assert after == before | {"devices": before["devices"][1:]}


def test_a_device_that_is_reserved_besides_goes_with_its_unit() -> None:
    spare = changed(ONE, device=DeviceName("gpu-2"), cdi_ids=())
    found = parted(replace(ROW, devices=(*ROW.devices, spare)), [has("b", "GPU-0")])
    assert found is not None
    assert found.kept.devices == (ZERO,)
    assert found.rest.devices == (ONE, spare)
    assert [step for step in found.plan.steps if isinstance(step, ResetDevice)] == [
        ResetDevice(LEASES[1])
    ]


def test_a_row_that_is_not_set_up_and_whose_leases_are_not_known_has_no_text_to_write() -> None:
    found = parted(replace(ROW, cdi_spec="", leases=None), [has("b", "GPU-0")])
    assert found is not None
    assert found.told.claim.leases is None
    assert [type(step) for step in found.plan.steps] == [ResetDevice, MarkStarted]
    assert answered_units(found.kept) == frozenset()
    assert unanswered_units(found.kept) == frozenset()


def test_a_call_for_all_units_parts_nothing() -> None:
    assert parted_by_call(ROW, {UnitId("GPU-0"), UnitId("GPU-1")}, [has("b", "GPU-0")]) is None


@pytest.mark.parametrize(
    ("containers", "suspects", "keepers", "others"),
    [
        ([], (), (), ("a", "b")),
        ([has("b", "GPU-0")], (), ("b",), ("a",)),
        ([has("b", "GPU-0"), has("a", "GPU-0")], (), ("a", "b"), ()),
        # It is the pod of the call, or has ended.
        ([has("b", "GPU-1")], (), (), ("a", "b")),
        ([has("b", "GPU-0"), has("b", "GPU-1")], (), (), ("a", "b")),
        ([has("b", "GPU-0")], ("b", "c"), ("b",), ("a", "c")),
    ],
)
def test_a_call_gets_what_it_asks_for_and_the_pods_with_other_units_have_had_nothing_of_it(
    containers: list[UnitsOfContainer],
    suspects: tuple[PodUid, ...],
    keepers: tuple[str, ...],
    others: tuple[str, ...],
) -> None:
    found = parted_by_call(ROW, {UnitId("GPU-1")}, containers, suspects)
    assert found is not None
    assert (found.kept.devices, found.rest.devices) == ((ZERO,), (ONE,))
    assert (found.keepers, found.rest.users.pods) == (keepers, others)
    assert found.kept.users == ROW.users


def test_of_a_row_without_known_pods_only_suspects_are_asked_about() -> None:
    row = replace(ROW, users=Users())
    found = parted_by_call(row, {UnitId("GPU-1")}, [], (PodUid("c"),))
    assert found is not None
    assert (found.keepers, found.rest.users.pods) == ((), ("c",))
