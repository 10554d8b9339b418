# SPDX-License-Identifier: Apache-2.0
"""What is said of the extended resources that a container asks for."""

import pytest

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
