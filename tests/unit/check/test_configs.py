# SPDX-License-Identifier: Apache-2.0
"""Opaque configuration: kinds, fields, values, and the name of the driver."""

import pytest
from msgspec.structs import replace

from dra_driver.backends.nvidia.config import KINDS, NO_MPS, NO_VFIO
from dra_driver.backends.simulated_config import LABEL
from dra_driver.check.given import Known
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_slice import (
    Device,
    DeviceAttribute,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.model.cluster import ClusterState
from tests.unit.check.findings import claim, found, rules, selector

KNOWN = Known(driver="gpu.nvidia.com", kinds=(*KINDS, LABEL))
NO_NAME = "no device of gpu.nvidia.com has the attribute %s"
_V1 = "apiVersion: resource.nvidia.com/v1beta1"


def with_config(parameters: str, driver: str = "gpu.nvidia.com") -> str:
    return (
        claim("deviceClassName: gpu.nvidia.com")
        + f"    config:\n      - opaque:\n          driver: {driver}\n          parameters: {parameters}\n"
    )


@pytest.mark.parametrize(
    ("parameters", "rule", "message", "action"),
    [
        (
            "{kind: GpuConfig, apiVersion: resource.nvidia.com/v1}",
            "config-kind",
            "the driver knows no configuration resource.nvidia.com/v1 GpuConfig",
            "did you mean resource.nvidia.com/v1beta1 GpuConfig?",
        ),
        (
            f"{{{_V1}, kind: GpuConfi}}",
            "config-kind",
            "the driver knows no configuration resource.nvidia.com/v1beta1 GpuConfi",
            "did you mean resource.nvidia.com/v1beta1 GpuConfig?",
        ),
        (
            "{apiVersion: zzz, kind: q}",
            "config-kind",
            "the driver knows no configuration zzz q",
            f"known are {', '.join(map(str, KNOWN.kinds))}",
        ),
        (
            f"{{{_V1}, kind: GpuConfig, sharing2: {{}}}}",
            "config-value",
            "GpuConfig: sharing2: unknown field; known are sharing",
            "docs/reference/kinds.md has the fields and their values",
        ),
        (
            f"{{{_V1}, kind: VfioDeviceConfig}}",
            "config-value",
            f"VfioDeviceConfig: {NO_VFIO}",
            "",
        ),
    ],
)
def test_configurations_are_read_as_the_driver_reads_them(
    parameters: str, rule: str, message: str, action: str
) -> None:
    (one,) = found(with_config(parameters), KNOWN)
    assert (one.rule, one.message, one.action, one.line) == (rule, message, action, 13)


def test_what_the_driver_does_not_do_is_told() -> None:
    (one,) = found(with_config(f"{{{_V1}, kind: GpuConfig, sharing: {{strategy: MPS}}}}"), KNOWN)
    assert one.rule == "config-value"
    assert NO_MPS in one.message


REFUSED = [
    f"{{{_V1}, kind: GpuConfig, sharing: {{strategy: MPS}}}}",
    f"{{{_V1}, kind: MigDeviceConfig, sharing: {{strategy: MPS}}}}",
    f"{{{_V1}, kind: VfioDeviceConfig}}",
    f"{{{_V1}, kind: VfioDeviceConfig, iommu: {{backendPolicy: PreferIommuFD}}}}",
]


def cluster(*devices: bool, driver: str = "gpu.nvidia.com") -> ClusterState:
    """A cluster with a device each; True is one of this driver, False one of NVIDIA's own."""
    made = []
    for index, is_own in enumerate(devices):
        attributes = {"uuid": DeviceAttribute(string_value="u")}
        if is_own:
            attributes["vendor"] = DeviceAttribute(string_value="nvidia")
        made.append(Device(name=f"d{index}", attributes=attributes))
    spec = ResourceSliceSpec(
        driver=driver,
        pool=ResourcePool(name="p", generation=1, resource_slice_count=1),
        node_name="n",
        devices=made,
    )
    return ClusterState(resource_slices=[ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)])


@pytest.mark.parametrize("parameters", REFUSED)
@pytest.mark.parametrize(
    ("known", "rule"),
    [
        (Known(), "config-of-nvidia"),
        (Known(driver="gpu.nvidia.com"), "config-value"),
        (Known(state=ClusterState()), "config-of-nvidia"),
        (Known(state=cluster(True)), "config-value"),
        (Known(state=cluster(False)), "config-of-nvidia"),
        (Known(state=cluster(True, False)), "config-of-nvidia"),
        (Known(state=cluster(True, driver="gpu.dra-driver.dev")), "config-of-nvidia"),
    ],
    ids=["files", "flag", "nothing", "ours", "theirs", "both", "other name"],
)
def test_what_nvidias_own_driver_takes_is_an_error_only_if_it_is_not_there(
    known: Known, rule: str, parameters: str
) -> None:
    each = found(with_config(parameters), replace(known, kinds=KINDS))
    (one,) = [one for one in each if one.rule.startswith("config")]
    assert one.rule == rule
    assert ("--driver-name gpu.nvidia.com" in one.action) is (rule == "config-of-nvidia")


@pytest.mark.parametrize(
    "parameters",
    [
        f"{{{_V1}, kind: GpuConfig, sharing: {{strategy: MPS2}}}}",
        f"{{{_V1}, kind: VfioDeviceConfig, iommu: {{backendPolicy: Any}}}}",
        f"{{{_V1}, kind: VfioDeviceConfig, iommu2: {{}}}}",
    ],
)
def test_what_nvidias_own_driver_refuses_too_is_an_error(parameters: str) -> None:
    assert rules(with_config(parameters), Known(kinds=KINDS)) == ["config-value"]


@pytest.mark.parametrize(
    ("driver", "is_ours"), [("gpu.dra-driver.dev", False), ("gpu.nvidia.com", True)]
)
def test_names_behind_the_gates_of_nvidias_own_driver_are_known(driver: str, is_ours: bool) -> None:
    known = Known(driver=driver)
    shares = claim("deviceClassName: gpu.nvidia.com\ncapacity: {requests: {shares: 1}}")
    assert rules(shares, known) == ["capacity-name"] * is_ours
    for name in ("partition4", "gpuModuleId"):
        text = selector(f'device.attributes["gpu.nvidia.com"].{name} == 1')
        assert rules(text, known) == ["cel-name"] * is_ours
    assert rules(selector('device.attributes["gpu.dra-driver.dev"].partition4 == 1')) == [
        "cel-name"
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        f"{{{_V1}, kind: GpuConfig, sharing: {{strategy: TimeSlicing}}}}",
        "{apiVersion: gpu.dra-driver.dev/v1alpha1, kind: DeviceConfig, label: x}",
    ],
)
def test_right_configurations_are_right(parameters: str) -> None:
    assert found(with_config(parameters), KNOWN) == []


def test_configurations_of_other_drivers_are_theirs() -> None:
    assert found(with_config("{a: 1}", "other.example.com"), KNOWN) == []
    (one,) = found(with_config("{a: 1}", "gpu.nvidia.co"), KNOWN)
    assert (one.rule, one.line, one.action) == ("config-kind", 12, "did you mean gpu.nvidia.com?")


def test_classes_have_configurations_too() -> None:
    text = (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec:\n  config:\n"
        "    - opaque: {driver: gpu.dra-driver.dev, parameters: {apiVersion: gpu.dra-driver.dev/v1alpha1, kind: DeviceConfig, label: 3}}\n"
    )
    (one,) = found(text, KNOWN)
    assert (one.rule, one.path) == ("config-value", "spec.config[0].opaque.parameters.label")


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("memory2", "did you mean memory?"),
        ("gpu.nvidia.com/memory2", "did you mean gpu.nvidia.com/memory?"),
        ("zzzzz", "no device matches such a request"),
    ],
)
def test_capacities_that_nobody_has_are_told(name: str, action: str) -> None:
    (one,) = found(claim(f"deviceClassName: gpu\ncapacity: {{requests: {{{name}: 1Gi}}}}"))
    assert (one.rule, one.action) == ("capacity-name", action)


def test_nothing_is_said_of_capacities_of_a_class_that_nobody_knows() -> None:
    text = claim("deviceClassName: nic.example.com\ncapacity: {requests: {bandwidth: 1G}}")
    assert found(text) == []
    assert "capacity-name" in rules(text, Known(state=ClusterState()))


@pytest.mark.parametrize(
    ("constraint", "message", "action"),
    [
        ("matchAttribute: gpu.nvidia.com/productname", NO_NAME % "productname", "did you mean productName?"),
        ("distinctAttribute: gpu.nvidia.com/uuidd", NO_NAME % "uuidd", "did you mean uuid?"),
        ("matchAttribute: gpu.nvida.com/uuid", "no known driver has the domain gpu.nvida.com", "did you mean gpu.nvidia.com?"),
        *(
            (f"matchAttribute: {name}", "", "")
            for name in (
                *("gpu.nvidia.com/productName", "resource.kubernetes.io/numaNode"),
                *("other.example/x", "gpu.nvidia.com/mine"),
            )
        ),
    ],
)  # fmt: skip
def test_a_constraint_names_what_devices_have(constraint: str, message: str, action: str) -> None:
    body = "deviceClassName: gpu.nvidia.com\nderivedAttributes: [{name: gpu.nvidia.com/mine, expression: 'true'}]"
    text = claim(body) + f"    constraints: [{{{constraint}}}]\n"
    told = [(one.message, one.action) for one in found(text) if one.rule == "cel-name"]
    assert told == ([(message, action)] if message else [])


def test_a_constraint_without_a_name_is_told_elsewhere() -> None:
    text = claim("deviceClassName: gpu") + "    constraints: [{matchAttribute: x}]\n"
    assert [one.rule for one in found(text)] == ["api-value"]
