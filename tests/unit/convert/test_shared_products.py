# SPDX-License-Identifier: Apache-2.0
"""Pods whose nodes offer shares of GPUs by the name of whole ones: the plugin shares them, and does not rename them."""

from typing import Any

import pytest

from dra_driver.convert.convert import Converted, convert
from dra_driver.convert.resources import Choice
from tests.unit.convert.test_around import affinity
from tests.unit.convert.test_shares import SHARED, workload

Object = dict[str, Any]
GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
T4 = "Tesla-T4-SHARED"
READ = 'device.attributes["gpu.nvidia.com"].productName'
IS_T4 = f'{READ} == "Tesla T4"'


def converted(spec: Object, kind: str = "Deployment", *, resource: str = GPU) -> Converted:
    return convert(workload(kind, {}, spec, resource=resource), Choice(), ["Tesla T4"])


def selectors(found: Converted) -> list[str]:
    (request,) = found.documents[0]["spec"]["devices"]["requests"]
    return [one["cel"]["expression"] for one in request["exactly"].get("selectors", [])]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {PRODUCT: T4}}, f"has({READ}) && {IS_T4}"),
        (affinity({PRODUCT: [T4]}), f"has({READ}) && {IS_T4}"),
        (
            affinity(
                {PRODUCT: [T4]}, {PRODUCT: ["Tesla-T4-SHARED"], "nvidia.com/gpu.present": ["true"]}
            ),
            f"(has({READ}) && {IS_T4}) || (has({READ}) && {IS_T4})",
        ),
    ],
    ids=["nodeSelector", "affinity", "terms"],
)
def test_pods_on_nodes_with_shares_share_a_claim(spec: Object, expected: str) -> None:
    found = converted(spec)
    claim, made = found.documents
    assert (claim["kind"], found.left) == ("ResourceClaim", ())
    assert [one.replace("((", "(").replace("))", ")") for one in selectors(found)] == [expected]
    pod = made["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "shared-gpu", "resourceClaimName": "w-shared-gpu"}]
    assert ("nodeSelector" in pod, "affinity" in pod) == (False, False)
    assert found.notes[0].startswith(f"on nodes with {PRODUCT}: {T4} {GPU} is a share of a GPU")
    assert "all pods that use this claim run on one node" in found.notes[1]
    assert "nodes with a taint for their devices (nvidia.com/gpu)" in found.notes[2]


def test_the_product_of_shares_is_that_of_their_gpu_for_a_renamed_resource_too() -> None:
    found = converted({"nodeSelector": {PRODUCT: T4}}, resource=SHARED)
    assert selectors(found) == [f"has({READ}) && {IS_T4}"]
    assert "is a share of a GPU, and no whole one" not in "".join(found.notes)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {PRODUCT: "Tesla-T4"}},
        affinity({PRODUCT: [T4, "Tesla-T4"]}),
        affinity({PRODUCT: []}),
        affinity({PRODUCT: [T4]}, {PRODUCT: ["Tesla-T4"]}),
        {"nodeSelector": {"gpu-product": T4}},
    ],
    ids=["whole", "either", "none", "one-term", "another-label"],
)
def test_on_nodes_that_may_have_whole_gpus_each_pod_gets_one(spec: Object) -> None:
    assert converted(spec).documents[0]["kind"] == "ResourceClaimTemplate"


def test_several_shares_are_no_claim() -> None:
    document = workload("Deployment", {}, {"nodeSelector": {PRODUCT: T4}}, resource=GPU)
    document["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = 2
    found = convert(document, Choice(), ())
    assert found.documents == (document,)
    assert found.left[0].what == f"{GPU}: 2"
    assert found.left[0].reason.startswith("shares are no part of a GPU's power")


def test_pods_that_cannot_use_one_claim_stay() -> None:
    found = converted({"nodeSelector": {PRODUCT: T4}}, "DaemonSet")
    assert not found.is_changed
    (left,) = found.left
    assert (left.what, left.reason[:36]) == (f"{GPU}: 1", "a DaemonSet has pods on several node")
    assert "ask for nvidia.com/gpu and no product with -SHARED" in left.reason
