# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's configurations are read as NVIDIA's driver reads them, and what this driver cannot do says who can."""

from typing import Any

import pytest

from dra_driver.backends.nvidia.config import (
    GPU,
    KINDS,
    MIG,
    VFIO,
    GpuConfig,
    MigDeviceConfig,
    VfioDeviceConfig,
    time_slice,
)
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.decoding import decode
from dra_driver.planning.config import BadConfig, config_for
from dra_driver.testing.builders import a_config

USE_THEIRS = "use NVIDIA's DRA driver"
MPS = "strategy MPS: this driver runs no MPS daemon"


def sharing(strategy: Any = "TimeSlicing", **more: Any) -> dict[str, Any]:
    return {"sharing": {"strategy": strategy, **more}}


def mps(**config: Any) -> dict[str, Any]:
    return sharing("MPS", mpsConfig=config)


def read(kind: ConfigKind, fields: object) -> int | str | None:
    """The time slice, or what is wrong."""
    value, mistakes = decode(fields, kind.structure)
    if mistakes:
        return "; ".join(map(str, mistakes))
    try:
        return time_slice(value)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"sharing": None}, None),
        (sharing(), 0),
        (sharing(timeSlicingConfig=None), 0),
        (sharing(timeSlicingConfig={}), 0),
        (sharing(timeSlicingConfig={"interval": None}), 0),
        (sharing(timeSlicingConfig={"interval": "Default"}), 0),
        (sharing(timeSlicingConfig={"interval": "Short"}), 1),
        (sharing(timeSlicingConfig={"interval": "Medium"}), 2),
        (sharing(timeSlicingConfig={"interval": "Long"}), 3),
    ],
)
def test_a_gpu_config_asks_for_a_time_slice_or_for_nothing(
    fields: dict[str, Any], expected: int | None
) -> None:
    assert read(GPU, fields) == expected


def test_a_mig_device_has_no_time_slice_to_set() -> None:
    assert read(MIG, {}) is None
    assert read(MIG, sharing()) is None


def test_no_configuration_asks_for_nothing() -> None:
    assert time_slice(None) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"sharing": {}},
            "unknown GPU sharing strategy: , supported GPU sharing strategies: TimeSlicing, MPS",
        ),
        (
            sharing("Fabric\n"),
            "unknown GPU sharing strategy: Fabric\\n, supported GPU sharing strategies: TimeSlicing, MPS",
        ),
        (
            sharing(timeSlicingConfig={"interval": "long"}),
            "unknown time-slice interval: long, supported time-slice intervals: Default, Short, Medium, Long",
        ),
        (
            sharing(timeSlicingConfig={}, mpsConfig={}),
            "cannot use MpsConfig with the 'TimeSlicing' strategy",
        ),
        (
            sharing("MPS", timeSlicingConfig={}),
            "cannot use TimeSlicingConfig with the 'MPS' strategy",
        ),
        (
            mps(defaultActiveThreadPercentage=-1),
            "active thread percentage must not be negative",
        ),
        (
            mps(defaultActiveThreadPercentage=101),
            "active thread percentage must not be greater than 100",
        ),
        (
            mps(defaultPinnedDeviceMemoryLimit="1M"),
            "invalid limit: default value set too low: 1M",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"0": "1023Ki"}),
            "invalid limit: value set too low: 0: 1023Ki",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"GPU-1": None}),
            "invalid limit: value set too low: GPU-1: None",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"first": "1Gi"}),
            "invalid device: unable to parse key as an integer: first; it must be the UUID of a device, or its index",
        ),
    ],
)
def test_wrong_values_are_refused_with_the_sentences_of_nvidias_driver(
    fields: dict[str, Any], said: str
) -> None:
    assert read(GPU, fields) == said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"Sharing": {}}, "Sharing: unknown field; known are sharing"),
        (sharing(interval="Long"), "sharing.interval: unknown field"),
        (sharing(5), "sharing.strategy: 5 must be a text"),
        (
            mps(defaultActiveThreadPercentage="50"),
            "sharing.mpsConfig.defaultActiveThreadPercentage: '50' must be a whole number",
        ),
        (
            mps(defaultPinnedDeviceMemoryLimit="10GB"),
            "sharing.mpsConfig: '10GB' has no suffix that Kubernetes knows",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"0": "x"}),
            "sharing.mpsConfig: 'x' is no quantity",
        ),
        (mps(multiUser="yes"), "sharing.mpsConfig.multiUser: 'yes' must be true or false"),
    ],
)
def test_decoding_is_strict(fields: dict[str, Any], said: str) -> None:
    assert str(read(GPU, fields)).startswith(said)


@pytest.mark.parametrize(
    "fields",
    [
        sharing("MPS"),
        mps(defaultActiveThreadPercentage=0, multiUser=True),
        mps(
            defaultActiveThreadPercentage=100,
            defaultPinnedDeviceMemoryLimit=2**20,
            defaultPerDevicePinnedMemoryLimit={"GPU-1": "10Gi", "MIG-2": " 1Mi ", "1": 1e9},
        ),
    ],
)
def test_mps_is_refused_with_the_word_who_has_it(fields: dict[str, Any]) -> None:
    for kind in (GPU, MIG):
        said = str(read(kind, fields))
        assert said.startswith(MPS)
        assert USE_THEIRS in said


def test_mps_for_a_mig_device_is_checked_too() -> None:
    assert read(MIG, mps(defaultActiveThreadPercentage=101)) == (
        "active thread percentage must not be greater than 100"
    )
    assert str(read(MIG, sharing(timeSlicingConfig={}))).startswith(
        "sharing.timeSlicingConfig: unknown field"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"iommu": {}},
        {"iommu": {"backendPolicy": "LegacyOnly"}},
        {"iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}},
    ],
)
def test_passthrough_is_refused_with_the_word_who_has_it(fields: dict[str, Any]) -> None:
    assert USE_THEIRS in str(read(VFIO, fields))


@pytest.mark.parametrize("policy", ["newest", "Newest"])
def test_an_unknown_policy_is_named(policy: str) -> None:
    assert read(VFIO, {"iommu": {"backendPolicy": policy}}) == (
        f"unknown IOMMU backend policy: {policy}, supported IOMMU backend policies: LegacyOnly, PreferIommuFD"
    )


def entry(kind: ConfigKind, *requests: str, **fields: Any) -> OpaqueConfig:
    return a_config(
        {"apiVersion": kind.api_version, "kind": kind.kind, **fields}, requests=requests
    )


def chosen(*entries: OpaqueConfig, kind: ConfigKind = MIG, request: str = "main") -> object:
    named = f'device "gpu-0" of type "{kind.device_type}"'
    found = config_for(request, entries, (kind,), KINDS, device=named)
    return str(found) if isinstance(found, BadConfig) else found.value


def test_a_config_for_all_requests_counts_for_devices_of_its_type_only() -> None:
    long = entry(GPU, **sharing(timeSlicingConfig={"interval": "Long"}))
    assert chosen(long) is None
    assert isinstance(chosen(long, kind=GPU), GpuConfig)
    assert chosen(entry(VFIO), kind=GPU) is None
    assert isinstance(chosen(entry(MIG), long), MigDeviceConfig)


@pytest.mark.parametrize("requests", [("main",), ("main/small",)])
def test_a_config_that_names_a_request_must_fit_its_device_and_covers_its_alternatives(
    requests: tuple[str, ...],
) -> None:
    path = "status.allocation.devices.config[0].opaque.parameters"
    assert chosen(entry(GPU, *requests), request="main/small") == (
        f'{path}: cannot apply GpuConfig to device "gpu-0" of type "mig" (request: main/small): the device reads '
        "resource.nvidia.com/v1beta1 MigDeviceConfig"
    )
    assert isinstance(chosen(entry(MIG, *requests), request="main/small"), MigDeviceConfig)


def test_a_vfio_config_that_names_a_request_says_who_has_passthrough() -> None:
    said = str(chosen(entry(VFIO, "main"), kind=GPU))
    assert 'cannot apply VfioDeviceConfig to device "gpu-0" of type "gpu" (request: main)' in said
    assert USE_THEIRS in said


def test_a_structure_reads_what_it_writes() -> None:
    assert VfioDeviceConfig() == decode({}, VfioDeviceConfig)[0]


def test_what_counts_is_judged_before_the_hardware_is_touched() -> None:
    """One claim can ask for time slices on a GPU and for MPS on another one: then neither of them is set up."""
    slices = entry(GPU, "slow", **sharing(timeSlicingConfig={"interval": "Long"}))
    both = (slices, entry(GPU, "shared", **sharing("MPS")))
    assert isinstance(chosen(*both, kind=GPU, request="slow"), GpuConfig)
    assert "parameters: strategy MPS: this driver runs no MPS daemon" in str(
        chosen(*both, kind=GPU, request="shared")
    )
    assert "strategy MPS" in str(chosen(entry(MIG, **sharing("MPS"))))
