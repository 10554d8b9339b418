# SPDX-License-Identifier: Apache-2.0
"""Pods whose nodes offer parts of GPUs by the name of whole ones."""

from typing import Any

import pytest

from dra_driver.convert.around import PARTITION_LABEL
from dra_driver.convert.convert import Converted, convert
from dra_driver.convert.resources import Choice

Object = dict[str, Any]
PRODUCT, LAYOUT, STRATEGY = (
    *("nvidia.com/gpu.product", "nvidia.com/mig.config", "nvidia.com/mig.strategy"),
)
A100 = "NVIDIA-A100-SXM4-40GB"
SINGLE = {STRATEGY: "single"}


def converted(spec: Object, resource: str = "nvidia.com/gpu") -> Converted:
    """A pod with these fields, whose container asks for seven of the resource, or one if it is shared."""
    limits = {resource: 1 if resource.endswith("shared") else 7}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**spec, "containers": containers},
    }
    return convert(pod, Choice(), ["NVIDIA A100-SXM4-40GB"])


def request(found: Converted) -> Object:
    """The one request of the claim that was made."""
    body: Object = found.documents[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    return body


def selectors(found: Converted) -> list[str]:
    return [one["cel"]["expression"] for one in request(found).get("selectors", [])]


def affinity(*terms: Object) -> Object:
    """A pod's required affinity; each term is a label with its values."""
    each = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": values} for key, values in term.items()
            ]
        }
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": each}}
    return {"affinity": {"nodeAffinity": required}}


def told(condition: str) -> str:
    return f"on nodes with {condition} it is a part of a GPU, or may be one"


@pytest.mark.parametrize(
    ("labels", "profile", "left"),
    [
        ({PARTITION_LABEL: "1g.5gb"}, "1g.5gb", []),
        ({PARTITION_LABEL: "2g.10gb", "zone": "a"}, "2g.10gb", []),
        ({**SINGLE, LAYOUT: "all-1g.5gb"}, "1g.5gb", [LAYOUT, STRATEGY]),
        ({LAYOUT: "all-1g.10gb.me"}, "1g.10gb+me", [LAYOUT]),
        ({**SINGLE, PRODUCT: f"{A100}-MIG-1g.5gb"}, "1g.5gb", [STRATEGY]),
        ({PRODUCT: f"{A100}-MIG-1g.5gb", PARTITION_LABEL: "1g.5gb"}, "1g.5gb", []),
    ],
)
def test_nodes_with_parts_of_a_profile_offer_these(
    labels: Object, profile: str, left: list[str]
) -> None:
    found = converted({"nodeSelector": labels})
    asked = request(found)
    assert (asked["deviceClassName"], asked["count"]) == ("mig.nvidia.com", 7)
    assert f'device.attributes["gpu.nvidia.com"].profile == "{profile}"' in selectors(found)
    assert sorted(one.what.partition(":")[0] for one in found.left) == left
    stays = {key: labels[key] for key in labels if key in (*left, "zone")}
    assert found.documents[1]["spec"].get("nodeSelector", {}) == stays


def test_the_product_of_parts_is_that_of_their_gpu() -> None:
    found = converted({"nodeSelector": {PRODUCT: f"{A100}-MIG-1g.5gb"}})
    read = 'device.attributes["gpu.nvidia.com"].productName'
    assert selectors(found)[1] == f'has({read}) && {read} == "NVIDIA A100-SXM4-40GB"'
    assert (found.left, "nodeSelector" in found.documents[1]["spec"]) == ((), False)


def test_another_product_than_that_of_parts_stays_for_a_part() -> None:
    spec = affinity({PRODUCT: [f"{A100}-MIG-2g.10gb"]})
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    term["matchExpressions"][0]["operator"] = "NotIn"
    found = converted(spec, "nvidia.com/mig-1g.5gb")
    assert selectors(found) == ['device.attributes["gpu.nvidia.com"].profile == "1g.5gb"']
    assert [one.what for one in found.left] == [f"{PRODUCT} NotIn {A100}-MIG-2g.10gb"]


def test_an_affinity_says_it_as_well() -> None:
    found = converted(affinity({PRODUCT: [f"{A100}-MIG-1g.5gb", "NVIDIA-A100-PCIE-MIG-1g.5gb"]}))
    assert request(found)["deviceClassName"] == "mig.nvidia.com"


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
@pytest.mark.parametrize(
    ("spec", "condition"),
    [
        ({"nodeSelector": SINGLE}, f"{STRATEGY}: single"),
        ({"nodeSelector": {PARTITION_LABEL: "half"}}, f"{PARTITION_LABEL}: half"),
        (
            {"nodeSelector": {PRODUCT: f"{A100}-MIG-1g.5gb-SHARED"}},
            f"{PRODUCT}: {A100}-MIG-1g.5gb-SHARED",
        ),
        (
            affinity({PRODUCT: [A100, f"{A100}-MIG-1g.5gb"]}),
            f"{PRODUCT} In {A100}, {A100}-MIG-1g.5gb",
        ),
        (
            {"nodeSelector": {LAYOUT: "all-1g.5gb", PARTITION_LABEL: "2g.10gb"}},
            f"{LAYOUT}: all-1g.5gb",
        ),
        (affinity({PRODUCT: [A100]}, {LAYOUT: ["all-1g.5gb"]}), f"{LAYOUT}: all-1g.5gb"),
    ],
)
def test_what_may_be_a_part_of_no_known_profile_stays(
    spec: Object, condition: str, resource: str
) -> None:
    found = converted(spec, resource)
    assert not found.is_changed
    assert [one.what.partition(":")[0] for one in found.left] == [resource]
    assert found.left[0].reason.startswith(told(condition))


def test_a_share_of_a_part_is_no_claim() -> None:
    found = converted({"nodeSelector": {LAYOUT: "all-1g.5gb"}}, "nvidia.com/gpu.shared")
    assert not found.is_changed
    assert found.left[0].reason.startswith("time-shared parts are no claims here")


@pytest.mark.parametrize(
    "labels",
    [
        {STRATEGY: "mixed"},
        {LAYOUT: "all-disabled"},
        {LAYOUT: "mine"},
        {PRODUCT: A100},
        {"nvidia.com/mig.capable": "true"},
    ],
)
def test_other_labels_leave_a_gpu_whole(labels: Object) -> None:
    assert request(converted({"nodeSelector": labels}))["deviceClassName"] == "gpu.nvidia.com"


def test_a_resource_of_parts_is_not_asked_about() -> None:
    found = converted({"nodeSelector": SINGLE}, "nvidia.com/mig-1g.5gb")
    assert request(found)["deviceClassName"] == "mig.nvidia.com"
    assert [one.what for one in found.left] == [f"{STRATEGY}: single"]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu"])
def test_a_pod_that_names_its_node_stays(resource: str) -> None:
    found = converted({"nodeName": "gpu-b"}, resource)
    assert not found.is_changed
    (one,) = found.left
    assert one.what.startswith(resource)
    assert one.reason.startswith("with spec.nodeName the scheduler never sees the pod")
    assert "by nodeAffinity with matchFields metadata.name In gpu-b;" in one.reason
    assert converted({"nodeName": ""}, resource).is_changed


@pytest.mark.parametrize(
    ("metadata", "spec", "is_told"),
    [
        ({}, {"nodeName": "gpu-b", "resourceClaims": [{"name": "a"}]}, True),
        ({"uid": "u"}, {"nodeName": "gpu-b", "resourceClaims": [{"name": "a"}]}, False),
        ({}, {"nodeName": "gpu-b"}, False),
        ({}, {"resourceClaims": [{"name": "a"}]}, False),
    ],
)
def test_a_pod_with_claims_that_names_its_node_is_told_that_they_get_nothing(
    metadata: Object, spec: Object, is_told: bool
) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **metadata},
        "spec": {**spec, "containers": [{"name": "c"}]},
    }
    found = convert(document, Choice(), ())
    assert [one.what for one in found.left] == ["nodeName: gpu-b"] * is_told
    assert not found.is_changed
    assert all(one.reason.endswith("metadata.name In gpu-b") for one in found.left)
