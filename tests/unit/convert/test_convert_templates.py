# SPDX-License-Identifier: Apache-2.0
"""The pods of templates and of custom resources become ones with claims."""

from typing import Any

import pytest

from dra_driver.convert.convert import as_pods, convert
from dra_driver.convert.resources import Choice

Object = dict[str, Any]


def template(limits: Object) -> Object:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


def custom(api_version: str, kind: str, spec: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "ns"},
        "spec": spec,
    }


CLUSTER = custom(
    "ray.io/v1",
    "RayCluster",
    {
        "headGroupSpec": {"template": template({"cpu": 1})},
        "workerGroupSpecs": [
            {"replicas": 2, "template": template({"nvidia.com/gpu": 1})},
            {"template": template({"nvidia.com/mig-1g.5gb": 1})},
        ],
    },
)


def test_a_pod_template_becomes_one_with_a_claim() -> None:
    given = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "t"},
        "template": template({"nvidia.com/gpu": 2}),
    }
    made, found = convert(given, Choice(), ()).documents
    assert made["metadata"]["name"] == "t-gpu"
    spec = found["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "t-gpu"}]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "gpu", "request": "c"}]}


def test_each_template_of_a_custom_resource_gets_claims_of_its_own() -> None:
    found = convert(CLUSTER, Choice(), ())
    first, second, made = found.documents
    assert [one["metadata"]["name"] for one in (first, second)] == ["x-gpu", "x-gpu-2"]
    head, (one, other) = made["spec"]["headGroupSpec"], made["spec"]["workerGroupSpecs"]
    assert head == CLUSTER["spec"]["headGroupSpec"]
    assert one["replicas"] == 2
    named = [
        each["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        for each in (one, other)
    ]
    assert named == ["x-gpu", "x-gpu-2"]
    assert any("CustomResourceDefinition must have resourceClaims" in note for note in found.notes)
    assert found.left == ()


@pytest.mark.parametrize(
    ("api_version", "kind", "spec"),
    [
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": "T"}}}),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"template": {"spec": {"template": "T"}}}]},
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"workerTemplate": "T"}},
        ),
        ("ray.io/v1", "RayJob", {"rayClusterSpec": {"headGroupSpec": {"template": "T"}}}),
        ("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": "T"}]}),
    ],
)
def test_the_kinds_that_are_known(api_version: str, kind: str, spec: Object) -> None:
    def filled(content: Any) -> Any:
        if isinstance(content, dict):
            return {key: filled(value) for key, value in content.items()}
        if isinstance(content, list):
            return [filled(one) for one in content]
        return template({"amd.com/gpu": 1}) if content == "T" else content

    found = convert(custom(api_version, kind, filled(spec)), Choice(), ())
    assert [one["kind"] for one in found.documents] == ["ResourceClaimTemplate", kind]
    assert found.left == ()


def test_what_is_outside_of_the_templates_is_told() -> None:
    spec = {
        "t": {"template": template({"nvidia.com/gpu": 33})},
        "trainer": {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}},
    }
    found = convert(custom("kubeflow.org/v1", "TrainJob", spec), Choice(), ())
    assert not found.is_changed
    assert [one.what for one in found.left] == [
        "nvidia.com/gpu: 33",
        "spec.trainer.resourcesPerNode.limits asks for nvidia.com/gpu",
    ]


def test_the_templates_of_an_unknown_kind_stay() -> None:
    """Knative refuses the fields of a pod that it does not know; nobody knows what another one does."""
    given = custom(
        "serving.knative.dev/v1", "Service", {"template": template({"nvidia.com/gpu": 1})}
    )
    found = convert(given, Choice(), ())
    assert found.documents == (given,)
    assert [one.what for one in found.left] == [
        "spec.template.spec.containers[0].resources.limits asks for nvidia.com/gpu"
    ]


def test_a_machine_is_asked_about_a_pod_of_each_template() -> None:
    pods = as_pods(CLUSTER)
    assert [one["metadata"] for one in pods] == [
        {"name": f"x-{n}", "namespace": "ns"} for n in range(3)
    ]
    assert [one["spec"] for one in pods][2] == CLUSTER["spec"]["workerGroupSpecs"][1]["template"][
        "spec"
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}
    assert as_pods(pod) == (pod,)
