# SPDX-License-Identifier: Apache-2.0
"""Does a foreign plugin answer the kubelet under our driver name?

From 1.33 on, a kubelet allows two plugins with one name, because a rolling update needs that. It may call either of them. An
older kubelet uses only the plugin that registered last. In both cases a foreign plugin would receive our claims.

The name of a plugin is what its GetInfo method returns; the kubelet finds it in the same way.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
from msgspec import Struct

from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as pb
from dra_driver.model.ids import DriverName
from dra_driver.model.printable import printable

_GET_INFO = "/pluginregistration.Registration/GetInfo"
_ANSWER_SECONDS = 2.0
_SHOWN_CHARACTERS = 120  # a socket's path has at most 107 bytes
_CREDENTIALS = struct.Struct("3i")


class ForeignPlugin(Struct, frozen=True):
    """A plugin with our driver name that is not a process of this driver. `process` is its process ID, or 0 if unknown."""

    socket: Path
    endpoint: str
    process: int

    def __str__(self) -> str:
        who = f", process {self.process}" if self.process else ""
        # The other plugin chose these texts, and they go into an Event and the log: so they are made printable and short.
        socket_path = printable(str(self.socket), most=_SHOWN_CHARACTERS)
        endpoint = printable(self.endpoint, most=_SHOWN_CHARACTERS)
        return f"{socket_path} (endpoint {endpoint}{who})"


def foreign_plugins(
    registry: Path, driver: DriverName, *, is_ours: Callable[[Path], bool]
) -> tuple[ForeignPlugin, ...]:
    """Plugins with this name in the kubelet's registry directory whose endpoint is not ours.

    A socket that does not answer is not reported: the kubelet cannot register it either.
    """
    infos = _all_infos(list(_sockets(registry)))
    return tuple(
        ForeignPlugin(path, info.endpoint, _process_behind(path))
        for path, info in infos
        if info.name == driver and info.type == "DRAPlugin" and not is_ours(Path(info.endpoint))
    )


def _sockets(registry: Path) -> Iterator[Path]:
    """The sockets that the kubelet would find: in all subdirectories, except names that begin with a dot."""
    for path in sorted(registry.rglob("*")) if registry.is_dir() else ():
        if path.is_socket() and not any(
            part.startswith(".") for part in path.relative_to(registry).parts
        ):
            yield path


def _all_infos(paths: list[Path]) -> list[tuple[Path, pb.PluginInfo]]:
    """The GetInfo answers of all sockets. The calls run in parallel, so that several hanging plugins cost one timeout."""
    answers = []
    with ExitStack() as channels:
        calls = []
        for path in paths:
            channel = channels.enter_context(
                grpc.insecure_channel(f"unix:{path}", options=(("grpc.enable_http_proxy", 0),))
            )
            get_info = channel.unary_unary(
                _GET_INFO,
                request_serializer=pb.InfoRequest.SerializeToString,
                response_deserializer=pb.PluginInfo.FromString,
            )
            calls.append((path, get_info.future(pb.InfoRequest(), timeout=_ANSWER_SECONDS)))
        for path, call in calls:
            # `exception()` waits for the end of the call. It returns None if the call succeeded.
            if call.exception() is None:
                answers.append((path, call.result()))
    return answers


def _process_behind(path: Path) -> int:
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.setblocking(False)  # a listener that accepts nothing would let it wait for ever
            asking.connect(str(path))
            packed = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    process, _, _ = _CREDENTIALS.unpack(packed)
    return int(process)
