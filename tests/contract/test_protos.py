# SPDX-License-Identifier: Apache-2.0
"""protos/ is our own text; on the wire it must be the kubelet's. Both are compiled here, and their descriptors compared."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
KUBELET_MODULE = "k8s.io/kubelet@v0.37.1"
APIS = (
    "dra/v1",
    "dra/v1beta1",
    "dra-health/v1",
    "dra-health/v1alpha1",
    "pluginregistration/v1",
    "podresources/v1",
)


def compiled(proto: Path) -> FileDescriptorProto:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "set")
        assert (
            protoc.main(["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out}", str(proto)])
            == 0
        )
        return FileDescriptorSet.FromString(out.read_bytes()).file[0]


def facts(file: FileDescriptorProto) -> set[str]:
    """Everything that decides what is on the wire, one line each; comments, order and language options do not."""
    return {
        f"syntax {file.syntax}, package {file.package}",
        *(fact for message in file.message_type for fact in message_facts("", message)),
        *(fact for enum in file.enum_type for fact in enum_facts("", enum)),
        *(
            f"rpc {service.name}.{method.name}({method.input_type}{' stream' * method.client_streaming})"
            f" returns ({method.output_type}{' stream' * method.server_streaming})"
            for service in file.service
            for method in service.method
        ),
    }


def message_facts(prefix: str, message: DescriptorProto) -> Iterator[str]:
    name = prefix + message.name
    yield f"message {name}, map entry {message.options.map_entry}"
    for field in message.field:
        kind = f"{field.type} {field.type_name} label {field.label}"
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        yield f"{name}.{field.name} = {field.number}: {kind}, json {field.json_name}, oneof {oneof} {field.proto3_optional}"
    for nested in message.nested_type:
        yield from message_facts(f"{name}.", nested)
    for enum in message.enum_type:
        yield from enum_facts(f"{name}.", enum)


def enum_facts(prefix: str, enum: EnumDescriptorProto) -> Iterator[str]:
    for value in enum.value:
        yield f"enum {prefix}{enum.name}.{value.name} = {value.number}"


@pytest.fixture(scope="module")
def upstream() -> Path:
    """The source of Kubernetes' own messages, from the Go module that publishes them."""
    command = ["go", "mod", "download", "-json", KUBELET_MODULE]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(json.loads(answer.stdout)["Dir"], "pkg", "apis")


@pytest.mark.real
@pytest.mark.parametrize("api", APIS)
def test_our_messages_are_the_kubelets(api: str, upstream: Path) -> None:
    ours = facts(compiled(ROOT / "protos" / api / "api.proto"))
    theirs = facts(compiled(upstream / api / "api.proto"))
    assert ours == theirs


def test_a_changed_number_is_a_difference() -> None:
    file = compiled(ROOT / "protos" / "dra" / "v1" / "api.proto")
    before = facts(file)
    file.message_type[0].field[0].number += 1
    assert facts(file) != before
