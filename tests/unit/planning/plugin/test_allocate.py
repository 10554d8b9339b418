# SPDX-License-Identifier: Apache-2.0
"""What an Allocate call gets: a claim that no API server has, its plan, or why it gets nothing."""

import pytest
from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import (
    ClaimUid,
    DeviceKey,
    DeviceName,
    PodUid,
    ResourceName,
    ShareId,
    UnitId,
)
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import ConfigureDevice, MarkStarted, OwnerConflict, Plan, Refusal
from dra_driver.model.plugin import ContainerAnswer, PluginResource, Sharing, Unit
from dra_driver.model.state import CallBegun, PreparedDevice, Users
from dra_driver.planning.plugin.allocate import (
    AllocateCall,
    claim_of,
    plan_allocate,
    told_its_share,
)
from dra_driver.testing.builders import (
    A_BOOT,
    A_DRIVER,
    A_PLACE,
    A_POOL,
    a_config,
    a_ref,
    a_state,
    an_inventory,
)

UID = ClaimUid("plugin-0a1b2c3d-0000-4000-8000-000000000001")
REF = ClaimRef("device-plugin", "nvidia.com/gpu", UID)
ONE, TWO = Unit(UnitId("GPU-0"), DeviceName("gpu-0")), Unit(UnitId("GPU-1"), DeviceName("gpu-1"))
REPLICA = Unit(UnitId("GPU-0::1"), DeviceName("gpu-0"), ShareId("replica-1"))
BEGUN = CallBegun("7", frozenset({PodUid("pod-before")}))
MEMORY = Unit(UnitId("GPU-1::2"), DeviceName("gpu-1"), ShareId("memory-2"), {"memory": "1Gi"})


def a_resource(*units: Unit, **fields) -> PluginResource:
    return PluginResource(ResourceName("nvidia.com/gpu"), units, "a test", **fields)


def asked(resource: PluginResource, *ids: str) -> Claim | Refusal:
    return claim_of(resource, [UnitId(one) for one in ids], UID, A_PLACE)


def a_claim(resource: PluginResource, *ids: str) -> Claim:
    found = asked(resource, *ids)
    assert isinstance(found, Claim)
    return found


def planned(resource: PluginResource, *ids: str, hooks: bool = True, **more):
    values = {"inventory": an_inventory(2), "state": a_state()} | more
    call = AllocateCall(resource, a_claim(resource, *ids), hooks, BEGUN)
    return plan_allocate(call, place=A_PLACE, **values)


def test_units_become_the_results_of_a_claim_in_the_order_of_the_call() -> None:
    config = a_config(label="a")
    resource = a_resource(ONE, TWO, configs=(config,))
    assert asked(resource, "GPU-1", "GPU-0") == Claim(
        REF,
        (
            DeviceRequestAllocationResult(
                request="GPU-1", driver=A_DRIVER, pool=A_POOL, device="gpu-1"
            ),
            DeviceRequestAllocationResult(
                request="GPU-0", driver=A_DRIVER, pool=A_POOL, device="gpu-0"
            ),
        ),
        (config,),
        unnamed_users=True,
    )


def test_a_unit_of_memory_is_a_share_with_what_it_consumes() -> None:
    assert a_claim(a_resource(REPLICA, MEMORY), "GPU-0::1", "GPU-1::2").results == (
        DeviceRequestAllocationResult(
            request="GPU-0::1",
            driver=A_DRIVER,
            pool=A_POOL,
            device="gpu-0",
            share_id="replica-1",
        ),
        DeviceRequestAllocationResult(
            request="GPU-1::2",
            driver=A_DRIVER,
            pool=A_POOL,
            device="gpu-1",
            share_id="memory-2",
            consumed_capacity={"memory": "1Gi"},
        ),
    )


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (
            ("GPU-0", "GPU-8", "GPU-9"),
            (
                "resource nvidia.com/gpu: the driver has no unit GPU-8, GPU-9 (any more): the device vanished, or the resource was "
                "configured anew; delete the pod if nothing creates it again, the kubelet has the new list already"
            ),
        ),
        ((), "resource nvidia.com/gpu: the kubelet sent no unit; restart it"),
        (("GPU-0", "GPU-0"), "resource nvidia.com/gpu: the kubelet sent GPU-0, GPU-0; restart it"),
    ],
)
def test_units_that_the_kubelet_cannot_mean_are_refused(ids: tuple[str, ...], reason: str) -> None:
    assert asked(a_resource(ONE, TWO), *ids) == Refusal(reason)


def test_several_units_are_refused_where_they_mean_no_more_of_a_device() -> None:
    resource = a_resource(ONE, TWO, refuses_several=True)
    assert asked(resource, "GPU-0", "GPU-1") == Refusal(
        "resource nvidia.com/gpu: a container asks for 2, and may have 1: more units are not more of a GPU "
        "(failRequestsGreaterThanOne); write 1 in its limits"
    )
    assert isinstance(asked(resource, "GPU-1"), Claim)


def test_the_plan_is_that_of_a_claim_whose_pod_nobody_knows() -> None:
    plan = planned(a_resource(ONE, TWO), "GPU-0")
    assert isinstance(plan, Plan)
    started, configure = plan.steps
    assert isinstance(started, MarkStarted)
    row = started.claim
    assert (row.ref, row.boot_id, row.users) == (REF, A_BOOT, Users(call=BEGUN))
    (cdi_id,) = row.devices[0].cdi_ids
    assert row.devices == (
        PreparedDevice(("GPU-0",), A_POOL, DeviceName("gpu-0"), (cdi_id,), "uuid-gpu-0"),
    )
    assert cdi_id.startswith(f"{A_PLACE.cdi_kind}={UID}-")
    assert cdi_id.endswith("-gpu-0")
    lease = Lease(UID, "GPU-0", DeviceName("gpu-0"), parent="uuid-gpu-0")
    assert row.leases == (lease,)
    assert configure == ConfigureDevice(lease)
    assert isinstance(configure, ConfigureDevice)
    assert configure.lease.hooks
    assert not row.is_fixed
    assert all(device.by_name for device in plan.devices)
    assert (plan.claim, plan.devices) == (REF, row.devices)


def test_without_hooks_each_lease_says_so() -> None:
    plan = planned(a_resource(ONE, TWO), "GPU-0", "GPU-1", hooks=False)
    assert [step.claim.is_fixed for step in plan.steps if isinstance(step, MarkStarted)] == [True]
    assert isinstance(plan, Plan)
    leases = [step.lease for step in plan.steps if isinstance(step, ConfigureDevice)]
    assert [(lease.device, lease.hooks) for lease in leases] == [
        ("gpu-0", False),
        ("gpu-1", False),
    ]


def test_a_device_that_claims_cannot_share_is_shared_because_the_admin_wants_it() -> None:
    """Only the devices of these units: another device of the same call stays as it is."""
    plan = planned(a_resource(REPLICA, TWO), "GPU-0::1", "GPU-1")
    assert isinstance(plan, Plan)
    assert [device.key for device in plan.devices] == [
        DeviceKey(A_POOL, DeviceName("gpu-0"), ShareId("replica-1")),
        DeviceKey(A_POOL, DeviceName("gpu-1")),
    ]


def test_a_device_with_an_owner_is_a_conflict() -> None:
    owners = {DeviceKey(A_POOL, DeviceName("gpu-0")): a_ref("other")}
    assert planned(a_resource(ONE), "GPU-0", state=a_state(owners=owners)) == OwnerConflict(
        REF, a_ref("other"), DeviceName("gpu-0")
    )


def test_a_refusal_names_the_resource_and_no_claim() -> None:
    found = planned(a_resource(ONE), "GPU-0", inventory=Inventory(()))
    assert isinstance(found, Refusal)
    assert found.reason.startswith(
        "device gpu-0 of resource nvidia.com/gpu is not found on this node (any more)"
    )
    assert "ResourceClaim" not in found.reason


def test_shares_that_do_not_fit_are_refused() -> None:
    most = replace(MEMORY, amounts={"memory": "81Gi"})
    found = planned(a_resource(most), "GPU-1::2")
    assert isinstance(found, Refusal)
    assert "resource nvidia.com/gpu" in found.reason


def test_a_container_is_told_its_share_of_memory() -> None:
    """And keeps what the answer has: with CDI names, variables of the answer are all that a container gets of its own."""
    answer = ContainerAnswer(env={"A": "1"}, cdi_ids=("vendor/class=name",))
    three = [UnitId(f"GPU-1::{number}") for number in range(3)]
    shared = a_resource(MEMORY, sharing=Sharing.MEMORY)
    assert told_its_share(shared, three, answer) == replace(
        answer, env={"A": "1", "DRA_DEVICE_MEMORY": "3Gi"}
    )
    assert told_its_share(a_resource(REPLICA, sharing=Sharing.REPLICAS), three, answer) == answer
