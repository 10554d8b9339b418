# SPDX-License-Identifier: Apache-2.0
"""Does the test bed know what each Kubernetes release can do, and does the page say what ran?"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.testing.fake_api.kinds import convert
from hack.testbed import matrix
from hack.testbed.onenode import build, components, features, old_api
from hack.testbed.onenode.tested import Run, page

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ROOT / "deviceclasses"
Object = dict[str, Any]
SLICE: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "a"},
    "spec": {
        "driver": "gpu.example.com",
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "u"}}}, {"name": "gpu-1"}],
    },
}
CLAIM: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "a"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "one", "exactly": {"deviceClassName": "gpu", "count": 2}},
                {"name": "other", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]},
            ]
        }
    },
}


def manifests() -> list[Object]:
    """All manifests of the core API and of resource.k8s.io/v1; taint rules and workloads have no older form of the latter."""
    files = sorted(CLASSES.rglob("*.yaml"))
    there = [found for file in files for found in yaml.safe_load_all(file.read_text()) if found]
    return [found for found in there if found["apiVersion"] in ("v1", "resource.k8s.io/v1")]


def a_run(**changes: Any) -> Run:
    values: Object = {
        "kubernetes": "1.32.5",
        "api": "v1beta1",
        "day": "2026-01-31",
        "architecture": "x86_64",
        "kernel": "6.1",
        "cgroups": "v2",
        "containerd": "v2",
        "runc": "1",
        "go": "1.26",
        "seconds": 61.2,
        "outcomes": {"tests/e2e/test_a.py::test_one": "passed"},
        "left_out": {},
    }
    return Run(**values | changes)


def test_v1beta1_has_the_devices_content_below_basic_and_the_requests_fields_flat() -> None:
    assert old_api.to_version(SLICE, "v1beta1")["spec"]["devices"] == [
        {"name": "gpu-0", "basic": {"attributes": {"uuid": {"string": "u"}}}},
        {"name": "gpu-1", "basic": {}},
    ]
    assert old_api.to_version(CLAIM, "v1beta1")["spec"]["devices"]["requests"] == [
        {"name": "one", "deviceClassName": "gpu", "count": 2},
        {"name": "other", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]},
    ]


def test_v1alpha3_has_bare_quantities_as_capacities() -> None:
    device = {"name": "gpu-0", "capacity": {"memory": {"value": "40Gi"}}}
    slice_ = {**SLICE, "spec": {"driver": "gpu.example.com", "devices": [device]}}
    old = old_api.to_version(slice_, "v1alpha3")

    assert old["spec"]["devices"] == [{"name": "gpu-0", "basic": {"capacity": {"memory": "40Gi"}}}]
    assert old_api.to_v1(old) == slice_


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha3"])
def test_an_object_comes_back_from_an_old_version_as_it_was(version: str) -> None:
    listed = {"kind": "List", "apiVersion": "v1", "items": [SLICE, CLAIM, *manifests()]}
    old = old_api.to_version(listed, version)

    groups = {entry["apiVersion"] for entry in old["items"]} - {"v1"}
    assert groups == {f"resource.k8s.io/{version}"}
    assert old_api.to_v1(old) == listed


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_the_fake_api_server_converts_in_the_same_way(version: str) -> None:
    ours = [obj for obj in (SLICE, CLAIM, *manifests()) if "resource" in obj["apiVersion"]]

    assert [old_api.to_version(obj, version) for obj in ours] == [
        convert(obj, version, direction="serve") for obj in ours
    ]


def test_an_object_that_is_old_already_is_refused() -> None:
    with pytest.raises(ValueError, match="v1beta1 ResourceClaim is not in v1 form"):
        old_api.to_version({**CLAIM, "apiVersion": "resource.k8s.io/v1beta1"}, "v1beta2")


@pytest.mark.parametrize("version", ["v1alpha2", ""])
def test_a_claim_is_not_written_where_it_has_no_form(version: str) -> None:
    with pytest.raises(ValueError, match="ResourceClaim cannot be written as"):
        old_api.to_version(CLAIM, version)


@pytest.mark.parametrize(
    ("version", "served", "switched_on"),
    [
        (
            "1.32.5",
            ("v1beta1",),
            {features.DRA, "DRAAdminAccess", "DRAResourceClaimDeviceStatus"},
        ),
        (
            "1.33.13",
            ("v1beta2", "v1beta1"),
            {features.DRA, "DRAAdminAccess", "DRAPrioritizedList"},
        ),
        ("1.34.4", ("v1",), set()),
        ("1.37.1", ("v1",), set()),
    ],
)
def test_a_release_is_told_what_it_needs_for_claims(
    version: str, served: tuple[str, ...], switched_on: set[str]
) -> None:
    assert features.api_versions(version) == served
    assert set(features.feature_gates(version)) == switched_on
    asked = {f"resource.k8s.io/{name}" for name in served if name != "v1"}
    assert set(features.runtime_config(version)) == asked


def test_gates_go_to_every_component_and_served_versions_to_the_api_server() -> None:
    gates, served = features.feature_gates("1.32.5"), features.runtime_config("1.32.5")
    lines = {
        name: components.command(name, Path("/root"), gates, served)
        for name in (*components.CONTROL_PLANE, *components.NODE)
    }

    gated = {name for name, line in lines.items() if any("DynamicResource" in a for a in line)}
    assert gated == {name for name in lines if name.startswith("kube")}
    assert "--runtime-config=resource.k8s.io/v1beta1=true" in lines["kube-apiserver"]
    assert sum("--runtime-config" in word for line in lines.values() for word in line) == 1


@pytest.mark.parametrize(
    ("version", "on", "served"),
    [
        ("1.30.14", None, ()),
        ("1.31.13", None, ()),
        ("1.31.13", True, ("v1alpha3",)),
        ("1.33.13", False, ()),
        ("1.33.13", True, ("v1beta2", "v1beta1")),
        ("1.34.4", None, ("v1",)),
    ],
)
def test_up_to_133_the_gate_decides_what_is_served(
    version: str, on: bool | None, served: tuple[str, ...]
) -> None:
    gates = {} if on is None else {features.DRA: on}

    assert features.api_versions(version, gates) == served
    asked = {f"resource.k8s.io/{name}": True for name in served if name != "v1"}
    assert features.runtime_config(version, gates) == asked


def test_a_release_that_nobody_tried_is_refused() -> None:
    with pytest.raises(ValueError, match=r"older than 1\.30"):
        features.api_versions("1.29.14")


def test_every_need_of_a_test_is_in_the_table() -> None:
    texts = [file.read_text() for file in sorted((ROOT / "tests" / "e2e").glob("*.py"))]
    named = {name for text in texts for name in re.findall(r'mark\.needs\("([^"]+)"', text)}

    assert named
    assert {name for name in named if features.feature(name).gate != name} == set()
    with pytest.raises(ValueError, match="no feature of the table"):
        features.missing(("Nonsense",), "1.37.1")


def test_a_binary_depends_on_the_release_and_on_nothing_in_the_recipes_file() -> None:
    recipes = {version: build.kubernetes_recipe(version) for version in matrix.RELEASES}

    assert len(set(recipes.values())) == len(matrix.RELEASES)
    for version, recipe in recipes.items():
        assert f"require k8s.io/kubernetes v{version}".encode() in recipe
        assert f"k8s.io/staging v0.{version.partition('.')[2]}".encode() in recipe
        assert f"gitVersion=v{version}".encode() in recipe


def test_the_page_says_what_the_records_say() -> None:
    records = [Run(**entry) for entry in json.loads(matrix.KNOWN.read_text())]

    assert matrix.PAGE.read_text() == page(records)


def test_the_page_names_failures_and_what_was_left_out() -> None:
    wrong = {"tests/e2e/test_a.py::test_one": "passed", "tests/e2e/test_a.py::test_two": "failed"}
    absent = {"tests/e2e/test_a.py::test_three": ["DRAPrioritizedList"]}
    newest = a_run(kubernetes="1.37.1", api="v1")
    text = page([a_run(outcomes=wrong, left_out=absent), newest])

    assert "| `tests/e2e/test_a.py` | **1 of 2**, 1 left out | 1 |" in text
    assert "- 1.32.5: `test_two`" in text
    assert "- 1.32.5: `test_three` needs DRAPrioritizedList" in text
    assert "| admin access (`DRAAdminAccess`) | switched on | yes |" in text
    assert "No test failed" not in text
    clean = page([newest])
    assert "No test failed" in clean
    assert "Nothing." in clean


def test_a_file_that_a_release_did_not_run_is_no_success() -> None:
    other = a_run(kubernetes="1.37.1", outcomes={"tests/e2e/test_b.py::test_x": "passed"})

    assert "| `tests/e2e/test_b.py` | not run | 1 |" in page([a_run(), other])
