# SPDX-License-Identifier: Apache-2.0
"""From what the backends returned to the end of a preparation."""

from msgspec.structs import replace

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits, DeviceNode
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import MarkPrepared, MarkStarted, Plan, Refusal, WriteCdiSpec
from dra_driver.planning.adopt import told_that_it_may_run
from dra_driver.planning.finish import is_file_of, plan_finish, started_row, variables_by_device
from dra_driver.planning.prepare import plan_prepare
from dra_driver.testing.builders import (
    A_PLACE,
    a_claim,
    a_device,
    a_result,
    a_state,
    an_edit,
    an_inventory,
)

KIND = "k8s.gpu.dra-driver.dev/claim"


def first_half(*results, inventory: Inventory | None = None) -> Plan:
    claim = a_claim("wine", results=results)
    plan = plan_prepare(
        claim.ref,
        claim,
        place=A_PLACE,
        inventory=inventory or an_inventory(),
        state=a_state(),
    )
    assert isinstance(plan, Plan)
    return plan


def finish(plan: Plan, *edits: object, inventory: Inventory | None = None) -> Plan | Refusal:
    return plan_finish(plan, edits, driver=A_PLACE.driver, inventory=inventory or an_inventory())


def test_the_row_gets_the_text_before_the_file_is_written() -> None:
    plan = first_half(a_result("gpu-1"), a_result("gpu-0", request="more"))
    edits = [
        ContainerEdits(env={"A": "1"}, device_nodes=(DeviceNode("/dev/gpu-1"),)),
        ContainerEdits(env={"A": "0"}),
    ]
    names = [device.cdi_ids[0].partition("=")[2] for device in plan.devices]
    spec = CdiSpec(KIND, tuple(map(CdiDevice, names, edits)))
    uid, text = plan.claim.uid, spec.to_json()
    assert [spec.device_id(device) for device in spec.devices] == [
        cdi_id for device in plan.devices for cdi_id in device.cdi_ids
    ]
    assert finish(plan, *edits) == Plan(
        plan.claim, (MarkPrepared(uid, text), WriteCdiSpec(uid, text)), plan.devices
    )


def test_the_row_of_a_claim_that_may_run_gets_its_leases_before_it_is_prepared() -> None:
    plan = told_that_it_may_run(first_half(a_result("gpu-1")))
    assert started_row(plan).leases is None
    ended = finish(plan, ContainerEdits(env={"A": "1"}))
    assert isinstance(ended, Plan)
    assert [type(step) for step in ended.steps] == [MarkStarted, MarkPrepared, WriteCdiSpec]
    (lease,) = started_row(ended).leases or ()
    assert lease.device == "gpu-1"


def test_admin_access_is_told_to_the_container() -> None:
    plan = first_half(a_result(admin=True))
    ended = finish(plan, ContainerEdits())
    assert isinstance(ended, Plan)
    (variables,) = variables_by_device(ended.steps[1].text).values()
    assert variables == {"DRA_ADMIN_ACCESS": "true"}


def test_a_backend_that_tells_each_device_about_admin_access_says_yes_for_the_whole_claim() -> None:
    no, silent = ContainerEdits(env={"DRA_ADMIN_ACCESS": "false"}), ContainerEdits(env={"A": "1"})
    plan = first_half(
        a_result("gpu-0", admin=True), a_result("gpu-1", request="r"), inventory=an_inventory(2)
    )
    for answer, expected in ((no, {"DRA_ADMIN_ACCESS": "true"}), (silent, {"A": "1"})):
        ended = finish(plan, no, answer)
        assert isinstance(ended, Plan)
        _, other = variables_by_device(ended.steps[1].text).values()
        assert other == expected
    ended = finish(first_half(a_result()), no)
    assert isinstance(ended, Plan)
    (variables,) = variables_by_device(ended.steps[1].text).values()
    assert variables == {"DRA_ADMIN_ACCESS": "false"}


def test_a_device_without_edits_gets_one_because_cdi_needs_one() -> None:
    ended = finish(first_half(a_result()), ContainerEdits())
    assert isinstance(ended, Plan)
    (variables,) = variables_by_device(ended.steps[1].text).values()
    assert variables == {"DRA_DRIVER_NAME": "gpu.dra-driver.dev"}


def test_refused_edits_name_the_device_and_the_claim() -> None:
    plan = first_half(a_result())
    loader = ContainerEdits(env={"LD_PRELOAD": "/x.so"})
    assert finish(plan, loader) == Refusal(
        "the backend's container edits for device gpu-0 of claim default/wine (uid uid-wine) are refused: "
        "variable LD_PRELOAD changes which code the container's programs load; declare 'LD_PRELOAD' if it is meant; "
        "this is a defect of the backend, report it to its author"
    )
    assert isinstance(finish(plan, None), Refusal)


def test_declared_edits_are_accepted_while_the_device_is_there() -> None:
    device = replace(a_device(), declares=frozenset({"LD_PRELOAD"}))
    plan = first_half(a_result(), inventory=Inventory((device,)))
    loader = ContainerEdits(env={"LD_PRELOAD": "/x.so"})
    assert isinstance(finish(plan, loader, inventory=Inventory((device,))), Plan)
    assert isinstance(finish(plan, loader, inventory=Inventory()), Refusal)


def test_a_file_belongs_to_a_row_if_it_describes_exactly_its_devices() -> None:
    plan = first_half(a_result("gpu-0"), a_result("gpu-1", request="more"))
    row = started_row(plan)
    ended = finish(plan, *map(an_edit, row.leases or ()))
    assert isinstance(ended, Plan)
    assert is_file_of(row, ended.steps[1].text)
    assert not is_file_of(row, ended.steps[1].text.replace("gpu-1", "gpu-2"))
    assert not is_file_of(row, ended.steps[1].text[:-9])
    assert not is_file_of(replace(row, devices=row.devices[:1]), ended.steps[1].text)
