# SPDX-License-Identifier: Apache-2.0
"""Whether protos/ says the same on the wire as the files of the Kubernetes release that it was written after."""

import json
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc

pytestmark = pytest.mark.real

KUBELET, CRI = "k8s.io/kubelet@v0.37.1", "k8s.io/cri-api@v0.37.1"
PROTOS = Path(__file__).parents[2] / "protos"
APIS = (
    "dra/v1",
    "dra/v1beta1",
    "dra-health/v1",
    "dra-health/v1alpha1",
    "pluginregistration/v1",
    "podresources/v1",
)


@pytest.fixture(scope="module")
def upstream() -> Path:
    """Where Go keeps the release's files."""
    return downloaded(KUBELET) / "pkg/apis"


def downloaded(module: str) -> Path:
    answer = subprocess.run(
        ["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True
    )
    return Path(json.loads(answer.stdout)["Dir"])


@pytest.mark.parametrize("api", APIS)
def test_our_text_describes_the_same_messages_and_services(upstream: Path, api: str) -> None:
    theirs = described((upstream / api / "api.proto").read_text())
    assert theirs["messages"]
    assert described((PROTOS / api / "api.proto").read_text()) == theirs


def test_what_is_asked_of_a_container_runtime_is_part_of_its_api() -> None:
    """Ours has two calls of many, and of their answers the fields that are read."""
    theirs = described((downloaded(CRI) / "pkg/apis/runtime/v1/api.proto").read_text())
    text = (PROTOS / "cri/v1/api.proto").read_text()
    ours = described(text)
    assert ours["services"]
    assert beyond(ours, theirs) == []
    for old, new in (
        ("map<string, string> info = 2", "map<string, string> info = 3"),
        ("string runtime_version = 3", "bytes runtime_version = 3"),
        ("bool verbose = 1", "bool loud = 1"),
        ("rpc Status(", "rpc State("),
        ("package runtime.v1;", "package runtime.v1alpha2;"),
    ):
        assert text.count(old) == 1, old
        assert beyond(described(text.replace(old, new)), theirs) != [], old


def beyond(ours: object, theirs: object, where: str = "") -> list[str]:
    """The places in which ours has something that theirs has not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            place
            for name, part in ours.items()
            for place in beyond(part, theirs.get(name), f"{where}/{name}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        return [f"{where}: {one}" for one in ours if one not in theirs]
    return [] if ours == theirs else [where]


def test_a_difference_would_be_seen() -> None:
    text = (PROTOS / "dra/v1/api.proto").read_text()
    whole = described(text)
    for old, new in (
        ("string pool_name = 2", "string pool_name = 6"),
        ("optional string share_id", "string share_id"),
        ("repeated string request_names", "string request_names"),
        ("string uid = 2", "bytes uid = 2"),
        ("map<string, NodeUnprepareResourceResponse>", "map<int32, NodeUnprepareResourceResponse>"),
        ("package k8s.io.kubelet.pkg.apis.dra.v1;", "package v1;"),
        ("returns (NodePrepareResourcesResponse)", "returns (stream NodePrepareResourcesResponse)"),
        ("rpc NodeUnprepareResources(", "rpc NodeUnprepare("),
    ):
        assert text.count(old) == 1, old
        assert described(text.replace(old, new)) != whole, old


def described(text: str) -> dict[str, object]:
    """Everything that decides what is on the wire, and how calls are named."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "api.proto"), Path(folder, "set")
        source.write_text(text)
        include = f"-I{files('grpc_tools') / '_proto'}"
        arguments = [
            "protoc",
            f"-I{folder}",
            include,
            f"--descriptor_set_out={target}",
            str(source),
        ]
        assert protoc.main(arguments) == 0
        (file,) = FileDescriptorSet.FromString(target.read_bytes()).file
    return {
        "syntax": file.syntax,
        "package": file.package,
        "messages": {message.name: of_message(message) for message in file.message_type},
        "enums": {enum.name: of_enum(enum) for enum in file.enum_type},
        "services": of_services(file),
    }


def of_message(message: DescriptorProto) -> dict[str, object]:
    return {
        "fields": sorted(of_field(field, message) for field in message.field),
        "map entry": message.options.map_entry,
        "nested": {nested.name: of_message(nested) for nested in message.nested_type},
        "enums": {enum.name: of_enum(enum) for enum in message.enum_type},
    }


def of_field(field: FieldDescriptorProto, message: DescriptorProto) -> tuple[object, ...]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    packed = field.options.packed if field.options.HasField("packed") else None
    return (
        *(field.number, field.name, field.json_name, field.type, field.type_name, field.label),
        *(field.proto3_optional, oneof, str(packed)),
    )


def of_enum(enum: EnumDescriptorProto) -> list[tuple[int, str]]:
    return sorted((value.number, value.name) for value in enum.value)


def of_services(file: FileDescriptorProto) -> dict[str, object]:
    return {
        service.name: sorted(
            (
                *(method.name, method.input_type, method.output_type),
                *(method.client_streaming, method.server_streaming),
            )
            for method in service.method
        )
        for service in file.service
    }
