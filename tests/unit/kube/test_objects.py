# SPDX-License-Identifier: Apache-2.0
"""Objects of any served version become objects of v1, or are named as unreadable."""

import msgspec
import pytest

from dra_driver.kube.wire.objects import Unreadable, load, without_parameters
from dra_driver.model.api.core import Node
from dra_driver.model.api.meta import ApiValue, ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, ResourceSlice
from dra_driver.testing.fake_api.kinds import convert

SLICE = {
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n", "generation": 2, "resourceSliceCount": 1},
        "devices": [
            {"name": "gpu-0", "attributes": {"index": {"int": 1}}, "bindsToNode": True},
            {"name": "gpu-1"},
        ],
    },
}
REQUESTS = [
    {"name": "one", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
    {"name": "other", "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 2}]},
]
CLAIM = {
    "kind": "ResourceClaim",
    "metadata": {"namespace": "ns", "name": "c"},
    "spec": {"devices": {"requests": REQUESTS}},
}
TEMPLATE = {
    "kind": "ResourceClaimTemplate",
    "metadata": {"namespace": "ns", "name": "t"},
    "spec": {"spec": {"devices": {"requests": REQUESTS}}},
}
LOADED_REQUESTS = [
    DeviceRequest(
        name="one", exactly=ExactDeviceRequest(device_class_name="gpu", allocation_mode="All")
    ),
    DeviceRequest(
        name="other",
        first_available=[DeviceSubRequest(name="a", device_class_name="gpu", count=2)],
    ),
]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_slice_is_the_same_in_every_version(version: str) -> None:
    served = convert(SLICE, version, direction="serve")
    loaded = load(ResourceSlice, served, version=version)
    assert loaded.metadata == ObjectMeta(name="s")
    assert loaded.spec.devices == [
        Device(
            name="gpu-0", attributes={"index": DeviceAttribute(int_value=1)}, binds_to_node=True
        ),
        Device(name="gpu-1"),
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_requests_are_the_same_in_every_version(version: str) -> None:
    claim = load(ResourceClaim, convert(CLAIM, version, direction="serve"), version=version)
    assert claim.spec == ResourceClaimSpec(devices=DeviceClaim(requests=LOADED_REQUESTS))
    template = load(
        ResourceClaimTemplate, convert(TEMPLATE, version, direction="serve"), version=version
    )
    assert template.spec.spec == claim.spec


def test_what_is_written_is_what_was_read() -> None:
    loaded = load(ResourceSlice, SLICE)
    assert msgspec.to_builtins(loaded) == {key: SLICE[key] for key in ("metadata", "spec")}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"spec": {"driver": 5}}, "Expected `str`, got `int` - at `$.spec.driver`"),
        ({"spec": {"devices": {"a": 1}}}, "Expected `array | null`, got `object` - at `$.spec.devices`"),
        ({"spec": {"devices": [5]}}, "Expected `object`, got `int` - at `$.spec.devices[0]`"),
        ({"spec": 7}, "Expected `object`, got `int` - at `$.spec`"),
        ({"spec": {"devices": [{"basic": 5, "name": 6}]}}, "Expected `str`, got `int` - at `$.spec.devices[0].name`"),
        ("text", "Expected `object`, got `str`"),
    ],
)  # fmt: skip
def test_an_object_of_the_wrong_shape_is_named(item: object, message: str) -> None:
    with pytest.raises(Unreadable) as found:
        load(ResourceSlice, item, version="v1beta1")
    assert str(found.value) == message


def test_a_kind_that_never_changed_is_read_as_it_is() -> None:
    assert load(Node, {"metadata": {"name": "n"}}, version="v1beta1") == Node(
        metadata=ObjectMeta(name="n")
    )


def configured(**more: object) -> dict[str, object]:
    """An object with a `config` list for drivers. Without `more` it has no parameters."""
    entries = [{"requests": ["one"], "opaque": {"driver": "d", **more}}, {"futureKind": {}}]
    return {"name": "kept", "config": entries}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (DeviceClass, ("spec",)),
        (ResourceClaim, ("spec", "devices")),
        (ResourceClaim, ("status", "allocation", "devices")),
        (ResourceClaimTemplate, ("spec", "spec", "devices")),
    ],
)
def test_the_parameters_for_drivers_are_dropped_wherever_an_object_has_them(
    kind: type[ApiValue], path: tuple[str, ...]
) -> None:
    found, expected = configured(parameters={"large": "x" * 1000}), configured()
    for key in reversed(path):
        found, expected = {key: found}, {key: expected}
    assert without_parameters(kind, found) == expected


def test_what_drivers_say_of_allocated_devices_is_dropped() -> None:
    device = {"driver": "d", "pool": "p", "device": "gpu-0", "conditions": []}
    item = {"status": {"devices": [{**device, "data": {"large": "x" * 1000}}]}}
    assert without_parameters(ResourceClaim, item) == {"status": {"devices": [device]}}
