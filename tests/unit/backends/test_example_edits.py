# SPDX-License-Identifier: Apache-2.0
"""A container gets the variables that the example driver gives: programs and its own tests read them by name."""

from typing import Any

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.example import ExampleOptions
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.backends.simulated_config import (
    GPU,
    GPU_OF_LATER_RELEASES,
    LABEL,
    NET,
    BandwidthBurst,
    GpuConfig,
    GpuSharing,
    LabelConfig,
    NetConfig,
    SpacePartitioningConfig,
)
from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.ids import DeviceName, ShareId
from dra_driver.model.lease import Lease
from dra_driver.testing.builders import a_uid

COMMON = {
    "KUBERNETES_NODE_NAME": "node-1",
    "DRA_RESOURCE_DRIVER_NAME": "x.example.com",
    "DRA_ADMIN_ACCESS": "false",
}
BY_TIME = {
    "GPU_DEVICE_3_SHARING_STRATEGY": "TimeSlicing",
    "GPU_DEVICE_3_TIMESLICE_INTERVAL": "Default",
}
WHOLE = {
    **COMMON,
    "GPU_DEVICE_3": "gpu-3",
    "GPU_DEVICE_GPU_3_RESOURCE_CLAIM": "uid-claim",
}


def edits(device: str, profile: str = "gpu", partitions: int = 0, **more: Any) -> ContainerEdits:
    example = ExampleOptions(profile=profile, partitions=partitions)  # type: ignore[arg-type]
    options = SimulatedOptions(profile="example", example=example)
    backend = SimulatedBackend(BackendContext("node-1", options, "x.example.com"))
    return backend.configure(Lease(a_uid("claim"), "r", DeviceName(device), **more))


def test_a_gpu_has_its_device_file_and_is_shared_by_time():
    found = edits("gpu-3")
    assert found.env == {**WHOLE, **BY_TIME}
    assert found.device_nodes == (DeviceNode("/dev/dra-simulated/gpu-3", major=120, minor=3),)


@pytest.mark.parametrize("kind", [GPU, GPU_OF_LATER_RELEASES])
def test_a_gpu_is_shared_as_its_configuration_says(kind: Any):
    sharing = GpuSharing(
        strategy="SpacePartitioning",
        space_partitioning_config=SpacePartitioningConfig(partition_count=10),
    )
    assert edits("gpu-3", config=kind.config(GpuConfig(sharing=sharing))).env == {
        **WHOLE,
        "GPU_DEVICE_3_SHARING_STRATEGY": "SpacePartitioning",
        "GPU_DEVICE_3_PARTITION_COUNT": "10",
    }


def test_exactly_one_variable_of_a_gpu_names_a_device():
    found = edits("gpu-3", share_id=ShareId("s"), consumed_capacity={"memory": "16Gi"}).env
    named = [name for name, value in found.items() if value.startswith("gpu-")]
    assert named == ["GPU_DEVICE_3"]


def test_a_share_says_how_much_it_has():
    consumed = {"memory": "16Gi", "compute": "20"}
    assert edits("gpu-3", share_id=ShareId("s"), consumed_capacity=consumed).env == {
        **WHOLE,
        **BY_TIME,
        "GPU_DEVICE_3_MEMORY": "16Gi",
        "GPU_DEVICE_3_COMPUTE": "20",
    }


def test_the_name_of_a_partition_becomes_part_of_its_variables():
    env = edits("gpu-0-partition-1", partitions=2).env
    assert env["GPU_DEVICE_0_PARTITION_1"] == "gpu-0-partition-1"
    assert env["GPU_DEVICE_GPU_0_PARTITION_1_RESOURCE_CLAIM"] == "uid-claim"
    assert env["GPU_DEVICE_0_PARTITION_1_SHARING_STRATEGY"] == "TimeSlicing"


def test_admin_access_is_told():
    assert edits("gpu-3", admin_access=True).env["DRA_ADMIN_ACCESS"] == "true"


def test_a_label_is_told_too():
    env = edits("gpu-3", config=LABEL.config(LabelConfig(label="mine"))).env
    assert env == {**WHOLE, **BY_TIME, "GPU_LABEL_GPU_3": "mine"}
    assert edits("gpu-3", config=LABEL.config(LabelConfig())).env == {**WHOLE, **BY_TIME}


def test_a_network_card_has_rates_in_digits_and_no_file():
    consumed = {"vfs": "1", "ingressBandwidth": "10G", "egressBandwidth": "5000M"}
    found = edits("nic-2", "net", share_id=ShareId("s"), consumed_capacity=consumed)
    assert found.device_nodes == ()
    assert found.env == {
        **COMMON,
        "NET_DEVICE_2": "nic-2",
        "NET_DEVICE_NIC_2_RESOURCE_CLAIM": "uid-claim",
        "NET_DEVICE_2_INGRESS_RATE": "10000000000",
        "NET_DEVICE_2_EGRESS_RATE": "5000000000",
    }


def test_a_network_card_has_the_bursts_of_its_configuration():
    burst = NetConfig(bandwidth_burst=BandwidthBurst(ingress_burst=7))
    env = edits("nic-2", "net", config=NET.config(burst)).env
    assert {name: value for name, value in env.items() if "_BURST" in name} == {
        "NET_DEVICE_2_INGRESS_BURST": "7"
    }


def test_a_numa_node_says_how_many_cpus_the_claim_has():
    consumed = {"x.example.com/cpu": "2"}
    env = edits("numa-1", "cpu", share_id=ShareId("s"), consumed_capacity=consumed).env
    assert env == {
        **COMMON,
        "CPU_DEVICE_1": "numa-1",
        "CPU_DEVICE_NUMA_1_RESOURCE_CLAIM": "uid-claim",
        "CPU_DEVICE_1_CONSUMED_CPU": "2",
    }
    assert "CPU_DEVICE_1_CONSUMED_CPU" not in edits("numa-1", "cpu").env
