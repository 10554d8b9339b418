# SPDX-License-Identifier: Apache-2.0
"""What every API server does with the entries that a driver applies to status.devices of a claim."""

from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.kube.base import Invalid, NotFound
from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from tests.contract.test_kube_api import ApiServer, Object

NOW = "2026-01-02T03:04:05Z"


def entry(server: ApiServer, device: str = "gpu-0", **data: Any) -> AllocatedDeviceStatus:
    ready = Condition(
        type="Ready", status="True", reason="Prepared", message="set up", last_transition_time=NOW
    )
    return AllocatedDeviceStatus(
        driver=server.driver,
        pool=server.node,
        device=device,
        conditions=[ready],
        data={"uuid": f"GPU-{device}", **data},
    )


def two_devices(server: ApiServer) -> tuple[ClaimRef, Object]:
    """A claim with two devices of this driver and one of another driver."""
    name = f"{server.node}-s"
    claims = f"{server.group}/namespaces/default/resourceclaims"
    requests = [{"name": "main", "exactly": {"deviceClassName": "any.example.com"}}]
    obj = server.made(
        claims,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "labels": {"test": server.node}},
            "spec": {"devices": {"requests": requests}},
        },
    )
    results = [
        {"request": "main", "driver": driver, "pool": server.node, "device": device}
        for driver, device in (
            (server.driver, "gpu-0"),
            (server.driver, "gpu-1"),
            ("other.example.com", "nic-0"),
        )
    ]
    theirs = {"driver": "other.example.com", "pool": server.node, "device": "nic-0"}
    status = {
        "allocation": {"devices": {"results": results}},
        "devices": [{**theirs, "data": {"speed": "fast"}}],
    }
    code, answer = server.call("PUT", f"{claims}/{name}/status", {**obj, "status": status})
    assert code == 200, answer
    return ClaimRef("default", name, ClaimUid(answer["metadata"]["uid"])), answer


def statuses(server: ApiServer, ref: ClaimRef) -> dict[str, AllocatedDeviceStatus]:
    return {one.device: one for one in server.kube.get_claim(ref).statuses}


def test_entries_are_read_as_they_were_written(server: ApiServer) -> None:
    ref, _ = two_devices(server)
    server.kube.report_devices(ref, [entry(server), entry(server, "gpu-1", memory="1Gi")])
    found = statuses(server, ref)
    assert found["gpu-0"] == entry(server)
    assert found["gpu-1"] == entry(server, "gpu-1", memory="1Gi")
    assert found["nic-0"].data == {"speed": "fast"}


def test_nothing_else_of_the_claim_changes(server: ApiServer) -> None:
    ref, before = two_devices(server)
    server.kube.report_devices(ref, [entry(server)])
    path = f"{server.group}/namespaces/default/resourceclaims/{ref.name}"
    _, after = server.call("GET", path)
    assert after["spec"] == before["spec"]
    assert after["status"]["allocation"] == before["status"]["allocation"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


def test_the_same_entries_again_keep_the_version(server: ApiServer) -> None:
    ref, _ = two_devices(server)
    server.kube.report_devices(ref, [entry(server)])
    first = server.kube.get_claim(ref).resource_version
    server.kube.report_devices(ref, [entry(server)])
    assert server.kube.get_claim(ref).resource_version == first


def test_an_entry_that_is_not_applied_again_goes_and_those_of_others_stay(
    server: ApiServer,
) -> None:
    ref, _ = two_devices(server)
    server.kube.report_devices(ref, [entry(server), entry(server, "gpu-1")])
    server.kube.report_devices(ref, [entry(server, "gpu-1", memory="2Gi")])
    found = statuses(server, ref)
    assert sorted(found) == ["gpu-1", "nic-0"]
    assert found["gpu-1"].data["memory"] == "2Gi"
    server.kube.report_devices(ref, [])
    assert sorted(statuses(server, ref)) == ["nic-0"]


def test_a_device_that_is_not_allocated_is_refused(server: ApiServer) -> None:
    ref, _ = two_devices(server)
    with pytest.raises(Invalid, match="must be an allocated device in the claim"):
        server.kube.report_devices(ref, [entry(server), entry(server, "gpu-9")])
    assert sorted(statuses(server, ref)) == ["nic-0"]


def test_too_much_is_refused(server: ApiServer) -> None:
    ref, _ = two_devices(server)
    with pytest.raises(Invalid, match="data"):
        server.kube.report_devices(ref, [entry(server, more="x" * 10_240)])
    with pytest.raises(Invalid, match="data"):
        server.kube.report_devices(ref, [replace(entry(server), data=["no object"])])
    many = [
        Condition(type=f"C{index}", status="True", reason="R", message="", last_transition_time=NOW)
        for index in range(9)
    ]
    with pytest.raises(Invalid, match="conditions"):
        server.kube.report_devices(ref, [replace(entry(server), conditions=many)])


def test_a_claim_that_was_made_anew_is_not_written(server: ApiServer) -> None:
    ref, _ = two_devices(server)
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        server.kube.report_devices(
            ClaimRef(ref.namespace, ref.name, ClaimUid("another")), [entry(server)]
        )


def test_a_claim_that_is_gone_is_not_found(server: ApiServer) -> None:
    gone = ClaimRef("default", f"{server.node}-none", ClaimUid("u"))
    with pytest.raises(NotFound):
        server.kube.report_devices(gone, [entry(server)])


def test_two_parts_of_a_driver_write_into_one_entry(server: ApiServer) -> None:
    ref, _ = two_devices(server)
    attached = Condition(
        type="Attached", status="True", reason="Ready", message="there", last_transition_time=NOW
    )
    bound = AllocatedDeviceStatus(
        driver=server.driver, pool=server.node, device="gpu-0", conditions=[attached]
    )
    server.kube.report_devices(ref, [bound], part="binding")
    server.kube.report_devices(ref, [entry(server)])
    found = statuses(server, ref)["gpu-0"]
    assert {one.type for one in found.conditions or ()} == {"Attached", "Ready"}
    assert found.data == {"uuid": "GPU-gpu-0"}

    server.kube.report_devices(ref, [bound], part="binding")
    found = statuses(server, ref)["gpu-0"]
    assert {one.type for one in found.conditions or ()} == {"Attached", "Ready"}
    assert found.data == {"uuid": "GPU-gpu-0"}

    server.kube.report_devices(ref, [], part="binding")
    found = statuses(server, ref)["gpu-0"]
    assert {one.type for one in found.conditions or ()} == {"Ready"}
    assert found.data == {"uuid": "GPU-gpu-0"}
