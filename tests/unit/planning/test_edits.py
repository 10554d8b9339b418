# SPDX-License-Identifier: Apache-2.0
"""What a container gets for one device."""

from dataclasses import replace

from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.claim import DeviceConfig
from dra_driver.planning.edits import container_edits
from dra_driver.testing.builders import a_device, a_result

NODES = (DeviceNode("/dev/gpu-0", major=120, minor=0),)


def test_the_variable_is_the_device_in_capitals_and_its_value_the_uuid() -> None:
    device = a_device("mig-0-1g-10gb")
    edits = container_edits(device, a_result(device.name), DeviceConfig())
    assert edits.env == {"GPU_DEVICE_MIG_0_1G_10GB": "uuid-mig-0-1g-10gb"}


def test_share_label_and_admin_access_have_their_variables() -> None:
    result = a_result(share="ab-1", admin=True)
    edits = container_edits(a_device(), result, DeviceConfig(label="a=b; $(x) ../"))
    assert edits == ContainerEdits(
        env={
            "GPU_DEVICE_GPU_0_AB_1": "uuid-gpu-0",
            "GPU_LABEL_GPU_0_AB_1": "a=b; $(x) ../",
            "DRA_ADMIN_ACCESS": "true",
        },
        device_nodes=NODES,
    )


def test_sharing_settings_carry_the_devices_number() -> None:
    config = DeviceConfig(sharing={"SHARING_STRATEGY": "TimeSlicing"})
    edits = container_edits(a_device(), a_result(), config)
    assert edits.env == {
        "GPU_DEVICE_GPU_0": "uuid-gpu-0",
        "GPU_DEVICE_0_SHARING_STRATEGY": "TimeSlicing",
    }


def test_the_vendors_edits_stay_and_ours_win() -> None:
    vendor = ContainerEdits(env={"VENDOR": "1", "GPU_DEVICE_GPU_0": "x"}, device_nodes=NODES)
    edits = container_edits(replace(a_device(), edits=vendor), a_result(), DeviceConfig())
    assert edits == ContainerEdits(
        env={"VENDOR": "1", "GPU_DEVICE_GPU_0": "uuid-gpu-0"}, device_nodes=NODES
    )
