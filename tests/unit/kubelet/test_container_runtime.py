# SPDX-License-Identifier: Apache-2.0
"""What a container runtime says over CRI, asked of a real gRPC server on a unix socket."""

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from dra_driver.kubelet import container_runtime
from dra_driver.kubelet.container_runtime import runtime_at
from dra_driver.kubelet.pb import cri_v1_pb2 as pb
from dra_driver.kubelet.sockets import service, unary
from dra_driver.model.host import RuntimeAnswer
from dra_driver.model.state import Unknown


@contextmanager
def runtime(info: dict[str, str], name: str = "containerd") -> Iterator[Path]:
    def version(_request: pb.VersionRequest, _context: grpc.ServicerContext) -> pb.VersionResponse:
        return pb.VersionResponse(runtime_name=name, runtime_version="2.1.4")

    def status(request: pb.StatusRequest, _context: grpc.ServicerContext) -> pb.StatusResponse:
        return pb.StatusResponse(info=info if request.verbose else {})

    server = grpc.server(ThreadPoolExecutor(2))
    calls = {
        "Version": unary(version, pb.VersionRequest),
        "Status": unary(status, pb.StatusRequest),
    }
    server.add_generic_rpc_handlers((service("runtime.v1.RuntimeService", calls),))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        socket = Path(folder, "run.sock")
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield socket
        finally:
            server.stop(None).wait()


def test_a_runtime_tells_its_name_its_version_and_its_configuration() -> None:
    config = {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi"]}
    with runtime({"config": json.dumps(config)}) as socket:
        assert runtime_at(socket) == RuntimeAnswer("containerd", "2.1.4", config)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_configuration_that_cannot_be_read_is_none(text: str) -> None:
    with runtime({"config": text}, "cri-o") as socket:
        assert runtime_at(socket) == RuntimeAnswer("cri-o", "2.1.4", {})


def test_a_runtime_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_runtime, "DEADLINE_SECONDS", 1.0)
    said = runtime_at(tmp_path / "none.sock")
    assert isinstance(said, Unknown)
    assert str(tmp_path / "none.sock") in said.reason
