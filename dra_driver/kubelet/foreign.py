# SPDX-License-Identifier: Apache-2.0
"""Does somebody else answer the kubelet under our name?

A kubelet from 1.33 on takes a second plugin of one name for the other half of a rolling update and calls either; an older
one forgets the first. So a foreign plugin would be given our claims. Names are told by GetInfo, as the kubelet does it.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as pb
from dra_driver.model.ids import DriverName
from dra_driver.model.printable import printable

_GET_INFO = "/pluginregistration.Registration/GetInfo"
_ANSWER_SECONDS = 2.0
_SHOWN_CHARACTERS = 120  # a socket's path has at most 107 bytes
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class ForeignPlugin:
    """A plugin under our name that is none of our processes; `process` is 0 where its number cannot be seen."""

    socket: Path
    endpoint: str
    process: int

    def __str__(self) -> str:
        who = f", process {self.process}" if self.process else ""
        # It goes into an Event and the log, and the stranger chose it.
        socket_path = printable(str(self.socket), most=_SHOWN_CHARACTERS)
        endpoint = printable(self.endpoint, most=_SHOWN_CHARACTERS)
        return f"{socket_path} (endpoint {endpoint}{who})"


def foreign_plugins(
    registry: Path, driver: DriverName, *, is_ours: Callable[[Path], bool]
) -> tuple[ForeignPlugin, ...]:
    """Plugins of this name in the kubelet's registry directory whose endpoint is not ours. Who does not answer is none."""
    infos = _all_infos(list(_sockets(registry)))
    return tuple(
        ForeignPlugin(path, info.endpoint, _process_behind(path))
        for path, info in infos
        if info.name == driver and info.type == "DRAPlugin" and not is_ours(Path(info.endpoint))
    )


def _sockets(registry: Path) -> Iterator[Path]:
    """As the kubelet looks for them: in all folders, but no dot names."""
    for path in sorted(registry.rglob("*")) if registry.is_dir() else ():
        if path.is_socket() and not any(
            part.startswith(".") for part in path.relative_to(registry).parts
        ):
            yield path


def _all_infos(paths: list[Path]) -> list[tuple[Path, pb.PluginInfo]]:
    """All are asked at once: a plugin that hangs costs its time once."""
    answers = []
    with ExitStack() as channels:
        calls = []
        for path in paths:
            channel = channels.enter_context(
                grpc.insecure_channel(f"unix:{path}", options=(("grpc.enable_http_proxy", 0),))
            )
            ask = channel.unary_unary(
                _GET_INFO,
                request_serializer=pb.InfoRequest.SerializeToString,
                response_deserializer=pb.PluginInfo.FromString,
            )
            calls.append((path, ask.future(pb.InfoRequest(), timeout=_ANSWER_SECONDS)))
        for path, call in calls:
            # `exception` waits, and answers None for a call that succeeded.
            if call.exception() is None:
                answers.append((path, call.result()))
    return answers


def _process_behind(path: Path) -> int:
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(path))
            packed = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    process, _, _ = _CREDENTIALS.unpack(packed)
    return int(process)
