# SPDX-License-Identifier: Apache-2.0
"""What does the container runtime say of itself over CRI: its name, its version, and the configuration that it runs with?

The configuration is in the `info` of a verbose Status, which the API leaves to the runtime: containerd has all of its CRI plugin there
as JSON, CRI-O nothing about CDI.
"""

from pathlib import Path
from typing import Any

import grpc
import msgspec

from dra_driver.kubelet.pb import cri_v1_pb2 as pb
from dra_driver.kubelet.sockets import text_of
from dra_driver.model.host import RuntimeAnswer
from dra_driver.model.state import Unknown

SERVICE = "/runtime.v1.RuntimeService"
DEADLINE_SECONDS = 5.0
_LARGEST_ANSWER = 4 * 1024 * 1024


def runtime_at(socket: Path) -> RuntimeAnswer | Unknown:
    """Return what the runtime at this socket says; or `Unknown` with the reason."""
    options = (("grpc.max_receive_message_length", _LARGEST_ANSWER), ("grpc.enable_http_proxy", 0))
    try:
        with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
            version = _call(channel, "Version", pb.VersionRequest(), pb.VersionResponse)
            status = _call(channel, "Status", pb.StatusRequest(verbose=True), pb.StatusResponse)
    except grpc.RpcError as error:
        return Unknown(
            f"the container runtime did not answer on {socket}: {text_of(error, quoting=True)}"
        )
    return RuntimeAnswer(version.runtime_name, version.runtime_version, _config(status))


def _call(channel: grpc.Channel, method: str, request: Any, answer: type[Any]) -> Any:
    call = channel.unary_unary(
        f"{SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    return call(request, timeout=DEADLINE_SECONDS)


def _config(status: Any) -> dict[str, Any]:
    """Return the configuration; empty if the runtime does not show it."""
    try:
        return msgspec.json.decode(status.info.get("config", ""), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return {}
