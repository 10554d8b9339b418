# SPDX-License-Identifier: Apache-2.0
"""Which rights to Nodes does the chart render, and which policy, mount and variables go with them?"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rendering import container, daemonset, of_kind, render, rules_of_driver, template

Object = dict[str, Any]
TAINT = "startup.example.com/gpu"
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"


def node_rights(objects: list[Object]) -> dict[str, set[str]]:
    """The verbs for each resource of Nodes."""
    found: dict[str, set[str]] = {}
    for rule in rules_of_driver(of_kind(objects, "ClusterRole")):
        for resource in rule["resources"]:
            if resource.startswith("nodes"):
                found.setdefault(resource, set()).update(rule["verbs"])
    return found


def variables(policy: Object) -> dict[str, Any]:
    return {
        entry["name"]: json.loads(entry["expression"])
        for entry in policy["spec"]["variables"]
        if entry["name"] in ("prefixes", "allowed", "condition", "taint")
    }


def policies(objects: list[Object]) -> list[Object]:
    found = of_kind(objects, "ValidatingAdmissionPolicy")
    return [one for one in found if one["metadata"]["name"] == "dra-driver-node"]


@pytest.mark.parametrize("values", ["", "nodeLabels: none", "nodeLabelAliases: {a.b/c: count}"])
@pytest.mark.parametrize("more", ["", "\ncleanup: {enabled: true}"])
def test_by_default_nothing_of_a_node_can_be_changed(
    tmp_path: Path, values: str, more: str
) -> None:
    objects = render(tmp_path, values=values + more)
    assert node_rights(objects) == {"nodes": {"get"}}
    assert policies(objects) == []


@pytest.mark.parametrize(
    ("values", "rights", "known"),
    [
        ("nodeLabels: patch", {"nodes": {"get", "patch"}}, (True, "", "")),
        ("nodeCondition: write", {"nodes": {"get"}, "nodes/status": {"patch"}}, (False, "DevicesReady", "")),
        (f"startupTaint: {TAINT}", {"nodes": {"get", "patch"}}, (False, "", TAINT)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", ["", "\ncleanup: {enabled: true}"])
def test_each_right_comes_with_the_policy_that_limits_it(
    tmp_path: Path, values: str, more: str, rights: Object, known: tuple[bool, str, str]
) -> None:
    objects = render(tmp_path, values=values + more)
    assert node_rights(objects) == rights
    (policy,) = policies(objects)
    has_labels, condition, taint = known
    told = variables(policy)
    assert (told["condition"], told["taint"]) == (condition, taint)
    assert bool(told["prefixes"]) is bool(told["allowed"]) is has_labels
    bindings = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert [one["spec"]["policyName"] for one in bindings].count("dra-driver-node") == 1
    off = render(tmp_path, values=values + more + "\nadmissionPolicy: {enabled: false}")
    assert policies(off) == []


def test_aliases_reach_the_driver_and_the_policy(tmp_path: Path) -> None:
    values = "nodeLabels: patch\nnodeLabelAliases: {gpu-count: count, accelerator: vendor}"
    objects = render(tmp_path, values=values)
    told = {one["name"]: one.get("value") for one in container(objects)["env"]}
    assert told["DRA_DRIVER_NODE_LABEL_ALIASES"] == "accelerator=vendor,gpu-count=count"
    (policy,) = policies(objects)
    assert variables(policy)["allowed"][-2:] == ["accelerator", "gpu-count"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("nodeLabelAliases: {accelerator: vendor}", "set nodeLabels=patch"),
        ("nodeLabels: maybe", "nodeLabels"),
        ("nodeLabels: patch\nnodeLabelAliases: {accelerator: brand}", "accelerator"),
        ("nodeLabels: patch\nnodeLabelAliases: {-a: vendor}", "-a"),
        ("startupTaint: a b", "startupTaint"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, values: str, said: str) -> None:
    code, _, wrong = template(tmp_path, values=values)
    assert code != 0
    assert said in wrong


def test_the_folder_of_node_feature_discovery_is_mounted_where_it_is_needed(
    tmp_path: Path,
) -> None:
    for values, mounted in (("", True), ("nodeLabels: patch", True), ("nodeLabels: none", False)):
        spec = daemonset(render(tmp_path, values=values))["spec"]["template"]["spec"]
        mounts = [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]]
        assert (FEATURES in mounts) is mounted


def test_the_startup_taint_is_tolerated(tmp_path: Path) -> None:
    """Otherwise no driver would start on the node that waits for it."""
    spec = daemonset(render(tmp_path, values=f"startupTaint: {TAINT}"))["spec"]["template"]["spec"]
    assert {"key": TAINT, "operator": "Exists"} in spec["tolerations"]
    spec = daemonset(render(tmp_path))["spec"]["template"]["spec"]
    assert TAINT not in [one["key"] for one in spec["tolerations"]]
