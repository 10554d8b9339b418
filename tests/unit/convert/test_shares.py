# SPDX-License-Identifier: Apache-2.0
"""Workloads whose pods share a GPU: can all of them use one claim?"""

from typing import Any

import pytest

from dra_driver.convert.convert import Converted, convert
from dra_driver.convert.resources import Choice

Object = dict[str, Any]
SHARED = "nvidia.com/gpu.shared"
LABELS = {"app": "web"}
OWN = "ask for nvidia.com/gpu and no product with -SHARED, so that each pod has a GPU of its own, or keep the plugin; it stays"


def workload(kind: str, spec: Object, pod: Object, *, resource: str = SHARED) -> Object:
    """A workload whose container asks for one of the resource; `pod` are more fields of the spec of its pods."""
    containers = [{"name": "c", "resources": {"limits": {resource: 1}}}]
    template = {"metadata": {"labels": LABELS}, "spec": {**pod, "containers": containers}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "w"},
        "spec": {**spec, "template": template},
    }


def converted(kind: str, spec: Object, pod: Object) -> Converted:
    return convert(workload(kind, spec, pod), Choice(), ())


def spread(**fields: object) -> Object:
    """A constraint by which the pods differ by at most one between hosts."""
    usual = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": LABELS},
    }
    return {"topologySpreadConstraints": [usual | fields]}


def repelled(selector: object) -> Object:
    """An affinity that forbids two such pods on one host."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


@pytest.mark.parametrize(
    ("kind", "spec", "pod", "reason"),
    [
        (
            "DaemonSet",
            {},
            {},
            f"a DaemonSet has pods on several nodes, and the GPU of a claim is on one; {OWN}",
        ),
        ("Deployment", {"replicas": 257}, {}, "257 pods would use one claim, and it has at most"),
        ("Job", {"parallelism": 300}, {}, "300 pods would use one claim"),
        (
            "Deployment",
            {"replicas": 2},
            spread(),
            f"topologySpreadConstraints (kubernetes.io/hostname) keeps the pods apart, and the GPU of a claim is on one node; leave it out, or {OWN}",
        ),
        (
            "StatefulSet",
            {"replicas": 2},
            repelled({"matchExpressions": 3}),
            "podAntiAffinity (kubernetes.io/hostname) keeps the pods apart",
        ),
        (
            "StatefulSet",
            {"replicas": 2},
            repelled({"matchLabels": LABELS}),
            "podAntiAffinity (kubernetes.io/hostname) keeps the pods apart",
        ),
    ],
)
def test_pods_that_cannot_use_one_claim_stay(
    kind: str, spec: Object, pod: Object, reason: str
) -> None:
    document = workload(kind, spec, pod)
    found = convert(document, Choice(), ())
    assert found.documents == (document,)
    (left,) = found.left
    assert left.what == f"{SHARED}: 1"
    assert left.reason.startswith(reason)
    whole = convert(workload(kind, spec, pod, resource="nvidia.com/gpu"), Choice(), ())
    assert (whole.is_changed, whole.left) == (True, ())


@pytest.mark.parametrize(
    ("kind", "spec", "pod"),
    [
        ("Deployment", {"replicas": 256}, {}),
        ("Deployment", {"replicas": "many"}, {}),
        ("Deployment", {}, spread()),
        ("Deployment", {}, repelled({})),
        ("Job", {"parallelism": 300, "completions": 1}, {}),
        ("Deployment", {"replicas": 2}, spread(whenUnsatisfiable="ScheduleAnyway")),
        ("Deployment", {"replicas": 2}, spread(maxSkew=2)),
        ("Deployment", {"replicas": 2}, spread(maxSkew=None)),
        ("Deployment", {"replicas": 2}, spread(labelSelector=None)),
        ("Deployment", {"replicas": 2}, spread(labelSelector={"matchLabels": {"app": "db"}})),
        ("Deployment", {"replicas": 2}, {"topologySpreadConstraints": 3}),
        (
            "Deployment",
            {"replicas": 2},
            repelled({"matchExpressions": [{"key": "app", "operator": "In", "values": 3}]}),
        ),
        ("Deployment", {"replicas": 2}, repelled({"matchLabels": {"app": "db"}})),
    ],
)
def test_other_pods_share_a_claim(kind: str, spec: Object, pod: Object) -> None:
    found = converted(kind, spec, pod)
    assert [one["kind"] for one in found.documents] == ["ResourceClaim", kind]
    assert found.left == ()


def test_the_workload_of_another_group_says_nothing() -> None:
    document = {**workload("DaemonSet", {}, {}), "apiVersion": "kubeflow.org/v1"}
    assert convert(document, Choice(), ()).left == ()
