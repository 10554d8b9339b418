# SPDX-License-Identifier: Apache-2.0
"""Configuration and node selector of a result."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator import features
from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

Json = dict[str, Any]
NODE = msgspec.convert({"metadata": {"name": "node-1", "labels": {"zone": "west"}}}, Node)
EXACT = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
WEST = {"key": "zone", "operator": "In", "values": ["west"]}
ZONED = {"key": "zone", "operator": "Exists"}


def opaque(kind: str) -> Json:
    return {"opaque": {"driver": "d", "parameters": {"kind": kind}}}


def result(
    requests: list[Json], *wheres: Json, class_config: list[Json] | None = None, **devices: Any
) -> AllocationResult:
    classes = [{"metadata": {"name": "gpu"}, "spec": {"config": class_config}}]
    slices = [
        {
            "metadata": {"name": f"s{number}"},
            "spec": {
                "driver": "d",
                "pool": {"name": f"p{number}", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a"}],
                **where,
            },
        }
        for number, where in enumerate(wheres)
    ]
    named = [{"name": f"r{index}", **one} for index, one in enumerate(requests)]
    spec = {"devices": {"requests": named, **devices}}
    claim = msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, ResourceClaim)
    allocator = Allocator(
        msgspec.convert(slices, list[ResourceSlice]),
        msgspec.convert(classes, list[DeviceClass]),
        features=features.ALL,
    )
    results = allocator.allocate(NODE, [claim])
    assert results is not None
    return results[0]


def configured(found: AllocationResult) -> list[tuple[str, list[str] | None, str]]:
    return [
        (one.source, one.requests, one.opaque.parameters["kind"] if one.opaque else "")
        for one in found.devices.config or []
    ]


ANYWHERE = {"allNodes": True}


def test_class_configuration_comes_once_and_names_its_requests() -> None:
    other = {"firstAvailable": [{"name": "s", **EXACT}]}
    found = result(
        [{"exactly": EXACT}, other],
        ANYWHERE,
        ANYWHERE,
        class_config=[opaque("a"), opaque("b")],
        config=[
            {"requests": ["r0"], **opaque("c")},
            opaque("d"),
            {"requests": ["r1/s"], **opaque("e")},
            {"requests": ["r1/other"], **opaque("f")},
        ],
    )
    assert configured(found) == [
        ("FromClass", None, "a"),  # means all
        ("FromClass", None, "b"),
        ("FromClaim", ["r0"], "c"),
        ("FromClaim", None, "d"),
        ("FromClaim", ["r1/s"], "e"),
    ]
    assert [one.request for one in found.devices.results or ()] == ["r0", "r1/s"]


def test_devices_for_all_nodes_need_no_selector() -> None:
    assert result([{"exactly": EXACT}], ANYWHERE).node_selector is None
    empty = {"nodeName": "node-1"}
    assert result([{"exactly": EXACT}], empty).node_selector is not None


def test_requirements_of_several_slices_are_put_together_once_each() -> None:
    def where(*requirements: Json) -> Json:
        fields = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
        term = {"matchExpressions": requirements, "matchFields": fields}
        return {"nodeSelector": {"nodeSelectorTerms": [term]}}

    found = result([{"exactly": {**EXACT, "count": 2}}], where(WEST), where(WEST, ZONED))
    assert found.node_selector is not None
    (term,) = found.node_selector.node_selector_terms or []
    assert [one.operator for one in term.match_expressions or ()] == ["In", "Exists"]
    assert len(term.match_fields or ()) == 1


def test_a_device_that_binds_to_its_node_restricts_the_claim_to_it() -> None:
    has_binding_conditions = {"allNodes": True, "devices": [{"name": "a", "bindsToNode": True}]}
    found = result([{"exactly": EXACT}], has_binding_conditions)
    assert found.node_selector is not None
    (term,) = found.node_selector.node_selector_terms or []
    assert [one.values for one in term.match_fields or ()] == [["node-1"]]


def test_a_selector_of_several_terms_cannot_be_put_together() -> None:
    terms = [{"matchExpressions": [WEST]}, {"matchExpressions": [ZONED]}]
    with pytest.raises(
        AllocationError, match=r"^create NodeSelector for claim c: unsupported .* with 2 terms$"
    ):
        result([{"exactly": EXACT}], {"nodeSelector": {"nodeSelectorTerms": terms}})


def test_a_result_repeats_what_the_driver_and_the_claim_said() -> None:
    device = {"name": "a", "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    tolerations = [{"key": "xid", "operator": "Exists"}]
    found = result(
        [{"exactly": {**EXACT, "adminAccess": True, "tolerations": tolerations}}],
        {"allNodes": True, "devices": [device]},
    )
    (one,) = found.devices.results or []
    assert (one.driver, one.pool, one.device, one.admin_access) == ("d", "p0", "a", True)
    assert (one.binding_conditions, one.binding_failure_conditions) == (["ready"], ["broken"])
    assert [toleration.key for toleration in one.tolerations or ()] == ["xid"]
    assert (one.share_id, one.consumed_capacity) == (None, None)
