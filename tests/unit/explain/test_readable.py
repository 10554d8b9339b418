# SPDX-License-Identifier: Apache-2.0
"""Objects with quantities that are none, as somebody may have written them into a record."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.readable import PLENTY, bad_quantity, readable
from dra_driver.model.api.core import Namespace
from dra_driver.model.cluster import ClusterState, NotRead

BAD = "zz"
WHY = "'zz' is no quantity; write for example 80Gi, 500m or 1e3"
NAMED = {"metadata": {"name": "x", "namespace": "ns"}}


def pod(**spec: Any) -> dict[str, Any]:
    return {**NAMED, "spec": spec}


def told(**status: Any) -> dict[str, Any]:
    return {**NAMED, "status": status}


def published(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec}


def of_device(**device: Any) -> dict[str, Any]:
    return published(devices=[{"name": "gpu-0", **device}])


def of_capacity(**capacity: Any) -> dict[str, Any]:
    return of_device(capacity={"memory": {"value": "1Gi", **capacity}})


def asking(**request: Any) -> dict[str, Any]:
    return {"devices": {"requests": [{"name": "r", **request}]}}


CONTAINERS = [
    {"name": "plain"},
    {"name": "c", "resources": {"requests": {"cpu": 1, "memory": BAD}}},
]
COUNTERS = {"counters": {"slices": {"value": BAD}}}
ASKED = {"capacity": {"requests": {"memory": BAD}}}


def having(amounts: dict[str, str], **share: str) -> dict[str, Any]:
    result = {"device": "gpu-0", **share, "consumedCapacity": amounts}
    return {**NAMED, "status": {"allocation": {"devices": {"results": [{}, result]}}}}


SHARE = {"shareID": "s"}
HOLDING = having({"cores": "1", "memory": BAD}, **SHARE)
HELD = having({"cores": "1"}, **SHARE)
OBJECTS = [
    (
        "nodes",
        {"metadata": {"name": "x"}, "status": {"allocatable": {"cpu": BAD}}},
        "status.allocatable[cpu]",
    ),
    ("pods", pod(containers=CONTAINERS), "spec.containers[c].resources.requests[memory]"),
    ("pods", pod(initContainers=CONTAINERS), "spec.initContainers[c].resources.requests[memory]"),
    ("pods", pod(resources={"requests": {"cpu": BAD}}), "spec.resources.requests[cpu]"),
    ("pods", pod(overhead={"cpu": BAD}), "spec.overhead[cpu]"),
    ("pods", told(allocatedResources={"cpu": BAD}), "status.allocatedResources[cpu]"),
    (
        "pods",
        told(resources={"requests": {"cpu": BAD}}),
        "status.resources.requests[cpu]",
    ),
    (
        "pods",
        told(containerStatuses=[{"name": "c", "allocatedResources": {"cpu": BAD}}]),
        "the status of container c: allocatedResources[cpu]",
    ),
    (
        "pods",
        told(initContainerStatuses=[{"name": "c", "resources": {"requests": {"cpu": BAD}}}]),
        "the status of container c: resources.requests[cpu]",
    ),
    (
        "resourceSlices",
        published(sharedCounters=[{"name": "s", **COUNTERS}]),
        "spec.sharedCounters[s].counters[slices]",
    ),
    ("resourceSlices", of_capacity(value=BAD), "spec.devices[gpu-0].capacity[memory].value"),
    (
        "resourceSlices",
        of_capacity(requestPolicy={"default": BAD}),
        "spec.devices[gpu-0].capacity[memory].requestPolicy.default",
    ),
    (
        "resourceSlices",
        of_capacity(requestPolicy={"validValues": ["1Gi", BAD]}),
        "spec.devices[gpu-0].capacity[memory].requestPolicy.validValues",
    ),
    (
        "resourceSlices",
        of_capacity(requestPolicy={"validRange": {"min": "1", "step": BAD}}),
        "spec.devices[gpu-0].capacity[memory].requestPolicy.validRange.step",
    ),
    (
        "resourceSlices",
        of_device(consumesCounters=[{"counterSet": "s", **COUNTERS}]),
        "spec.devices[gpu-0].consumesCounters[s].counters[slices]",
    ),
    (
        "resourceClaims",
        {**NAMED, "spec": asking(exactly=ASKED)},
        "spec.devices.requests[r].exactly.capacity.requests[memory]",
    ),
    (
        "resourceClaims",
        {**NAMED, "spec": asking(firstAvailable=[{"name": "s"}, {"name": "t", **ASKED}])},
        "spec.devices.requests[r].firstAvailable[t].capacity.requests[memory]",
    ),
    (
        "resourceClaims",
        HOLDING,
        "status.allocation.devices.results[gpu-0].consumedCapacity[memory]",
    ),
    (
        "resourceClaimTemplates",
        {**NAMED, "spec": {"spec": asking(exactly=ASKED)}},
        "spec.spec.devices.requests[r].exactly.capacity.requests[memory]",
    ),
]


@pytest.mark.parametrize(("field", "thing", "place"), OBJECTS)
def test_a_bad_quantity_costs_the_object_that_has_it_and_is_named(
    field: str, thing: dict[str, Any], place: str
) -> None:
    good = {"metadata": {"name": "good", "namespace": "ns"}}
    gap = {"resource": "secrets", "reason": "forbidden"}
    state = msgspec.convert({field: [good, thing], "notRead": [gap]}, ClusterState)
    found = readable(state)
    name = "/".join(
        thing["metadata"][key] for key in ("namespace", "name") if key in thing["metadata"]
    )
    (bad,) = found.not_read[1:]
    bad = msgspec.structs.replace(bad, only_nodes=None)
    assert bad == NotRead(
        resource=field.lower(), reason="malformed", name=name, message=f"{place}: {WHY}"
    )
    left = [{**thing, "status": {"allocatable": {"cpu": PLENTY}}}] if field == "nodes" else []
    if thing is HOLDING:
        left = [HELD]
    if field == "resourceSlices":
        left = [thing]  # facts/left_out leaves out its devices
    whole = msgspec.convert({field: [good, *left], "notRead": [gap]}, ClusterState)
    assert msgspec.structs.replace(found, not_read=state.not_read) == whole


@pytest.mark.parametrize(
    ("field", "thing", "nodes"),
    [
        ("nodes", {"status": {"allocatable": {"cpu": BAD}}}, ("x",)),
        ("pods", {"spec": {"overhead": {"cpu": BAD}}}, ()),
        ("pods", {"spec": {"nodeName": "n", "overhead": {"cpu": BAD}}}, ("n",)),
        (
            "pods",
            {"spec": {"nodeName": "n", "overhead": {"cpu": BAD}}, "status": {"phase": "Failed"}},
            (),
        ),
        ("resourceSlices", of_capacity(value=BAD), None),
        ("resourceSlices", of_capacity(value=BAD) | {"nodeName": "n"}, ("n",)),
        ("resourceClaims", {"spec": asking(exactly=ASKED)}, ()),
        ("resourceClaims", HOLDING, None),
        ("resourceClaims", having({"memory": BAD}), ()),
        ("resourceClaimTemplates", {"spec": {"spec": asking(exactly=ASKED)}}, ()),
    ],
)
def test_a_bad_quantity_counts_on_the_nodes_of_its_object(
    field: str, thing: dict[str, Any], nodes: tuple[str, ...] | None
) -> None:
    if "nodeName" in thing:
        thing = {"spec": {**thing["spec"], "nodeName": thing["nodeName"]}}
    state = msgspec.convert({field: [{**thing, **NAMED}]}, ClusterState)
    assert [gap.only_nodes for gap in readable(state).not_read] == [nodes]


def test_a_cluster_without_bad_quantities_stays_as_it_is() -> None:
    policy = {"validRange": {"min": "1Gi"}}
    fine = [
        of_capacity(requestPolicy=policy),
        of_capacity(requestPolicy={"default": "1Gi"}),
        published(sharedCounters=[{"name": "s"}]),
    ]
    claims = [{"spec": asking(exactly={})}, {"status": {"allocation": {"devices": {}}}}]
    state = msgspec.convert(
        {"resourceSlices": fine, "resourceClaims": claims, "pods": [{}]}, ClusterState
    )
    assert readable(state) is state
    assert bad_quantity(Namespace()) == ""


def test_capacity_with_and_without_a_policy_is_read() -> None:
    policy = {"requestPolicy": {"default": "1Gi", "validValues": ["1Gi"]}}
    listed = [
        {"name": "gpu-0", "capacity": {"a": {"value": "1Gi"}, "b": {"value": "2Gi", **policy}}}
    ]
    cluster = msgspec.convert({"resourceSlices": [published(devices=listed)]}, ClusterState)
    assert readable(cluster) == cluster


def test_a_limit_beside_a_request_is_counted_by_nobody() -> None:
    """One pod on each node must not make all nodes unknown by what no scheduler reads. A manifest with it is refused all the same."""
    limits = {"memory": BAD}
    for requests, gaps in (({"memory": "1Mi"}, 0), ({"cpu": "1"}, 1)):
        resources = {"requests": requests, "limits": limits}
        thing = pod(nodeName="n", containers=[{"name": "c", "resources": resources}])
        state = msgspec.convert({"pods": [thing]}, ClusterState)
        found = readable(state)
        assert len(found.not_read) == gaps
        assert len(found.pods) == 1 - gaps
        assert bad_quantity(state.pods[0]) == f"spec.containers[c].resources.limits[memory]: {WHY}"
