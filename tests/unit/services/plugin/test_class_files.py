# SPDX-License-Identifier: Apache-2.0
"""DeviceClasses in files: which are read, and what is said about each other one."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from dra_driver.model.api.resource_claim import CELDeviceSelector, DeviceSelector
from dra_driver.model.yaml_documents import Document, documents
from dra_driver.node.mounted_folder import FolderContent
from dra_driver.services.plugin import class_files
from dra_driver.services.plugin.class_files import (
    MOST_CLASSES,
    MOST_DOCUMENTS,
    MOST_TOLD,
    ClassesFound,
    classes_in,
)

ROOT = Path(__file__).resolve().parents[4]
FINE = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: "true"}}]}
"""


def found(text: str, name: str = "classes.yaml") -> ClassesFound:
    return classes_in(FolderContent({name: text.encode()}))


def names(classes: ClassesFound) -> list[tuple[str, str]]:
    return [(one.device_class.metadata.name, one.where) for one in classes.sources]


def problem(text: str) -> str:
    (said,) = found(text).problems
    return said


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha3"])
def test_every_version_is_one_shape(version: str) -> None:
    (source,) = found(
        f"""
apiVersion: resource.k8s.io/{version}
kind: DeviceClass
metadata:
  name: gpu
  labels: {{a: b}}
  managedFields: [{{manager: kubectl}}]
spec:
  selectors: [{{cel: {{expression: device.driver == "a.b"}}}}]
  config: [{{opaque: {{driver: a.b, parameters: {{kind: X}}}}}}]
  extendedResourceName: a.b/gpu
"""
    ).sources
    spec = source.device_class.spec
    assert spec.selectors == [
        DeviceSelector(cel=CELDeviceSelector(expression='device.driver == "a.b"'))
    ]
    assert spec.config is not None
    assert spec.config[0].opaque is not None
    assert spec.config[0].opaque.parameters == {"kind": "X"}
    assert (source.where, spec.extended_resource_name) == ("classes.yaml document 1", "a.b/gpu")


def test_documents_and_lists_have_places(tmp_path: Path) -> None:
    listed = """
---
kind: List
apiVersion: v1
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: x}}
- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: second}}
"""
    classes = found(f"# a comment\n---\n{FINE}{listed}")
    assert names(classes) == [
        ("gpu", "classes.yaml document 1"),
        ("second", "classes.yaml document 2 item 2"),
    ]
    assert classes.passed_over == ("classes.yaml document 2 item 1 (ConfigMap of v1)",)
    assert (classes.problems, classes.meant) == ((), True)


def test_the_classes_of_this_repository_are_read() -> None:
    files = sorted((ROOT / "deviceclasses").glob("*.yaml"))
    classes = classes_in(FolderContent({path.name: path.read_bytes() for path in files}))
    assert [name for name, _ in names(classes)] == [path.stem for path in files]
    assert (classes.problems, classes.passed_over) == ((), ())


@pytest.mark.parametrize("kind", ["DeviceClas", "deviceclass", "DeviceClassList", ""])
def test_a_class_of_a_mistyped_kind_is_a_mistake_and_no_absent_class(kind: str) -> None:
    classes = found(f"{FINE}---\napiVersion: resource.k8s.io/v1\nkind: {kind or 'null'}\n")
    assert names(classes) == [("gpu", "classes.yaml document 1")]
    said = f"'{kind}'" if kind else "None"
    (problem,) = classes.problems
    assert problem == (
        f"classes.yaml document 2: resource.k8s.io/v1 has no kind {said}: write `kind: DeviceClass`"
    )
    assert found(f"apiVersion: resource.k8s.io/v1\nkind: {kind or 'null'}\n").meant


@pytest.mark.parametrize("kind", ["ResourceClaimTemplate", "DeviceTaintRule"])
def test_another_kind_of_the_group_is_passed_over(kind: str) -> None:
    classes = found(f"apiVersion: resource.k8s.io/v1\nkind: {kind}\n")
    assert classes == ClassesFound(
        passed_over=(f"classes.yaml document 1 ({kind} of resource.k8s.io/v1)",)
    )


def test_other_objects_and_other_files_are_passed_over_and_named() -> None:
    other = "apiVersion: example.com/v1\nkind: DeviceClass\nmetadata: {name: x}\n"
    classes = found(other)
    assert classes == ClassesFound(
        passed_over=("classes.yaml document 1 (DeviceClass of example.com/v1)",)
    )
    assert found(FINE, "readme.txt").passed_over == (
        "readme.txt (its name ends in none of .yaml, .yml, .json)",
    )
    assert names(found(FINE, "a.json")) == [("gpu", "a.json document 1")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            FINE.replace("selectors", "selector"),
            "spec.selector: unknown field; known are selectors, config, extendedResourceName",
        ),
        (
            FINE.replace("spec:", "spce:"),
            "spce: unknown field; known are apiVersion, kind, metadata, spec",
        ),
        (
            FINE.replace("/v1", "/v2"),
            "apiVersion: 'resource.k8s.io/v2' must be one of resource.k8s.io/v1, resource.k8s.io/v1beta2, resource.k8s.io/v1beta1, resource.k8s.io/v1alpha3",
        ),
        (
            FINE.replace("apiVersion: resource.k8s.io/v1", ""),
            "apiVersion: missing; must be one of resource.k8s.io/v1, resource.k8s.io/v1beta2, resource.k8s.io/v1beta1, resource.k8s.io/v1alpha3",
        ),
        (FINE.replace("name: gpu", ""), "metadata.name: missing; must be a lower-case DNS name"),
        (FINE.replace("gpu", "GPU"), "metadata.name: 'GPU' must be a lower-case DNS name"),
        (FINE.replace("{name: gpu}", "5"), "metadata.name: missing; must be a lower-case DNS name"),
        (FINE.replace('"true"', "5"), "spec.selectors[0].cel.expression: 5 must be a text"),
        (
            FINE.replace('cel: {expression: "true"}', ""),
            "spec.selectors[0].cel.expression: missing; it must be a CEL expression about `device`",
        ),
        (
            FINE.replace("[{cel", "{a: [{cel").replace("}}]}", "}}]}}"),
            "spec.selectors: {'a': [{'cel': {'expression': 'true'}}]} must be a list",
        ),
        (
            FINE.replace("spec: {", "spec: {extendedResourceName: gpu, "),
            "spec.extendedResourceName: 'gpu' must be the name of an extended resource, such as nvidia.com/gpu",
        ),
        (
            FINE.replace("spec: {", "spec: {config: [{opaque: {driver: a.b}}], "),
            "spec.config[0].opaque.parameters: missing; it must be an object",
        ),
        (
            FINE.replace("spec: {", "spec: {config: [{}], "),
            "spec.config[0].opaque.driver: missing; it must be the name of a driver; spec.config[0].opaque.parameters: missing; it must be an object",
        ),
        (
            FINE.replace("metadata: {", "metadata: {labels: 5, "),
            "Expected `object | null`, got `int` - at `$.metadata.labels`",
        ),
    ],
)
def test_a_wrong_class_is_refused_with_its_place_and_its_field(text: str, said: str) -> None:
    assert problem(text) == f"classes.yaml document 1: {said}; correct it"
    assert found(text).meant


def test_all_mistakes_of_a_class_are_told_and_the_others_are_read() -> None:
    bad = FINE.replace("name: gpu", "name: '?'").replace("expression", "express")
    classes = found(f"{bad}---\n{FINE}")
    assert names(classes) == [("gpu", "classes.yaml document 2")]
    assert classes.problems == (
        "classes.yaml document 1: metadata.name: '?' must be a lower-case DNS name; spec.selectors[0].cel.express: unknown field; known are expression; correct it",
    )


def test_bad_yaml_costs_its_own_document_only() -> None:
    classes = found(f"{FINE}---\na: [\n---\n{FINE.replace('gpu', 'other')}---\na: 1\na: 2\n")
    assert names(classes) == [
        ("gpu", "classes.yaml document 1"),
        ("other", "classes.yaml document 3"),
    ]
    assert classes.problems == (
        "classes.yaml document 2: line 8, column 1: did not find expected node content; correct it",
        "classes.yaml document 4: line 16, column 1: the key 'a' is there twice; remove one of them; correct it",
    )


def test_a_broken_file_of_many_documents_is_parsed_once_more_and_not_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []

    def counting(stream: IO[bytes], *, unique_keys: bool) -> Iterator[Document]:
        text = stream.read()
        lengths.append(len(text))
        return documents(io.BytesIO(text), unique_keys=unique_keys)

    monkeypatch.setattr(class_files, "documents", counting)
    text = f"---\n{FINE}" + "---\na: 1\n" * 1000 + "---\nb: ]\n"
    classes = found(text)
    assert names(classes) == [("gpu", "classes.yaml document 1")]
    assert classes.problems == (
        "classes.yaml: one of its documents is no YAML, and those after the first 256 are not read; correct it",
    )
    assert len(lengths) == 1 + MOST_DOCUMENTS
    assert sum(lengths) < 2 * len(text)


def test_no_more_is_told_than_somebody_reads() -> None:
    classes = found("---\na: 1\n" * 100 + "--- 5\n" * 200 + f"---\n{FINE}")
    assert names(classes) == [("gpu", "classes.yaml document 301")]
    assert len(classes.passed_over) == len(classes.problems) == MOST_TOLD + 1
    assert classes.passed_over[-1] == "68 other objects"
    assert classes.problems[-1] == "168 more mistakes are not told; correct the others first"


def test_what_is_no_object_is_told() -> None:
    assert problem("a text") == (
        "classes.yaml document 1: 'a text' is no object: write a DeviceClass with apiVersion, kind, metadata and spec"
    )
    assert found("") == ClassesFound()


def test_the_first_of_two_classes_of_a_name_counts() -> None:
    classes = classes_in(FolderContent({"a.yaml": FINE.encode(), "b.yaml": FINE.encode()}))
    assert names(classes) == [("gpu", "a.yaml document 1")]
    assert classes.problems == (
        "b.yaml document 1: DeviceClass gpu is in a.yaml document 1 already: remove one of them, or give it another name",
    )


def test_there_are_not_more_classes_than_a_node_can_have() -> None:
    text = "---\n".join(FINE.replace("gpu", f"gpu-{n}") for n in range(MOST_CLASSES + 2))
    classes = found(text)
    assert len(classes.sources) == MOST_CLASSES
    assert classes.problems == (
        "there are more than 256 classes, and those from classes.yaml document 257 on do not count: remove some",
    )


def test_problems_of_the_folder_are_told_with_the_others() -> None:
    assert classes_in(FolderContent(problems=("a",), listed=False)).problems == ("a",)
