# SPDX-License-Identifier: Apache-2.0
"""What is said of the extended resources that a container asks for."""

import pytest

from dra_driver.check.unknown_kinds import MOST_TEMPLATES
from tests.unit.check.findings import brief, found, pod

REFUSED = "the API server would refuse it: "
SERVED = "is served by a device plugin, or by a DeviceClass with this extendedResourceName"


@pytest.mark.parametrize(
    ("limits", "message", "action"),
    [
        ("nvidia.com/gpu: '2'", f"nvidia.com/gpu: 2 {SERVED}", "`dra-driver convert` writes"),
        ("nvidia.com/gpu: 0", "nvidia.com/gpu: 0 asks for no device", "leave it out"),
        ("nvidia.com/gpu: '0'", "nvidia.com/gpu: 0 asks for no device", "leave it out"),
        ("nvidia.com/gpu: 1k", f"nvidia.com/gpu: 1k {SERVED}", "a claim has at most 32 devices"),
        ("aliyun.com/gpu-mem: 40", f"aliyun.com/gpu-mem: 40 {SERVED}", "`dra-driver convert`"),
        (
            "aws.amazon.com/neuron: 1",
            "aws.amazon.com/neuron: 1 is AWS's Neuron",
            "AWS's Neuron DRA",
        ),
        ("google.com/tpu: 4", "google.com/tpu: 4 is Google's TPUs", "Google's DRA driver"),
        ("volcano.sh/vgpu-memory: 3000", "volcano.sh/vgpu-memory: 3000 is a part", "this driver"),
    ],
)
def test_advice(limits: str, message: str, action: str) -> None:
    (one,) = found(pod(f"resources: {{limits: {{{limits}}}, requests: {{{limits}}}}}"))
    assert (one.rule, one.severity) == ("device-plugin", "note")
    assert one.message.startswith(message)
    assert one.action.startswith(action)


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "google.com/tpu"])
def test_a_part_of_a_device_is_refused(name: str) -> None:
    assert brief(pod(f"resources: {{limits: {{{name}: 500m}}}}")) == [
        f"7 device-plugin-amount: {REFUSED}{name} is 500m, and must be a whole number"
    ]


def test_a_request_without_its_limit_is_told_with_the_resource() -> None:
    assert brief(pod("resources: {requests: {google.com/tpu: 1}}")) == [
        f"7 device-plugin-amount: {REFUSED}the request for google.com/tpu is 1, and there is no limit",
        "7 device-plugin: google.com/tpu: 1 is Google's TPUs",
    ]


TEMPLATE = """\
apiVersion: v1
kind: PodTemplate
metadata: {name: t}
template:
  spec:
    containers:
      - name: main
        resources: {limits: {nvidia.com/gpu: 2}, requests: {memory: much}}
"""
JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          resourceClaims: [{name: gpu, resourceClaimName: c}]
          containers:
            - name: main
              resources: {requests: {nvidia.com/gpu: 1}}
    Worker:
      template:
        spec:
          nodeSelector: {nvidia.com/gpu.product: A100}
          containers:
            - name: main
  elasticPolicy: {resources: {limits: {nvidia.com/gpu: 1}}}
"""
SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: s}
spec:
  predictor:
    containers:
      - name: main
        resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_a_pod_template_is_looked_into() -> None:
    assert brief(TEMPLATE) == [
        f"8 device-plugin: nvidia.com/gpu: 2 {SERVED}",
        f"8 api-value: {REFUSED}spec.containers[main].resources.requests[memory]: 'much' is no quantity; write for example 80Gi, 500m or 1e3",
    ]


def test_the_pods_in_a_custom_resource_are_looked_into() -> None:
    """What its controller may add is not missed: a request without its limit is no mistake here."""
    assert brief(JOB) == [
        "2 not-checked: PyTorchJob of kubeflow.org: of it only the pods are checked, in spec.pytorchReplicaSpecs.Master.template and 1 more",
        "9 ref-unused: no container uses the claim gpu: its devices are allocated, and nobody sees them",
        f"12 device-plugin: nvidia.com/gpu: 1 {SERVED}",
        "16 node-choice: the node is chosen by a label of its devices: nvidia.com/gpu.product: A100",
        "19 device-plugin: spec.elasticPolicy.resources.limits asks a device plugin for nvidia.com/gpu, or a DeviceClass with this extendedResourceName",
    ]


def test_what_is_no_pod_template_is_told_as_not_looked_into() -> None:
    assert brief(SERVICE) == [
        "2 not-checked: InferenceService of serving.kserve.io: neither it nor its pods are checked",
        "8 device-plugin: spec.predictor.containers[0].resources.limits asks a device plugin for nvidia.com/gpu, or a DeviceClass with this extendedResourceName",
    ]


@pytest.mark.parametrize("more", [0, 2])
def test_the_pod_templates_past_the_maximum_are_told(more: int) -> None:
    """Also of a second object of the kind; and what they ask a device plugin for."""
    template = "  - {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n"
    job = "apiVersion: x.example/v1\nkind: Jobs\nmetadata: {name: j}\nspec:\n  l:\n"
    text = job + template * (MOST_TEMPLATES + more)
    all_found = brief(f"{text}---\n{text}")
    advice = f"device-plugin: nvidia.com/gpu: 1 {SERVED}"
    assert len([one for one in all_found if one.endswith(advice)]) == 2 * MOST_TEMPLATES
    asked = [one.partition(" asks")[0] for one in all_found if " asks a device plugin " in one]
    lines = len(text.splitlines()) + 1
    assert asked == [
        f"{first + 6 + index} device-plugin: spec.l[{index}].spec.containers[0].resources.limits"
        for first in (0, lines)
        for index in range(MOST_TEMPLATES, MOST_TEMPLATES + more)
    ]
    told = f"not-checked: {more} of its {MOST_TEMPLATES + more} pod templates are not checked: of one object the first {MOST_TEMPLATES} are"
    kind = f"2 not-checked: Jobs of x.example: of it only the pods are checked, in spec.l[0] and {MOST_TEMPLATES - 1} more"
    each = [f"2 {told}", f"{lines + 2} {told}"] if more else []
    assert sorted(one for one in all_found if "not-checked" in one) == sorted([kind, *each])
