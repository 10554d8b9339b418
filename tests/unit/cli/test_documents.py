# SPDX-License-Identifier: Apache-2.0
"""Documents for programs have apiVersion and kind, and are as their schemas in docs/reference/schemas say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.cli import demo
from dra_driver.cli.demo_story import DemoStep
from dra_driver.cli.main import main
from dra_driver.model.names import DOCUMENT_VERSION
from dra_driver.testing.fake_api import FakeApi
from tests.support.json_schema import misfits

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "schemas"
DEVICES = ("devices", "--node-name", "node-1", "--backend", "simulated")


def schema(kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.json").read_text())
    return loaded


def assert_is(kind: str, document: dict[str, Any]) -> None:
    assert (document["apiVersion"], document["kind"]) == (DOCUMENT_VERSION, kind)
    assert list(document)[:2] == ["apiVersion", "kind"]
    assert misfits(schema(kind), document) == []
    assert misfits(schema(kind), {**document, "kind": "Other"})
    assert misfits(schema(kind), {key: document[key] for key in document if key != "apiVersion"})


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        request = {"name": "r", "exactly": {"deviceClassName": "none"}}
        claim = {"metadata": {"name": "c", "namespace": "default"}}
        api.put("resourceclaims", {**claim, "spec": {"devices": {"requests": [request]}}})
        api.kubeconfig(tmp_path / "config")
        yield str(tmp_path / "config")


@pytest.mark.parametrize("profile", ["mixed", "example"])
def test_devices_are_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str
) -> None:
    arguments = (*DEVICES, "--simulated-profile", profile, "--state-dir", str(tmp_path))
    assert main([*arguments, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert_is("NodeDevices", document)
    assert (document["node"], document["driver"]) == ("node-1", "gpu.dra-driver.dev")

    assert main([*arguments, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [*document["devices"], *document["devicePlugins"]]


def test_an_explanation_is_a_document(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "claim/c", "--kubeconfig", kubeconfig, "-o", "json"]) == 1
    assert_is("Explanation", json.loads(capsys.readouterr().out))


def test_what_is_wrong_with_manifests_is_a_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: resource.k8s.io/v1beta2\nkind: DeviceClass\nmetadata: {name: c}\n")
    assert main(["check", str(file), "-o", "json"]) == 0
    assert_is("Check", json.loads(capsys.readouterr().out))


def test_several_explanations_are_a_document(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    subjects = ("claim/c", "claim/none")
    assert main(["explain", *subjects, "--kubeconfig", kubeconfig, "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert_is("ExplanationList", document)
    for item in document["items"]:
        assert_is("Explanation", item)


@pytest.mark.parametrize(
    ("subject", "kind"), [("pod/x", "Explanation"), ("deploy/x", "ExplanationList")]
)
def test_no_answer_is_a_document_too(
    capsys: pytest.CaptureFixture[str], subject: str, kind: str
) -> None:
    assert main(["explain", subject, "--from", "/no/such/file", "-o", "json"]) == 2
    assert_is(kind, json.loads(capsys.readouterr().out))


def test_a_diagnosis_and_its_bundle_are_documents(
    kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bundle.json"
    words = ("doctor", "--node", "n1", "--kubeconfig", kubeconfig, "-o", "json")
    assert main([*words, "--bundle", str(file)]) == 1
    assert_is("NodeDiagnosis", json.loads(capsys.readouterr().out))
    assert_is("NodeBundle", json.loads(file.read_text()))


def test_a_record_is_a_document(kubeconfig: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    assert main(["record", "--kubeconfig", kubeconfig, str(file)]) == 0
    assert_is("ClusterRecord", json.loads(file.read_text()))


def test_a_demo_is_one_document_of_all_its_steps() -> None:
    steps = [DemoStep("opening", "Begin", {"pid": 1}), DemoStep("done", "End", {})]
    document = demo.document("b580x2", steps)
    assert [step.step for step in document.steps] == ["opening", "done"]
    assert_is("Demo", json.loads(msgspec.json.encode(document)))


def test_every_schema_is_of_one_kind_and_has_a_description() -> None:
    for file in SCHEMAS.iterdir():
        found = schema(file.stem)
        top = found["$defs"][found["$ref"].rpartition("/")[2]]
        assert found["title"] == top["properties"]["kind"]["const"] == file.stem
        assert {"apiVersion", "kind"} <= set(top["required"])
        assert top["description"]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"type": "integer"}, True),
        ({"enum": ["a"]}, "b"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1),
        ({"type": "array", "items": {"type": "string"}}, [1]),
        ({"type": "object", "required": ["a"], "properties": {}}, {}),
        ({"type": "object", "properties": {}}, {"a": 1}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": 1}),
    ],
)
def test_the_check_of_a_schema_can_fail(rule: dict[str, Any], value: object) -> None:
    assert misfits(rule, value)
