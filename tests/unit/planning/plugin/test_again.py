# SPDX-License-Identifier: Apache-2.0
"""Rows for what pods have already: set up again after a reboot, or reserved."""

import pytest
from msgspec.structs import replace

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits
from dra_driver.model.claim import ClaimRef, DeviceConfig
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ResourceName, ShareId, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import ConfigureDevice, MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.model.plugin import PluginResource, Unit, UnitsOfContainer
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.planning.plugin.again import (
    by_pod,
    described_units,
    is_nameless,
    plan_again,
    plan_taken_up,
)
from dra_driver.testing.builders import A_PLACE, A_POOL, a_ref
from dra_driver.testing.builders import a_device as a_gpu

GPU = ResourceName("nvidia.com/gpu")
UID = ClaimUid("plugin-1")
REF = ClaimRef("device-plugin", GPU, UID)
WHOLE = Unit(UnitId("GPU-0"), DeviceName("gpu-0"))
REPLICA = Unit(UnitId("GPU-1::0"), DeviceName("gpu-1"), ShareId("replica-0"))
RESOURCE = PluginResource(GPU, (WHOLE, REPLICA), "a test")
POD = PodUid("pod-a")


def a_container(*units: str) -> UnitsOfContainer:
    return UnitsOfContainer(POD, "main", GPU, frozenset(map(UnitId, units)))


def a_device(unit: Unit, *cdi_ids: str, by_name: bool = True) -> PreparedDevice:
    return PreparedDevice((unit.id,), A_POOL, unit.device, cdi_ids, "", unit.share, by_name=by_name)


def a_row(*devices: PreparedDevice, ref: ClaimRef = REF, **fields) -> PreparedClaim:
    return PreparedClaim(ref, Phase.PREPARED, "before", devices, "text", **fields)


def after_reboot(**names: str) -> Inventory:
    """The devices of now: their names, and their UUIDs."""
    return Inventory(
        tuple(replace(a_gpu(name.replace("_", "-")), uuid=uuid) for name, uuid in names.items())
    )


def test_after_a_reboot_the_leases_are_set_up_again_for_the_same_pods_and_names() -> None:
    before = (a_device(WHOLE, "k=a"), a_device(REPLICA, "k=b"))
    leases = (
        Lease(UID, "GPU-0", WHOLE.device, config=DeviceConfig({"label": "x"})),
        Lease(UID, "GPU-1::0", REPLICA.device, 1, REPLICA.share),
    )
    row = a_row(*before, users=Users((POD,), sole=True), leases=leases)
    # The first GPU is dead: those behind it have other names now.
    plan = plan_again(row, after_reboot(gpu_3="GPU-0", gpu_0="GPU-1"), "now")
    devices = (
        PreparedDevice((WHOLE.id,), A_POOL, DeviceName("gpu-3"), ("k=a",), "GPU-0"),
        PreparedDevice(
            (REPLICA.id,), A_POOL, DeviceName("gpu-0"), ("k=b",), "GPU-1", REPLICA.share
        ),
    )
    now = (
        Lease(UID, "GPU-0", devices[0].device, config=leases[0].config, parent="GPU-0"),
        Lease(UID, "GPU-1::0", devices[1].device, 1, REPLICA.share, parent="GPU-1"),
    )
    started = replace(
        row, phase=Phase.STARTED, boot_id="now", cdi_spec="", devices=devices, leases=now
    )
    assert plan == Plan(REF, (MarkStarted(started), *map(ConfigureDevice, now)), devices)
    assert isinstance(plan, Plan)
    assert [device.uuid for device in plan.devices] == ["GPU-0", "GPU-1"]


def test_without_leases_the_devices_are_only_reserved_again() -> None:
    row = a_row(a_device(WHOLE, "k=a"))
    started = replace(row, phase=Phase.STARTED, boot_id="now", cdi_spec="")
    steps = (MarkStarted(started), MarkPrepared(UID))
    assert plan_again(row, after_reboot(gpu_0="GPU-0"), "now") == Plan(REF, steps, row.devices)


def test_a_unit_whose_device_is_gone_is_not_set_up_again() -> None:
    row = a_row(a_device(WHOLE, "k=a"), users=Users((POD,)), leases=())
    assert plan_again(row, after_reboot(gpu_0="GPU-7"), "now") == Refusal(
        "unit GPU-0 of resource nvidia.com/gpu cannot be set up again after the reboot: its device, which was called gpu-0, is not found any "
        "more, and gpu-0 is another device now (GPU-7); `dra-driver devices` shows what is; delete the pod (UID pod-a) if nothing creates it "
        "again, and look after the device"
    )


def test_a_row_whose_set_up_began_in_this_boot_does_not_go_to_another_name() -> None:
    row = replace(a_row(a_device(WHOLE, "k=a"), users=Users((POD,))), boot_id="now")
    found = plan_again(row, after_reboot(gpu_1="GPU-0"), "now")
    assert isinstance(found, Refusal)
    assert "gpu-0 got another name while it was being set up again" in found.reason
    assert "(UID pod-a)" in found.reason
    assert isinstance(plan_again(row, after_reboot(gpu_0="GPU-0"), "now"), Plan)


def test_a_fixed_row_keeps_its_name_and_gets_its_units_device_besides() -> None:
    lease = Lease(UID, "GPU-0", WHOLE.device, parent="GPU-0")
    fixed = a_row(a_device(WHOLE, "k=a", by_name=False), users=Users((POD,)), leases=(lease,))
    inventory = after_reboot(gpu_0="GPU-1", gpu_1="GPU-0")
    plan = plan_again(fixed, inventory, "now")
    assert isinstance(plan, Plan)
    spare = PreparedDevice((WHOLE.id,), A_POOL, DeviceName("gpu-1"), (), "GPU-0")
    now = Lease(UID, "GPU-0", WHOLE.device, parent="GPU-1")
    started = replace(
        fixed,
        phase=Phase.STARTED,
        boot_id="now",
        cdi_spec="",
        devices=(*fixed.devices, spare),
        leases=(now,),
    )
    # The CDI file, and what is set up, are of the first device alone.
    assert plan == Plan(REF, (MarkStarted(started), ConfigureDevice(now)), fixed.devices)
    # It was begun, and goes on with what it has, also if it could have more now.
    assert plan_again(started, inventory, "now") == plan
    alone = replace(started, devices=fixed.devices)
    assert plan_again(alone, inventory, "now") == Plan(
        REF, (MarkStarted(alone), ConfigureDevice(now)), fixed.devices
    )
    other = a_row(a_device(REPLICA), ref=a_ref())
    assert plan_again(fixed, inventory, "now", [other]) != plan
    # The hardware changes again while it is set up.
    refused = plan_again(started, after_reboot(gpu_0="GPU-2", gpu_1="GPU-0"), "now")
    assert isinstance(refused, Refusal)


def test_what_a_running_pod_has_becomes_a_row_with_the_text_of_its_file() -> None:
    names = ("plugin-1-0a1b2c3d-gpu-0", "plugin-1-0a1b2c3d-gpu-1-replica-0")
    edits = ContainerEdits({"GPU": "1"})
    text = CdiSpec(A_PLACE.cdi_kind, tuple(CdiDevice(name, edits) for name in names)).to_json()
    devices = tuple(
        a_device(unit, f"{A_PLACE.cdi_kind}={name}")
        for unit, name in zip((WHOLE, REPLICA), names, strict=True)
    )
    row = PreparedClaim(REF, Phase.STARTED, "now", devices, text, Users((POD,), sole=True))
    plan = plan_taken_up(
        a_container("GPU-0", "GPU-1::0"), RESOURCE, UID, text, place=A_PLACE, boot_id="now"
    )
    assert plan == Plan(REF, (MarkStarted(row), MarkPrepared(UID)), devices)


def test_what_another_plugin_gave_out_has_no_names() -> None:
    plan = plan_taken_up(
        a_container("GPU-0", "GPU-9"), RESOURCE, UID, "", place=A_PLACE, boot_id="now"
    )
    assert plan is not None
    assert plan.devices == (a_device(WHOLE),)


def test_units_that_the_resource_does_not_have_make_no_row() -> None:
    found = plan_taken_up(a_container("GPU-9"), RESOURCE, UID, "", place=A_PLACE, boot_id="now")
    assert found is None


@pytest.mark.parametrize(
    ("ref", "held", "nameless"),
    [
        (replace(REF, name=""), None, True),
        (REF, None, False),
        (replace(a_ref(), name=""), None, False),
        (replace(REF, name=""), Held("a test", "now"), False),
    ],
)
def test_a_row_of_a_file_alone_has_no_name(
    ref: ClaimRef, held: Held | None, *, nameless: bool
) -> None:
    assert is_nameless(a_row(a_device(WHOLE), ref=ref, held=held)) is nameless


def test_a_row_has_the_units_whose_devices_and_shares_it_has() -> None:
    whole, replica = a_row(a_device(WHOLE)), a_row(a_device(REPLICA))
    both = a_row(a_device(WHOLE), a_device(REPLICA))
    assert described_units(both, a_container("GPU-0"), RESOURCE) == {"GPU-0"}
    assert described_units(both, a_container("GPU-0", "GPU-1::0"), RESOURCE) == {
        "GPU-0",
        "GPU-1::0",
    }
    assert described_units(whole, a_container("GPU-0", "GPU-1::0"), RESOURCE) == {"GPU-0"}
    assert not described_units(replica, a_container("GPU-0"), RESOURCE)
    assert not described_units(whole, a_container("GPU-9"), RESOURCE)


def test_the_containers_of_a_pod_have_their_units_together() -> None:
    first, second = a_container("GPU-0"), a_container("GPU-0", "GPU-1::0")
    other = replace(second, pod=PodUid("pod-b"))
    assert by_pod([first, other, second]) == (replace(first, units=second.units), other)
