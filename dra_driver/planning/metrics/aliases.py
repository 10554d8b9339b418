# SPDX-License-Identifier: Apache-2.0
"""The same measurements under names that dashboards and alerts of other exporters use; an admin chooses which.

The units are those of the other exporter: DCGM has percent, MiB and MHz.
"""

import re
from collections.abc import Mapping

from dra_driver.model.usage import CORRECTED, MEMORY_CLOCK, SM_CLOCK, UNCORRECTED, DeviceUsage
from dra_driver.model.vocabulary import PCI_BUS_ID
from dra_driver.planning.metrics.families import (
    HERTZ_OF_MHZ,
    MIB,
    PERCENT,
    Labels,
    LabelsOf,
    Measure,
    Measured,
    Place,
    Series,
    number,
)
from dra_driver.planning.metrics.own import OWN, holder_labels, labels_of
from dra_driver.planning.metrics.schemes import (
    DCGM_NAMES,
    DUTY_CYCLE_NAMES,
    OPENTELEMETRY_NAMES,
    OWN_NAMES,
)

_WATTS_OF_MILLIWATT = 1000.0
_INSTANCE = re.compile(r"instance-(\d+)-\d+")


def _free(usage: DeviceUsage) -> float | None:
    if usage.memory_total_bytes is None or usage.memory_used_bytes is None:
        return None
    taken = usage.memory_used_bytes + (usage.memory_reserved_bytes or 0)
    return float(max(0, usage.memory_total_bytes - taken))


def _filled(usage: DeviceUsage) -> float | None:
    if not usage.memory_total_bytes or usage.memory_used_bytes is None:
        return None
    return usage.memory_used_bytes / usage.memory_total_bytes


def _ecc(usage: DeviceUsage, kind: str) -> tuple[Series, ...]:
    return number(usage.ecc_errors.get(kind))


DCGM: tuple[Measure, ...] = (
    Measure(
        "DCGM_FI_DEV_GPU_UTIL",
        "gauge",
        "Utilization in percent, under the name of DCGM",
        lambda usage: number(usage.utilization_ratio, PERCENT),
    ),
    Measure(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization in percent, under the name of DCGM",
        lambda usage: number(usage.memory_utilization_ratio, PERCENT),
    ),
    Measure(
        "DCGM_FI_DEV_FB_USED",
        "gauge",
        "Used memory in MiB, under the name of DCGM",
        lambda usage: number(usage.memory_used_bytes, 1 / MIB),
    ),
    Measure(
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Free memory in MiB, under the name of DCGM",
        lambda usage: number(_free(usage), 1 / MIB),
    ),
    Measure(
        "DCGM_FI_DEV_FB_RESERVED",
        "gauge",
        "Reserved memory in MiB, under the name of DCGM",
        lambda usage: number(usage.memory_reserved_bytes, 1 / MIB),
    ),
    Measure(
        "DCGM_FI_DEV_FB_TOTAL",
        "gauge",
        "Memory in MiB, under the name of DCGM",
        lambda usage: number(usage.memory_total_bytes, 1 / MIB),
    ),
    Measure(
        "DCGM_FI_DEV_GPU_TEMP",
        "gauge",
        "Temperature in degrees Celsius, under the name of DCGM",
        lambda usage: number(usage.temperature_celsius),
    ),
    Measure(
        "DCGM_FI_DEV_POWER_USAGE",
        "gauge",
        "Power in watts, under the name of DCGM",
        lambda usage: number(usage.power_watts),
    ),
    Measure(
        "DCGM_FI_DEV_SM_CLOCK",
        "gauge",
        "Clock of the multiprocessors in MHz, under the name of DCGM",
        lambda usage: number(usage.clocks_hertz.get(SM_CLOCK), 1 / HERTZ_OF_MHZ),
    ),
    Measure(
        "DCGM_FI_DEV_MEM_CLOCK",
        "gauge",
        "Clock of the memory in MHz, under the name of DCGM",
        lambda usage: number(usage.clocks_hertz.get(MEMORY_CLOCK), 1 / HERTZ_OF_MHZ),
    ),
    Measure(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "gauge",  # the text format would add _total to the name of a counter
        "Corrected memory errors, under the name of DCGM",
        lambda usage: _ecc(usage, CORRECTED),
    ),
    Measure(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "gauge",
        "Uncorrected memory errors, under the name of DCGM",
        lambda usage: _ecc(usage, UNCORRECTED),
    ),
)

DUTY_CYCLE: tuple[Measure, ...] = (
    Measure(
        "nvidia_gpu_duty_cycle",
        "gauge",
        "Utilization in percent, under the name of nvidia_gpu_prometheus_exporter",
        lambda usage: number(usage.utilization_ratio, PERCENT),
    ),
    Measure(
        "nvidia_gpu_memory_used_bytes",
        "gauge",
        "Used memory, under the name of nvidia_gpu_prometheus_exporter",
        lambda usage: number(usage.memory_used_bytes),
    ),
    Measure(
        "nvidia_gpu_memory_total_bytes",
        "gauge",
        "Memory, under the name of nvidia_gpu_prometheus_exporter",
        lambda usage: number(usage.memory_total_bytes),
    ),
    Measure(
        "nvidia_gpu_temperature_celsius",
        "gauge",
        "Temperature, under the name of nvidia_gpu_prometheus_exporter",
        lambda usage: number(usage.temperature_celsius),
    ),
    Measure(
        "nvidia_gpu_power_usage_milliwatts",
        "gauge",
        "Power in milliwatts, under the name of nvidia_gpu_prometheus_exporter",
        lambda usage: number(usage.power_watts, _WATTS_OF_MILLIWATT),
    ),
)

OPENTELEMETRY: tuple[Measure, ...] = (
    Measure(
        "hw_gpu_utilization_ratio",
        "gauge",
        "hw.gpu.utilization of OpenTelemetry",
        lambda usage: number(usage.utilization_ratio),
    ),
    Measure(
        "hw_gpu_memory_usage_bytes",
        "gauge",
        "hw.gpu.memory.usage of OpenTelemetry",
        lambda usage: number(usage.memory_used_bytes),
    ),
    Measure(
        "hw_gpu_memory_limit_bytes",
        "gauge",
        "hw.gpu.memory.limit of OpenTelemetry",
        lambda usage: number(usage.memory_total_bytes),
    ),
    Measure(
        "hw_gpu_memory_utilization_ratio",
        "gauge",
        "hw.gpu.memory.utilization of OpenTelemetry: used memory by memory, from 0 to 1",
        lambda usage: number(_filled(usage)),
    ),
    Measure(
        "hw_temperature_celsius",
        "gauge",
        "hw.temperature of OpenTelemetry",
        lambda usage: number(usage.temperature_celsius),
    ),
    Measure(
        "hw_power_watts",
        "gauge",
        "hw.power of OpenTelemetry",
        lambda usage: number(usage.power_watts),
    ),
)


def _number(one: Measured, name: str) -> str:
    """A number of the GPU, of a MIG device that of its GPU; empty if it has none."""
    return one.said(name) or str(one.device.numbers.get(name, ""))


def _bus_id(one: Measured) -> str:
    """As NVML and DCGM write it: eight digits for the domain, and capital letters."""
    domain, _, rest = one.said(PCI_BUS_ID).partition(":")
    return f"{domain:0>8}:{rest}".upper() if rest else ""


def _gpu_instance(one: Measured) -> str:
    """The number of a MIG device's GPU instance: the backend has it among the parts that the device occupies."""
    found = (_INSTANCE.fullmatch(part) for part in one.device.resource.parts)
    return next((match[1] for match in found if match), "")


def _dcgm_labels(one: Measured, place: Place) -> Labels:
    """Those of dcgm-exporter, with the ones that it adds for DRA. A partition has its GPU's UUID, and its own beside it.

    `device` looks like the name of a device file, but has the index of the GPU there too.
    """
    partition = one.said("parentUUID")
    index = _number(one, "index")
    return {
        "gpu": index or one.device.name,
        "UUID": partition or one.device.uuid,
        "device": f"nvidia{index}" if index else one.device.name,
        "modelName": one.said("productName"),
        "Hostname": place.node,
        "pci_bus_id": _bus_id(one),
        "GPU_I_ID": _gpu_instance(one) if partition else "",
        "GPU_I_PROFILE": one.said("profile"),
        "namespace": one.holder.namespace,
        "pod": one.holder.pod,
        "container": one.holder.container,
        "dra_claim_name": one.holder.claim,
        "dra_claim_namespace": one.holder.namespace if one.holder.claim else "",
        "dra_driver_name": place.driver,
        "dra_pool_name": place.pool,
        "dra_device_name": one.device.name,
        "dra_mig_profile": one.said("profile"),
        "dra_mig_device_uuid": one.device.uuid if partition else "",
    }


def _duty_cycle_labels(one: Measured, _place: Place) -> Labels:
    return {
        "minor_number": _number(one, "minor"),
        "gpu": _number(one, "index") or one.device.name,
        "uuid": one.device.uuid,
        "name": one.said("productName"),
        **holder_labels(one.holder),
    }


def _opentelemetry_labels(one: Measured, _place: Place) -> Labels:
    """`hw.id`, …: the text format has an underscore for each dot."""
    return {
        "hw_id": one.device.uuid or one.device.name,
        "hw_name": one.device.name,
        "hw_type": "gpu",
        "hw_model": one.said("productName"),
        "hw_vendor": one.said("vendor"),
        "hw_driver_version": one.said("driverVersion"),
        "hw_parent": one.said("parentUUID"),
        "k8s_namespace_name": one.holder.namespace,
        "k8s_pod_name": one.holder.pod,
        "k8s_container_name": one.holder.container,
    }


SCHEMES: Mapping[str, tuple[tuple[Measure, ...], LabelsOf]] = {
    OWN_NAMES: (OWN, labels_of),
    DCGM_NAMES: (DCGM, _dcgm_labels),
    DUTY_CYCLE_NAMES: (DUTY_CYCLE, _duty_cycle_labels),
    OPENTELEMETRY_NAMES: (OPENTELEMETRY, _opentelemetry_labels),
}
"""The values of the setting `metrics_names`: the table of each, and its labels."""
