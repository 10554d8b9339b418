# SPDX-License-Identifier: Apache-2.0
"""The driver's own names for what is measured on devices: base units, and the words of Prometheus."""

from collections.abc import Mapping

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.usage import Holder
from dra_driver.planning.metrics.families import (
    Labels,
    Measure,
    Measured,
    Place,
    each,
    number,
    said,
)

OWN: tuple[Measure, ...] = (
    Measure(
        "dra_driver_device_utilization_ratio",
        "gauge",
        "Part of the last sample period in which the device computed, from 0 to 1",
        lambda usage: number(usage.utilization_ratio),
    ),
    Measure(
        "dra_driver_device_memory_utilization_ratio",
        "gauge",
        "Part of the last sample period in which the device's memory was read or written, from 0 to 1",
        lambda usage: number(usage.memory_utilization_ratio),
    ),
    Measure(
        "dra_driver_device_memory_used_bytes",
        "gauge",
        "Memory of the device that programs use",
        lambda usage: number(usage.memory_used_bytes),
    ),
    Measure(
        "dra_driver_device_memory_total_bytes",
        "gauge",
        "Memory of the device",
        lambda usage: number(usage.memory_total_bytes),
    ),
    Measure(
        "dra_driver_device_memory_reserved_bytes",
        "gauge",
        "Memory of the device that its kernel driver keeps for itself; it is neither used nor free",
        lambda usage: number(usage.memory_reserved_bytes),
    ),
    Measure(
        "dra_driver_device_temperature_celsius",
        "gauge",
        "Temperature of the device; partitions have that of their GPU",
        lambda usage: number(usage.temperature_celsius),
    ),
    Measure(
        "dra_driver_device_power_watts",
        "gauge",
        "Power that the device draws; partitions have none, because it is known of their GPU only",
        lambda usage: number(usage.power_watts),
    ),
    Measure(
        "dra_driver_device_power_limit_watts",
        "gauge",
        "Power that the device may draw",
        lambda usage: number(usage.power_limit_watts),
    ),
    Measure(
        "dra_driver_device_clock_hertz",
        "gauge",
        "Frequency of a clock of the device (sm, memory)",
        lambda usage: each("clock", usage.clocks_hertz),
    ),
    Measure(
        "dra_driver_device_ecc_errors",
        "counter",
        "Memory errors that ECC corrected or could not correct, since the device's kernel driver was loaded",
        lambda usage: each("type", usage.ecc_errors),
    ),
    Measure(
        "dra_driver_device_throttled",
        "gauge",
        "Whether this reason slows the device down now (1) or not (0)",
        lambda usage: each("reason", usage.throttled),
    ),
)


def own_labels(device: AllocatableDevice, holder: Holder, place: Place) -> Labels:
    """Return the labels that each series of a device has; empty where nothing is known, so that Prometheus adds no label of the driver's pod."""
    return {
        "device": device.name,
        "uuid": device.uuid,
        "product": said(device, "productName"),
        "driver": place.driver,
        **holder_labels(holder),
    }


def holder_labels(holder: Holder) -> Mapping[str, str]:
    """Return the labels that say who has a device."""
    return {
        "namespace": holder.namespace,
        "pod": holder.pod,
        "container": holder.container,
        "claim": holder.claim,
    }


def labels_of(one: Measured, place: Place) -> Labels:
    """Return the labels of a measured device."""
    return own_labels(one.device, one.holder, place)
