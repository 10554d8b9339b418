# SPDX-License-Identifier: Apache-2.0
"""Equal parts of decoded objects are one object, and no part becomes another one."""

from typing import Any

import msgspec
import pytest

from dra_driver.model.api import shared_parts
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.resource_slice import Device, ResourceSlice
from dra_driver.model.api.shared_parts import SharedParts


def a_slice(*devices: dict[str, Any]) -> ResourceSlice:
    return msgspec.convert({"spec": {"devices": devices}}, ResourceSlice)


def shared(*devices: dict[str, Any]) -> list[Device]:
    parts = SharedParts()
    one = parts.of_slice(a_slice(*devices))
    assert one == a_slice(*devices)
    assert parts.of_slice(ResourceSlice()) == ResourceSlice()
    return one.spec.devices or []


def attributes(**values: dict[str, Any]) -> dict[str, Any]:
    return {"attributes": values}


def test_equal_attributes_are_one_object() -> None:
    a, b = shared(
        attributes(model={"string": "A100"}, index={"int": 1}),
        attributes(model={"string": "A100"}, index={"int": 2}),
    )
    assert a.attributes is not None
    assert b.attributes is not None
    assert a.attributes["model"] is b.attributes["model"]
    assert a.attributes["index"] is not b.attributes["index"]


def test_attributes_that_only_look_alike_stay_what_they_are() -> None:
    shared(
        attributes(a={"int": 1}, b={"bool": True}, c={"string": "1"}, d={"version": "1"}),
        attributes(a={"bool": True}, b={"int": 1}, c={"version": "1"}, d={"string": "1"}),
        attributes(a={"ints": [1]}, b={"bools": [True]}, c={"strings": ["1"]}, d={}),
        attributes(a={"ints": [2]}, b={"int": 0}, c={"bool": False}, d={"string": ""}),
    )


def test_equal_capacities_are_one_object_and_others_are_not() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    a, b, c, d = shared(
        {"capacity": {"memory": {"value": "40Gi"}}},
        {"capacity": {"memory": {"value": "40Gi"}}},
        {"capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}},
        {"capacity": {}},
    )
    assert a.capacity is b.capacity
    assert a.capacity is not c.capacity
    assert d.capacity == {}


def test_claims_that_ask_for_the_same_have_one_spec() -> None:
    def claims() -> list[ResourceClaim]:
        return [
            msgspec.convert(
                {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": wanted}]}}},
                ResourceClaim,
            )
            for name, wanted in (("a", "gpu"), ("b", "gpu"), ("c", "nic"))
        ]

    found = list(map(SharedParts().of_claim, claims()))
    assert found == claims()
    assert found[0].spec is found[1].spec
    assert found[0].spec is not found[2].spec


def test_values_that_are_too_many_to_be_kept_stay_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_parts, "_MOST_KEPT", 1)
    a, b, c = shared(*(attributes(x={"string": text}) for text in ("kept", "other", "other")))
    assert a.attributes is not None
    assert b.attributes is not None
    assert c.attributes is not None
    assert b.attributes["x"] is not c.attributes["x"]
