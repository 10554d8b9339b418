# SPDX-License-Identifier: Apache-2.0
"""What does the chart's admission policy for Nodes let pass? tests/e2e asks a real API server the same."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.profiles import PROFILES
from dra_driver.backends.registry import load_backend
from dra_driver.model.ids import NodeName
from dra_driver.model.names import DEVICES_READY_CONDITION
from dra_driver.planning.gfd_labels import GfdRules
from dra_driver.planning.labels import LabelRules, node_labels
from tests.support.policy_in_cel import Policy

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "helm" / "dra-driver" / "templates" / "node-policy.yaml").read_text()
ACCOUNT = "system:serviceaccount:dra:dra-driver"
NODE, VICTIM = "node-1", "node-2"
TAINT = "startup.example.com/gpu"
ALIASES = {"accelerator": "vendor", "example.com/memory": "memory-mib"}
Object = dict[str, Any]


def listed(variable: str) -> list[str]:
    """The texts in a line of the template that makes a list."""
    (line,) = re.findall(rf"^{{{{- \${variable} := (.*?)-}}}}$", TEMPLATE, re.MULTILINE)
    return re.findall(r'"([^"]*)"', line)


PREFIXES, GFD = listed("prefixes"), listed("gfd")


def policy(*, labels: bool = True, condition: bool = True, taint: str = TAINT) -> Policy:
    return Policy(
        TEMPLATE,
        account=ACCOUNT,
        driver="gpu.dra-driver.dev",
        **{
            "$prefixes": json.dumps(PREFIXES if labels else []),
            "$labels": json.dumps([*GFD, *ALIASES] if labels else []),
            "$condition": DEVICES_READY_CONDITION if condition else "",
            ".Values.startupTaint": taint,
        },
    )


ALL = policy()
NOT_HERE = f"{ACCOUNT} runs on node {NODE} and may change that Node only, not {VICTIM}."
NO_METADATA = f"{ACCOUNT} may change no metadata of a Node but labels."
NO_SPEC = f"{ACCOUNT} may change nothing in the spec of a Node but the startup taint."
NO_TAINT = f"{ACCOUNT} may remove the startup taint of a Node, and change no other."
NO_STATUS = f"{ACCOUNT} may change nothing in the status of a Node but the driver's condition."


def no_label(name: str) -> str:
    return f"{ACCOUNT} may change labels of the driver only, not {name}."


def a_node(name: str = NODE) -> Object:
    taints = [{"key": TAINT, "effect": "NoSchedule"}, {"key": "other", "effect": "NoSchedule"}]
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {
            "name": name,
            "resourceVersion": "1",
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"a": "b"},
        },
        "spec": {"providerID": "x://1", "podCIDRs": ["10.0.0.0/24"], "taints": taints},
        "status": {"capacity": {"cpu": "8"}, "conditions": conditions},
    }


def changed(*path: str, to: Any, of: Object | None = None) -> Object:
    """The Node with another value at a path; None removes it."""
    found = deepcopy(of or a_node())
    inner = found
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return found


def refusals(
    new: Object, old: Object | None = None, *, node: str = NODE, by: Policy = ALL
) -> list[str]:
    return by.refusals("UPDATE", new, old or a_node(), node=node)


def labelled(**labels: str) -> Object:
    return changed("metadata", "labels", to={**a_node()["metadata"]["labels"], **labels})


# What the driver does


@pytest.mark.parametrize("profile", PROFILES)
def test_every_label_that_the_driver_writes_passes_and_goes_again(profile: str) -> None:
    context = BackendContext(NodeName(NODE), {"profile": profile})
    inventory = load_backend("simulated", context).scan()
    labels = node_labels(inventory, LabelRules(ALIASES))
    for strategy in ("none", "single"):
        labels |= node_labels(inventory, LabelRules(ALIASES, GfdRules(strategy)))
    new = labelled(**labels)
    new["metadata"] |= {"managedFields": [{"manager": "x"}], "resourceVersion": "2"}
    assert refusals(new) == []
    assert refusals(a_node(), new) == []


def test_labels_of_a_node_of_mig_devices_of_one_kind_pass() -> None:
    context = BackendContext(NodeName(NODE), {"profile": "a100-mig"})
    inventory = load_backend("simulated", context).scan()
    devices = tuple(device for device in inventory.devices if "3g20gb" in device.name)
    one_kind = type(inventory)(devices)
    labels = node_labels(one_kind, LabelRules(gfd=GfdRules("single")))
    assert labels["nvidia.com/gpu.slices.gi"] == "3"
    assert refusals(labelled(**labels)) == []


def test_the_condition_passes_and_goes_again() -> None:
    ready = {"type": "Ready", "status": "True"}
    ours = {"type": "DevicesReady", "status": "True"}
    before = a_node()
    after = changed("status", "conditions", to=[ready, ours])
    other = changed("status", "conditions", to=[ready, {**ours, "status": "False"}])
    assert refusals(after, before) == refusals(other, after) == refusals(before, other) == []


def test_the_startup_taint_goes_whatever_its_effects() -> None:
    other = {"key": "other", "effect": "NoSchedule"}
    twice = [{"key": TAINT, "effect": "NoExecute"}, other, {"key": TAINT, "effect": "NoSchedule"}]
    after = changed("spec", "taints", to=[other])
    assert refusals(after) == []
    assert refusals(after, changed("spec", "taints", to=twice)) == []
    only = changed("spec", "taints", to=[{"key": TAINT, "effect": "NoSchedule"}])
    assert refusals(changed("spec", "taints", to=None), only) == []


# What somebody who took the node over could try


@pytest.mark.parametrize("new", [a_node(VICTIM), changed("metadata", "labels", to={}, of=a_node(VICTIM))])  # fmt: skip
def test_another_node_is_not_changed(new: Object) -> None:
    assert NOT_HERE in refusals(new, a_node(VICTIM))


@pytest.mark.parametrize(
    "name",
    [
        "kubernetes.io/role",
        "node-role.kubernetes.io/control-plane",
        "topology.kubernetes.io/zone",
        "node-restriction.kubernetes.io/x",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/gpu.workload.config",
        "nvidia.com/gpu.present",
        "nvidia.com/mig.config",
        "nvidia.com/device-plugin.config",
        "x.gpu.dra-driver.dev/count",
        "gpu.dra-driver.devil/count",
        "accelerator-2",
        "pool",
    ],
)
def test_labels_that_are_not_the_drivers_are_neither_set_changed_nor_removed(name: str) -> None:
    assert refusals(labelled(**{name: "x"})) == [no_label(name)]
    assert refusals(labelled(**{name: "x"}), labelled(**{name: "y"})) == [no_label(name)]
    assert refusals(a_node(), labelled(**{name: "x"})) == [no_label(name)]
    assert refusals(labelled(**{name: "x", "accelerator": "a"}), labelled(**{name: "x"})) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("annotations", {"a": "c"}),
        ("annotations", None),
        ("finalizers", ["example.com/hold"]),
        ("ownerReferences", [{"kind": "Node"}]),
        ("aFieldOfALaterRelease", "x"),
    ],
)
def test_other_metadata_stays(field: str, value: Any) -> None:
    assert refusals(changed("metadata", field, to=value)) == [NO_METADATA]


@pytest.mark.parametrize(
    ("field", "value"),
    [("unschedulable", True), ("providerID", "x://2"), ("podCIDRs", None), ("aLaterField", 1)],
)
def test_the_rest_of_the_spec_stays(field: str, value: Any) -> None:
    assert refusals(changed("spec", field, to=value)) == [NO_SPEC]


@pytest.mark.parametrize(
    "taints",
    [
        [],
        None,
        [{"key": TAINT, "effect": "NoSchedule"}],
        [{"key": "other", "effect": "NoSchedule"}, {"key": "new", "effect": "NoExecute"}],
        [{"key": "other", "effect": "NoExecute"}],
    ],
)
def test_no_other_taint_is_removed_changed_or_added(taints: list[Object] | None) -> None:
    assert refusals(changed("spec", "taints", to=taints)) == [NO_TAINT]


def test_a_startup_taint_is_not_put_back() -> None:
    old = changed("spec", "taints", to=[{"key": "other", "effect": "NoSchedule"}])
    assert refusals(a_node(), old) == [NO_TAINT]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", {"cpu": "800"}),
        ("capacity", None),
        ("addresses", [{"type": "InternalIP", "address": "10.0.0.1"}]),
        ("conditions", []),
        ("conditions", [{"type": "Ready", "status": "False"}]),
        ("conditions", [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]),
        ("aLaterField", 1),
    ],
)
def test_the_rest_of_the_status_stays(field: str, value: Any) -> None:
    assert refusals(changed("status", field, to=value)) == [NO_STATUS]


def test_what_was_not_chosen_is_not_allowed() -> None:
    count = labelled(**{"gpu.dra-driver.dev/count": "8"})
    ready = {"type": "DevicesReady", "status": "True"}
    conditions = changed("status", "conditions", to=[*a_node()["status"]["conditions"], ready])
    taints = changed("spec", "taints", to=[{"key": "other", "effect": "NoSchedule"}])
    assert refusals(count, by=policy(labels=False)) == [no_label("gpu.dra-driver.dev/count")]
    assert refusals(conditions, by=policy(condition=False)) == [NO_STATUS]
    assert refusals(taints, by=policy(taint="")) == [NO_TAINT]
    nothing = policy(labels=False, condition=False, taint="")
    assert refusals(a_node(), by=nothing) == []


def test_a_node_without_labels_spec_or_status_can_be_labelled() -> None:
    bare = {"metadata": {"name": NODE}}
    count = changed("metadata", "labels", to={"gpu.dra-driver.dev/count": "8"}, of=bare)
    assert refusals(count, bare) == []


def test_a_token_without_a_node_writes_nothing() -> None:
    (said,) = refusals(a_node(), node="")
    assert said.startswith(f"{ACCOUNT} may change Nodes only from a pod")


def test_it_meets_every_update_of_a_node_and_fails_closed() -> None:
    """Labels can be changed by the path of the status too."""
    assert ALL.spec["failurePolicy"] == "Fail"
    assert ALL.spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    (rule,) = ALL.spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["UPDATE"], ["nodes", "nodes/status"])


def test_the_policy_is_there_whenever_one_of_the_rights_is() -> None:
    rights = (ROOT / "helm" / "dra-driver" / "templates" / "rbac.yaml").read_text()
    assert '{{- if include "dra-driver.patchesNode" . }}' in rights
    assert '{{- if eq .Values.nodeCondition "write" }}' in rights
    assert '(or (include "dra-driver.patchesNode" .) $condition)' in TEMPLATE
    assert f'ternary "{DEVICES_READY_CONDITION}" "" (eq .Values.nodeCondition "write")' in TEMPLATE
