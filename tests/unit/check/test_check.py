# SPDX-License-Identifier: Apache-2.0
"""The whole answer: objects of lists, the order of findings, what is kept of a file, the document and SARIF."""

import msgspec
import pytest

from dra_driver import __version__
from dra_driver.check.check import check
from dra_driver.check.given import Given, Known, replaced, steps
from dra_driver.check.outcome import SARIF_SCHEMA, report_of, sarif
from dra_driver.check.rules import RULES
from dra_driver.check.unknown_kinds import is_object, matters
from dra_driver.model.api.core import Node
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.cluster import ClusterState
from tests.unit.check.findings import brief, claim, found, given, pod, selector

POD = 'apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeSelector: {gpu-count: "8"}, containers: [{name: c}]}\n'


def test_objects_of_a_list_are_told_at_their_places() -> None:
    item = "".join(f"      {line}\n" for line in POD.splitlines())
    text = f"apiVersion: v1\nkind: List\nitems:\n  - kind: List\n    apiVersion: v1\n    items:\n    -\n{item}  - 3\n"
    assert brief(text) == [
        "11 node-choice: the node is chosen by a label of its devices: gpu-count: 8",
        "12 api-kind: the API server would refuse it: it has no kind",
    ]


def test_files_stay_in_their_order_and_a_finding_is_told_once() -> None:
    objects = [*given(POD, "b.yaml"), *given(POD, "a.yaml")]
    told = check([*objects, *objects], Known())
    assert [(one.file, one.line, one.rule) for one in told] == [
        ("b.yaml", 4, "node-choice"),
        ("a.yaml", 4, "node-choice"),
    ]


def test_without_places_a_finding_has_no_line() -> None:
    content = msgspec.yaml.decode(POD.encode())
    (one,) = check([Given(content)], Known())
    assert (one.file, one.line, one.column, one.path) == ("-", 0, 0, "spec.nodeSelector.gpu-count")
    expression = msgspec.yaml.decode(selector("1 == 1 && x").encode())
    (one,) = check([Given(expression)], Known())
    assert (one.rule, one.line) == ("cel-compile", 0)
    older = msgspec.yaml.decode(selector('device.attributes["memory"] > 3').encode())
    older["apiVersion"] = "resource.k8s.io/v1beta2"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"nvidia.com/gpu": 1}},
    }
    told = check([Given(older), Given(quota)], Known())
    assert [(one.rule, one.edits) for one in told] == [
        ("old-memory", ()),
        ("old-version", ()),
        ("quota-key", ()),
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec.a[0].b", ("spec", "a", 0, "b")),
        ("spec.c[main].limits[x.y/z]", ("spec", "c", 1, "limits", "x.y/z")),
        ("spec.c[other]", ("spec", "c", "other")),
    ],
)
def test_a_path_is_read(text: str, path: tuple[object, ...]) -> None:
    assert steps(text, {"spec": {"c": [3, {"name": "main", "limits": {}}]}}) == path


def test_a_value_in_a_list_is_replaced() -> None:
    before = {"a": [{"b": 1}, {"b": 2}], "c": 3}
    assert replaced(before, ("a", 1, "b"), 5) == {"a": [{"b": 1}, {"b": 5}], "c": 3}


def test_entries_that_are_no_mappings_are_told_by_the_api_only() -> None:
    assert brief(pod("env: [3]\nresources: {claims: [x]}", "resourceClaims: [y]"))[0].startswith(
        "5 api-malformed: "
    )
    assert brief("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: 3}\n")


def test_labels_of_nodes_in_the_cluster_are_compared() -> None:
    label = "nvidia.com/device-plugin.config"
    nodes = tuple(
        Node(metadata=ObjectMeta(name=name, labels=labels))
        for name, labels in (("n1", {label: "fast"}), ("n2", {label: "any"}), ("n3", None))
    )
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  any: 'version: v1\n\n    sharing: {}'\n"
    known = Known(state=ClusterState(nodes=nodes))
    assert brief(text, known) == [
        "4 plugin-config-label: the label nvidia.com/device-plugin.config=fast of node n1 names no configuration"
    ]


def test_a_request_whose_fields_come_from_a_merge_is_left() -> None:
    text = (
        "x: &x {name: n, deviceClassName: gpu}\napiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\n"
        "spec:\n  devices:\n    requests:\n      - name: gpu\n        <<: *x\n"
    )
    (one,) = [one for one in found(text) if one.rule == "old-version"]
    assert (one.edits, bool(one.unfixed)) == ((), True)


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, True),
        ({"apiVersion": "v1", "kind": "List"}, True),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, True),
        ({"apiVersion": "v1", "kind": "Service"}, False),
        ({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}, False),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, True),
        ({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}, True),
        ({"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass"}, True),
        ({"version": "v1", "mig-configs": {}}, True),
        ({"apiVersion": "v1", "kind": "Podd"}, True),
        ({"apiVersion": "v1", "spec": {}}, True),
        ({"apiVersion": "v2", "name": "chart"}, False),
        ({"replicas": 1}, False),
        ("text", False),
    ],
)
def test_only_what_is_looked_into_is_kept(content: object, kept: bool) -> None:
    assert matters(content) is kept
    assert is_object(content) or not kept or "version" in content


def test_slices_are_not_checked_and_it_is_said() -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\n"
    assert brief(text) == ["2 not-checked: ResourceSlice of resource.k8s.io: it is not checked"]


def test_the_document_counts_and_sarif_has_the_places() -> None:
    told = found(claim("deviceClassName: gpu.nvida.com\nselector: []"))
    report = report_of(told, 1, fixed=told[:1])
    assert (report.errors, report.warnings, report.notes) == (1, 1, 0)
    assert report.fixed == report.findings[:1]
    assert [(one.rule, one.fixable) for one in report.findings] == [
        ("ref-class", False),
        ("api-field", False),
    ]
    log = sarif(report)
    assert (log["version"], log["$schema"]) == ("2.1.0", SARIF_SCHEMA)
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("dra-driver", __version__)
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)
    first, second = run["results"]
    assert first == {
        "ruleId": "ref-class",
        "ruleIndex": list(RULES).index("ref-class"),
        "level": "warning",
        "message": {
            "text": "DeviceClass gpu.nvida.com is not in the files, and no known class has this name; did you mean gpu.nvidia.com?"
        },
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "a.yaml"},
                    "region": {"startLine": 9, "startColumn": 28},
                },
                "logicalLocations": [
                    {
                        "fullyQualifiedName": "ResourceClaim c: spec.devices.requests[0].exactly.deviceClassName"
                    }
                ],
            }
        ],
    }
    assert second["level"] == "error"


def test_sarif_leaves_out_what_is_not_known() -> None:
    nowhere = msgspec.structs.replace(
        report_of(found(claim("deviceClassName: gpu.nvida.com")), 1).findings[0],
        line=0,
        path="",
        action="",
    )
    only_line = msgspec.structs.replace(nowhere, line=3, column=0)
    log = sarif(msgspec.structs.replace(report_of([], 1), findings=(nowhere, only_line)))
    first, second = log["runs"][0]["results"]
    assert first["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "a.yaml"}}}]
    assert first["message"]["text"].endswith("no known class has this name")
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}
