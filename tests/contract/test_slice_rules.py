# SPDX-License-Identifier: Apache-2.0
"""Every rule by which the fake refuses a ResourceSlice, held against a real API server, and the largest slices it takes."""

from typing import Any, Protocol

import pytest

from dra_driver.testing.fake_api.rules import RULES

Object = dict[str, Any]


class ApiServer(Protocol):
    """The fixture `server`."""

    node: str
    group: str

    def call(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]: ...
    def served(self, obj: Object) -> Object: ...
    def slice(self, name: str, **spec: Any) -> Object: ...


def device(**content: Any) -> Object:
    return {"name": "gpu-0", **content}


def attributes(**values: Object) -> Object:
    return {"devices": [device(attributes=values)]}


def numbered(count: int) -> Object:
    return {f"a{number}": {"int": number} for number in range(count)}


def devices(count: int, **content: Any) -> Object:
    return {"devices": [{"name": f"gpu-{number}", **content} for number in range(count)]}


TAINT = {"key": "example.com/ill", "effect": "NoSchedule"}
POOL = {"name": "pool", "generation": 1, "resourceSliceCount": 1}

REFUSED: list[tuple[str, Object, str]] = [
    # rule, what is wrong, the field that the server names
    ("driver_is_named", {"driver": ""}, "spec.driver"),
    ("pool_is_named", {"pool": {**POOL, "name": ""}}, "spec.pool.name"),
    ("pool_is_named", {"pool": {**POOL, "name": "a/B"}}, "spec.pool.name"),
    (
        "pool_generation_is_not_negative",
        {"pool": {**POOL, "generation": -1}},
        "spec.pool.generation",
    ),
    (
        "pool_has_slices",
        {"pool": {**POOL, "resourceSliceCount": 0}},
        "spec.pool.resourceSliceCount",
    ),
    ("exactly_one_node_selection", {"nodeName": None}, "spec"),
    ("exactly_one_node_selection", {"allNodes": True}, "spec"),
    ("at_most_128_devices", devices(129), "spec.devices"),
    ("at_most_128_devices", devices(65, taints=[TAINT]), "spec.devices"),
    ("device_names_are_labels", {"devices": [{"name": "GPU_0"}]}, "spec.devices[0].name"),
    ("device_names_are_labels", {"devices": [{"name": "g" * 64}]}, "spec.devices[0].name"),
    ("device_names_are_labels", {"devices": [{"name": ""}]}, "spec.devices[0].name"),
    ("device_names_are_unique", {"devices": [device(), device()]}, "spec.devices[1]"),
    (
        "at_most_32_attributes_and_capacities",
        {"devices": [device(attributes=numbered(32), capacity={"memory": {"value": "1"}})]},
        "spec.devices[0]",
    ),
    ("names_are_qualified", attributes(**{"1st": {"int": 1}}), "spec.devices[0].attributes"),
    ("names_are_qualified", attributes(**{"a" * 33: {"int": 1}}), "spec.devices[0].attributes"),
    (
        "names_are_qualified",
        attributes(**{"Not_A_Domain!/a": {"int": 1}}),
        "spec.devices[0].attributes",
    ),
    (
        "names_are_qualified",
        attributes(**{f"{'a' * 64}/x": {"int": 1}}),
        "spec.devices[0].attributes",
    ),
    (
        "names_are_qualified",
        {"devices": [device(capacity={"with-dash": {"value": "1"}})]},
        "spec.devices[0].capacity",
    ),
    ("attributes_have_one_value", attributes(x={}), "spec.devices[0].attributes[x]"),
    (
        "attributes_have_one_value",
        attributes(x={"int": 1, "bool": True}),
        "spec.devices[0].attributes[x]",
    ),
    ("texts_are_short", attributes(x={"string": "ä" * 33}), "spec.devices[0].attributes[x].string"),
    (
        "texts_are_short",
        attributes(x={"version": f"1.0.0-{'a' * 59}"}),
        "spec.devices[0].attributes[x].version",
    ),
    (
        "versions_are_semantic",
        attributes(x={"version": "v1.0.0"}),
        "spec.devices[0].attributes[x].version",
    ),
    (
        "versions_are_semantic",
        attributes(x={"version": "550.54"}),
        "spec.devices[0].attributes[x].version",
    ),
    (
        "versions_are_semantic",
        attributes(x={"version": "1.02.0"}),
        "spec.devices[0].attributes[x].version",
    ),
    (
        "versions_are_semantic",
        attributes(x={"version": "1.0.0-01"}),
        "spec.devices[0].attributes[x].version",
    ),
    (
        "versions_are_semantic",
        attributes(x={"version": ""}),
        "spec.devices[0].attributes[x].version",
    ),
]

ACCEPTED: list[Object] = [
    {},
    devices(128),
    devices(64, taints=[TAINT]),
    {"devices": [device(attributes=numbered(31), capacity={"memory": {"value": "80Gi"}})]},
    {"devices": [{"name": "g" * 63}, {"name": "0"}]},
    attributes(**{"a" * 32: {"int": 1}}, **{f"{'a' * 63}/_x": {"bool": False}}),
    attributes(x={"string": "ä" * 32}, y={"string": ""}, z={"version": f"1.0.0-{'a' * 58}"}),
    attributes(x={"version": "1.0.0-rc.1+build.07"}, y={"int": -(2**63)}, z={"int": 2**63 - 1}),
    {"pool": {**POOL, "name": "a/b.c", "generation": 0}},
]


@pytest.mark.parametrize(("rule", "spec", "named"), REFUSED)
def test_a_slice_against_the_rule_is_refused_with_its_field(
    server: ApiServer, rule: str, spec: Object, named: str
) -> None:
    body = server.served(server.slice(f"{server.node}-0", **spec))
    status, answer = server.call("POST", f"{server.group}/resourceslices", body)
    assert (status, answer["reason"]) == (422, "Invalid"), answer
    causes = answer["details"]["causes"]
    assert {cause["field"].replace(".basic.", ".") for cause in causes} == {named}  # v1beta1


@pytest.mark.parametrize("spec", ACCEPTED)
def test_a_slice_within_the_rules_is_stored_as_it_is(server: ApiServer, spec: Object) -> None:
    body = server.served(server.slice(f"{server.node}-0", **spec))
    status, answer = server.call("POST", f"{server.group}/resourceslices", body)
    assert status == 201, answer
    for stored in answer["spec"].get("devices", []):
        for taint in stored.get("basic", stored).get("taints", []):
            taint.pop("timeAdded", None)
    assert answer["spec"] == body["spec"]


def test_every_rule_of_the_fake_is_held_against_the_real_server() -> None:
    assert {rule for rule, _spec, _named in REFUSED} == {rule.__name__ for rule in RULES}
