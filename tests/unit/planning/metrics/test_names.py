# SPDX-License-Identifier: Apache-2.0
"""One measurement under each of the names, with the units and labels of each exporter."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import DeviceAttribute
from dra_driver.model.device import AttributeValue
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import Hardware
from dra_driver.model.usage import DeviceUsage, NodeUsage, UsageSample
from dra_driver.planning.metrics.aliases import SCHEMES
from dra_driver.planning.metrics.families import Place, said
from dra_driver.planning.metrics.node import node_families
from dra_driver.planning.metrics.schemes import SCHEME_NAMES
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_POOL, a_device
from tests.support.usage_rows import a_prepared_device, a_row, a_use

PLACE = Place(A_DRIVER, A_POOL, A_NODE)
FULL = DeviceUsage(
    utilization_ratio=0.5,
    memory_utilization_ratio=0.25,
    memory_used_bytes=1 << 30,
    memory_total_bytes=4 << 30,
    memory_reserved_bytes=512 << 20,
    temperature_celsius=61.0,
    power_watts=350.5,
    power_limit_watts=700.0,
    clocks_hertz={"sm": 1980e6, "memory": 2619e6},
    ecc_errors={"corrected": 3, "uncorrected": 1},
    throttled={"sw_power_cap": True, "hw_thermal_slowdown": False},
)
WHOLE: dict[str, AttributeValue] = {
    "productName": "NVIDIA H100",
    "index": 4,
    "minor": 5,
    "vendor": "nvidia",
    "resource.kubernetes.io/pciBusID": "0000:6a:00.0",
}
NOT_OF_A_DEVICE = (
    "prepared",
    "held",
    "claim",
    "state",
    "device_allocated",
    "device_not",
    "device_sample",
)


def test_each_value_of_the_setting_has_its_table() -> None:
    assert tuple(SCHEMES) == SCHEME_NAMES


def shown(
    usage: DeviceUsage,
    scheme: str,
    attributes: dict[str, AttributeValue] = WHOLE,
    *,
    name: str = "gpu-0",
    parts: tuple[str, ...] = (),
    numbers: Mapping[str, int] = MappingProxyType({}),
):
    device = a_device(name, attributes=attributes)
    device = replace(device, hardware=Hardware("GPU-1", parts), numbers=numbers)
    node = NodeUsage(
        (device,),
        {DeviceName(name): UsageSample(usage, 0.0)},
        (a_row("train", a_prepared_device(name)),),
        (a_use(device=name),),
    )
    return {
        (
            family.exposed,
            tuple(own for key, own in labels.items() if key in {"clock", "type", "reason"}),
        ): (labels, value)
        for family in node_families(node, 0.0, PLACE, [scheme])
        if not family.name.removeprefix("dra_driver_").startswith(NOT_OF_A_DEVICE)
        for labels, value in family.series
    }


def values(usage: DeviceUsage, scheme: str) -> dict[str, float]:
    return {
        " ".join((name, *own)): value for (name, own), (_, value) in shown(usage, scheme).items()
    }


def labels(
    scheme: str, attributes: dict[str, AttributeValue] = WHOLE, **named: Any
) -> dict[str, str]:
    series = shown(DeviceUsage(temperature_celsius=1.0), scheme, attributes, **named).values()
    (found,) = {tuple(sorted(labels.items())) for labels, _ in series}
    return dict(found)


def test_own_names_have_base_units() -> None:
    assert values(FULL, "own") == {
        "dra_driver_device_utilization_ratio": 0.5,
        "dra_driver_device_memory_utilization_ratio": 0.25,
        "dra_driver_device_memory_used_bytes": 1 << 30,
        "dra_driver_device_memory_total_bytes": 4 << 30,
        "dra_driver_device_memory_reserved_bytes": 512 << 20,
        "dra_driver_device_temperature_celsius": 61.0,
        "dra_driver_device_power_watts": 350.5,
        "dra_driver_device_power_limit_watts": 700.0,
        "dra_driver_device_clock_hertz sm": 1980e6,
        "dra_driver_device_clock_hertz memory": 2619e6,
        "dra_driver_device_ecc_errors_total corrected": 3.0,
        "dra_driver_device_ecc_errors_total uncorrected": 1.0,
        "dra_driver_device_throttled sw_power_cap": 1.0,
        "dra_driver_device_throttled hw_thermal_slowdown": 0.0,
    }


def test_dcgm_has_percent_mebibytes_and_megahertz() -> None:
    assert values(FULL, "dcgm") == {
        "DCGM_FI_DEV_GPU_UTIL": 50.0,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 25.0,
        "DCGM_FI_DEV_FB_USED": 1024.0,
        "DCGM_FI_DEV_FB_FREE": 2560.0,
        "DCGM_FI_DEV_FB_RESERVED": 512.0,
        "DCGM_FI_DEV_FB_TOTAL": 4096.0,
        "DCGM_FI_DEV_GPU_TEMP": 61.0,
        "DCGM_FI_DEV_POWER_USAGE": 350.5,
        "DCGM_FI_DEV_SM_CLOCK": 1980.0,
        "DCGM_FI_DEV_MEM_CLOCK": 2619.0,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 3.0,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1.0,
    }


def test_free_memory_is_what_is_neither_used_nor_reserved() -> None:
    def free(**memory: int) -> float:
        return values(DeviceUsage(**memory), "dcgm")["DCGM_FI_DEV_FB_FREE"]

    mib = 1 << 20
    assert free(memory_total_bytes=9 * mib, memory_used_bytes=2 * mib) == 7.0
    odd = {"memory_total_bytes": 9 * mib, "memory_used_bytes": 9 * mib}
    assert free(**odd, memory_reserved_bytes=mib) == 0.0


def test_the_duty_cycle_is_in_percent_and_power_in_milliwatts() -> None:
    assert values(FULL, "duty-cycle") == {
        "nvidia_gpu_duty_cycle": 50.0,
        "nvidia_gpu_memory_used_bytes": 1 << 30,
        "nvidia_gpu_memory_total_bytes": 4 << 30,
        "nvidia_gpu_temperature_celsius": 61.0,
        "nvidia_gpu_power_usage_milliwatts": 350500.0,
    }


def test_opentelemetry_has_ratios_and_bytes() -> None:
    assert values(FULL, "opentelemetry") == {
        "hw_gpu_utilization_ratio": 0.5,
        "hw_gpu_memory_usage_bytes": 1 << 30,
        "hw_gpu_memory_limit_bytes": 4 << 30,
        "hw_gpu_memory_utilization_ratio": 0.25,
        "hw_temperature_celsius": 61.0,
        "hw_power_watts": 350.5,
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_the_hardware_cannot_say_has_no_series(scheme: str) -> None:
    assert values(DeviceUsage(), scheme) == {}
    half = values(DeviceUsage(memory_used_bytes=5), scheme)
    assert len(half) == 1
    no_memory = values(DeviceUsage(memory_used_bytes=0, memory_total_bytes=0), scheme)
    assert "hw_gpu_memory_utilization_ratio" not in no_memory


@pytest.mark.parametrize("scheme", SCHEMES)
def test_names_are_those_of_prometheus(scheme: str) -> None:
    for measure in SCHEMES[scheme][0]:
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", measure.name)
        assert not measure.name.endswith("_total")


def test_the_labels_of_dcgm_name_gpu_and_claim() -> None:
    assert labels("dcgm") == {
        "gpu": "4",
        "UUID": "uuid-gpu-0",
        "device": "nvidia4",
        "modelName": "NVIDIA H100",
        "Hostname": A_NODE,
        "pci_bus_id": "00000000:6A:00.0",
        "GPU_I_ID": "",
        "GPU_I_PROFILE": "",
        "namespace": "default",
        "pod": "train-0",
        "container": "main",
        "dra_claim_name": "train",
        "dra_claim_namespace": "default",
        "dra_driver_name": A_DRIVER,
        "dra_pool_name": A_POOL,
        "dra_device_name": "gpu-0",
        "dra_mig_profile": "",
        "dra_mig_device_uuid": "",
    }


def test_a_partition_has_the_numbers_and_the_uuid_of_its_gpu_and_its_own() -> None:
    name = "gpu-2-mig-1g10gb-19-0"
    attributes: dict[str, AttributeValue] = {"parentUUID": "GPU-1", "profile": "1g.10gb"}
    parts = ("memory-slice-0", "instance-7-0")
    numbers = {"index": 1, "minor": 2}
    found = labels("dcgm", attributes, name=name, parts=parts, numbers=numbers)
    assert found["UUID"] == "GPU-1"
    assert found["dra_mig_device_uuid"] == f"uuid-{name}"
    assert (found["gpu"], found["device"], found["GPU_I_ID"]) == ("1", "nvidia1", "7")
    assert found["GPU_I_PROFILE"] == found["dra_mig_profile"] == "1g.10gb"
    duty = labels("duty-cycle", attributes, name=name, parts=parts, numbers=numbers)
    assert (duty["gpu"], duty["minor_number"]) == ("1", "2")
    assert labels("dcgm", attributes, name=name)["GPU_I_ID"] == ""


def test_a_device_without_numbers_has_its_name() -> None:
    found = labels("dcgm", {})
    assert (found["gpu"], found["device"]) == ("gpu-0", "gpu-0")
    assert found["pci_bus_id"] == ""
    assert labels("duty-cycle", {})["gpu"] == "gpu-0"


def test_the_labels_of_the_duty_cycle_and_of_opentelemetry() -> None:
    who = {"namespace": "default", "pod": "train-0", "container": "main", "claim": "train"}
    assert labels("duty-cycle") == {
        "minor_number": "5",
        "gpu": "4",
        "uuid": "uuid-gpu-0",
        "name": "NVIDIA H100",
        **who,
    }
    assert labels("opentelemetry") == {
        "hw_id": "uuid-gpu-0",
        "hw_name": "gpu-0",
        "hw_type": "gpu",
        "hw_model": "NVIDIA H100",
        "hw_vendor": "nvidia",
        "hw_driver_version": "",
        "hw_parent": "",
        "k8s_namespace_name": "default",
        "k8s_pod_name": "train-0",
        "k8s_container_name": "main",
    }


def test_a_list_is_no_label() -> None:
    device = a_device("gpu-0")
    odd = structs.replace(device.api, attributes={"a": DeviceAttribute(string_values=["x"])})
    assert said(replace(device, api=odd), "a") == ""
