# SPDX-License-Identifier: Apache-2.0
"""A value of a label that is no number for CEL, or no name of a GPU, stays."""

import pytest
import yaml

from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice

LONG, ARABIC = "9" * 5000, "٤٠٠٠"
LABELS = (
    "gpu-memory",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.compute.major",
    "nvidia.com/cuda.driver.major",
)
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("value", [LONG, ARABIC, "9" * 19])
def test_what_is_no_number_stays_and_is_told(label: str, value: str) -> None:
    pod = yaml.safe_load(POD)
    pod["spec"]["nodeSelector"] = {label: value}
    found = convert(pod, Choice(), ())
    assert found.documents[-1]["spec"]["nodeSelector"] == {label: value}
    assert "selectors" not in yaml.safe_dump(found.documents)
    assert len(found.left) == 1


def test_a_bound_that_is_no_number_stays_too() -> None:
    pod = yaml.safe_load(POD)
    one = {"key": "nvidia.com/gpu.compute.major", "operator": "Gt", "values": [ARABIC]}
    terms = [{"matchExpressions": [one]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    found = convert(pod, Choice(), ())
    assert found.documents[-1]["spec"]["affinity"] == pod["spec"]["affinity"]
    assert len(found.left) == 1


def test_a_name_that_is_of_no_known_gpu_stays() -> None:
    pod = yaml.safe_load(POD)
    pod["spec"]["nodeSelector"] = {"accelerator": "nvidia-super-gpu"}
    found = convert(pod, Choice(), ())
    assert found.documents[-1]["spec"]["nodeSelector"] == {"accelerator": "nvidia-super-gpu"}
    (left,) = found.left
    assert left.reason.startswith("no GPU is known by this name")
