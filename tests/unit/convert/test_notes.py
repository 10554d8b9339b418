# SPDX-License-Identifier: Apache-2.0
"""What is told of a pod that was converted."""

import pytest
import yaml

from dra_driver.convert.convert import convert
from dra_driver.convert.resources import Choice

ONE = "[{name: c, resources: {limits: {%s: 1}}}]"


def notes_of(containers: str, spec: str = "{}", choice: Choice | None = None) -> tuple[str, ...]:
    """The notes about a pod with these containers and fields."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**yaml.safe_load(spec), "containers": yaml.safe_load(containers)},
    }
    return convert(pod, choice or Choice(), ()).notes


def test_an_init_container_that_gets_more_than_it_asks_for_is_told() -> None:
    def notes(main: int) -> tuple[str, ...]:
        container = "{name: %s, resources: {limits: {amd.com/gpu: %d}}}"
        spec = f"{{initContainers: [{container % ('warm', 1)}]}}"
        return notes_of(f"[{container % ('big', main)}]", spec)

    assert notes(4)[0].startswith(
        "the init container warm asks for 1, and gets all 4 devices of the request big: no other"
    )
    assert "init" not in "".join(notes(1))


@pytest.mark.parametrize(
    ("tolerations", "is_told"),
    [
        ("", True),
        ("{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}", False),
        ("{key: nvidia.com/gpu, value: present}", False),
        ("{operator: Exists}", False),
        ("{key: nvidia.com/gpu, operator: Exists, effect: NoExecute}", True),
        ("{key: other, operator: Exists}", True),
    ],
)
def test_the_toleration_is_told_to_a_pod_that_has_none(tolerations: str, is_told: bool) -> None:
    notes = notes_of(ONE % "nvidia.com/gpu", f"{{tolerations: [{tolerations}]}}")
    assert any("nodes with a taint for their devices" in one for one in notes) is is_told


@pytest.mark.parametrize(
    ("resource", "vendor"),
    [
        ("amd.com/gpu", "AMD"),
        ("gpu.intel.com/xe", "Intel"),
        ("gpu.intel.com/i915", "Intel"),
        ("habana.ai/gaudi", "Habana"),
        ("nvidia.com/mig-1g.5gb", ""),
    ],
)
def test_devices_that_no_backend_finds_are_told(resource: str, vendor: str) -> None:
    notes = notes_of(ONE % resource)
    told = [one for one in notes if one.startswith("the pod waits until a driver publishes")]
    assert len(told) == bool(vendor)
    for one in told:
        assert f"publishes {vendor}'s devices" in one
    mine = notes_of(ONE % resource, choice=Choice("theirs", "gpu.amd.com"))
    assert not any("the pod waits" in one for one in mine)


@pytest.mark.parametrize(
    ("resource", "stays"), [("cpu", []), ("amd.com/cpx_nps4", ["amd.com/cpx_nps4: 1"])]
)
def test_labels_of_devices_in_a_pod_that_asks_for_none_are_told(
    resource: str, stays: list[str]
) -> None:
    term = "{matchExpressions: [{key: gpu-memory, operator: Gt, values: ['1']}, {key: zone, operator: Exists}]}"
    spec = (
        "{nodeSelector: {nvidia.com/gpu.present: 'true', disk: ssd}, affinity: {nodeAffinity: {"
        f"requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}, "
        f"preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, preference: {term}}}]}}}}}}"
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**yaml.safe_load(spec), "containers": yaml.safe_load(ONE % resource)},
    }
    found = convert(pod, Choice(), ())
    assert [one.what for one in found.without_request] == [
        *("nvidia.com/gpu.present: true", "gpu-memory Gt 1", "gpu-memory Gt 1"),
    ]
    for one in found.without_request:
        assert one.reason.startswith("no container asks for a device that a claim can have")
    assert (found.documents, [one.what for one in found.left]) == ((pod,), stays)
