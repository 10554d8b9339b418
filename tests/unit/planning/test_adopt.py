# SPDX-License-Identifier: Apache-2.0
"""A lost row, told from the kubelet's words and the CDI document."""

import json

import pytest

from dra_driver.model.cdi import CdiDevice, CdiSpec, ContainerEdits
from dra_driver.model.ids import DeviceName, ShareId
from dra_driver.model.plan import MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.model.state import HeldDevice, Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.adopt import plan_adoption
from dra_driver.planning.edits import device_variable
from dra_driver.testing.builders import A_BOOT, A_DRIVER, A_PLACE, A_POOL, a_ref

REF = a_ref()
KIND = A_PLACE.cdi_kind


def held(device: str, *, share: str = "") -> HeldDevice:
    name = f"{KIND}={REF.uid}-{device}{share and '-' + share}"
    key = (A_DRIVER, A_POOL, DeviceName(device), ShareId(share), (name,))
    return HeldDevice(REF.namespace, REF.name, *key)


def prepared(found: HeldDevice, *, uuid: str = "", admin: bool = False) -> PreparedDevice:
    return PreparedDevice(
        (), A_POOL, found.device, found.cdi_ids, uuid, found.share_id, admin_access=admin
    )


def document(*devices: HeldDevice, admin: tuple[str, ...] = ()) -> str:
    return CdiSpec(
        KIND,
        tuple(
            CdiDevice(
                found.cdi_ids[0].partition("=")[2],
                ContainerEdits(
                    {device_variable(found.device, found.share_id): f"uuid-{found.device}"}
                    | ({"DRA_ADMIN_ACCESS": "true"} if found.device in admin else {})
                ),
            )
            for found in devices
        ),
    ).to_json()


def test_the_row_is_told_from_what_stands_on_the_node() -> None:
    devices = held("gpu-1"), held("gpu-0", share="s1"), held("gpu-9")
    text = document(*devices, admin=("gpu-9",))
    expected = (
        prepared(devices[1], uuid="uuid-gpu-0"),
        prepared(devices[0], uuid="uuid-gpu-1"),
        prepared(devices[2], uuid="uuid-gpu-9", admin=True),
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


def test_a_document_without_a_uuid_has_none() -> None:
    name = held("gpu-0").cdi_ids[0].partition("=")[2]
    text = json.dumps({"kind": KIND, "devices": [{"name": name, "containerEdits": {}}]})
    plan = plan_adoption(REF, [held("gpu-0")], text, boot_id=A_BOOT)
    assert isinstance(plan, Plan)
    assert plan.devices == (prepared(held("gpu-0")),)
