# SPDX-License-Identifier: Apache-2.0
"""What `explain` predicts for every pair of the verdict table; that the real scheduler does just that is shown elsewhere."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from dra_driver.cli.render_explain import document, text
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet
from tests.e2e.verdict_pairs import CLASSES, MORE_PAIRS, PAIRS, Case

NAMESPACE = "ns"
KINDS: dict[str, tuple[str, Any]] = {
    "Node": ("nodes", Node),
    "Pod": ("pods", Pod),
    "ResourceSlice": ("resource_slices", ResourceSlice),
    "DeviceClass": ("device_classes", DeviceClass),
    "ResourceClaim": ("resource_claims", ResourceClaim),
    "ResourceClaimTemplate": ("resource_claim_templates", ResourceClaimTemplate),
}
ALLOCATABLE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
CASES = [
    pytest.param(pair.member.__name__, case, twin, id=f"{pair.name}-{twin}")
    for pair in (*PAIRS, *MORE_PAIRS)
    for twin, case in (("placed", pair.placed), ("pending", pair.pending))
]


def with_objects(state: ClusterState, objects: Sequence[dict[str, Any]]) -> ClusterState:
    """The cluster with these, in a namespace of theirs."""
    for thing in objects:
        field, kind = KINDS[thing["kind"]]
        made = {**thing, "metadata": {**thing["metadata"]}}
        name = made["metadata"]["name"]
        if thing["kind"] in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
            made["metadata"] |= {"namespace": NAMESPACE, "uid": f"uid of {name}"}
        if thing["kind"] == "Node":
            made["status"] = {"allocatable": ALLOCATABLE}
        added = msgspec.convert(made, kind)
        kept = (*getattr(state, field), added)
        state = msgspec.structs.replace(state, **{field: kept})
    return state


def cluster_of(case: Case) -> ClusterState:
    """The cluster before the subject is there; its own pods have got what they asked for."""
    state = ClusterState(
        recorded_at="2026-06-01T00:00:00+00:00",
        kubernetes_version="v1.37.1",
        served=("v1",),
        namespaces=(msgspec.convert({"metadata": {"name": NAMESPACE}}, Namespace),),
    )
    state = with_objects(state, [fleet.node(name) for name in fleet.FLEET] + list(CLASSES))
    if case.other_drivers:
        state = with_objects(state, fleet.background())
    state = with_objects(
        state, [one for one in case.given if one["kind"] not in ("Pod", "ResourceClaim")]
    )
    pods = [one for one in case.given if one["kind"] == "Pod"]
    claims = [one for one in case.given if one["kind"] == "ResourceClaim"]
    state = with_objects(state, [one for one in claims if "status" in one])
    pending = [one for one in claims if "status" not in one]
    for pod in pods:
        report = explain(state, ManifestSubject((*pending, pod), NAMESPACE, "given"))
        assert report.exit_code == 0, report
        state = with_objects(state, placed(pod, pending, report))
        pending = []
    if case.without_right:
        gap = NotRead(
            resource=case.without_right,
            reason="forbidden",
            message=f"allow verb list on {case.without_right}",
        )
        field = {"resourceslices": "resource_slices"}[case.without_right]
        state = msgspec.structs.replace(state, **{field: (), "not_read": (gap,)})
    return state


def placed(
    pod: dict[str, Any], claims: Sequence[dict[str, Any]], report: Report
) -> Iterator[dict[str, Any]]:
    node = report.nodes[0]
    yield {**pod, "spec": {**pod["spec"], "nodeName": node.nodes[0]}}
    here = {"key": "metadata.name", "operator": "In", "values": [node.nodes[0]]}
    selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    for claim in claims:
        results = [
            {"request": c.request, "driver": c.driver, "pool": c.pool, "device": c.device}
            | shared(c.device, claim)
            for c in node.placement
            if c.claim == f"{NAMESPACE}/{claim['metadata']['name']}"
        ]
        allocation = {"devices": {"results": results}, "nodeSelector": selector}
        users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": "uid"}]
        yield {**claim, "status": {"allocation": allocation, "reservedFor": users}}


def shared(device: str, claim: dict[str, Any]) -> dict[str, Any]:
    capacity = claim["spec"]["devices"]["requests"][0]["exactly"].get("capacity")
    if not capacity:
        return {}
    return {"shareID": f"share-{device}", "consumedCapacity": capacity["requests"]}


def reasons(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "reason" in value:
            yield value["reason"]
        for part in value.values():
            yield from reasons(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from reasons(part)


@pytest.mark.parametrize(("member", "case", "twin"), CASES)
def test_explain_predicts_the_pair_of_each_verdict(member: str, case: Case, twin: str) -> None:
    state = cluster_of(case)
    report = explain(state, ManifestSubject(tuple(case.subject), NAMESPACE, "subject"))
    said = "\n".join(text(report, width=100, color=False))
    expected = case.exit_code if case.before is None else case.before
    assert report.exit_code == expected, said
    if twin == "pending" and not case.only_after:
        assert member in set(reasons(document(report))), said
