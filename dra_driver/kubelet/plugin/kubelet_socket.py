# SPDX-License-Identifier: Apache-2.0
"""The kubelet's socket `kubelet.sock`, where device plugins register. A new kubelet makes it anew."""

import stat
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
from msgspec import Struct

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.sockets import text_of

SOCKET_NAME = "kubelet.sock"
METHOD = "/v1beta1.Registration/Register"
# The kubelet connects to the plugin for up to 10 s before it answers.
DEADLINE_SECONDS = 15.0
# A subchannel of another call may wait before it connects again; a new kubelet is asked at once.
_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


class SocketIdentity(Struct, frozen=True):
    """Which file a socket is. An inode number alone is used again."""

    inode: int
    made_ns: int


class KubeletSocket:
    """One thread registers; any thread may cancel."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SOCKET_NAME
        self._mutex = Lock()
        self._calls: set[Any] = set()
        self._cancelled = False

    def identity(self) -> SocketIdentity | None:
        """Which socket is there now; None without one."""
        with suppress(OSError):
            found = self.path.stat()
            if stat.S_ISSOCK(found.st_mode):
                return SocketIdentity(found.st_ino, found.st_ctime_ns)
        return None

    def register(self, request: pb.RegisterRequest) -> tuple[str, bool]:
        """Register. Returns why it failed ("" if it did not), and whether the kubelet may have seen the call."""
        with grpc.insecure_channel(f"unix:{self.path}", options=_OPTIONS) as channel:
            send = channel.unary_unary(
                METHOD,
                request_serializer=pb.RegisterRequest.SerializeToString,
                response_deserializer=pb.Empty.FromString,
            )
            call = send.future(request, timeout=DEADLINE_SECONDS)
            with self._mutex:
                self._calls.add(call)
                if self._cancelled:
                    call.cancel()
            try:
                call.result()
            except grpc.FutureCancelledError:
                return "the driver ends", True
            except grpc.RpcError as error:
                return self._why(error)
            finally:
                with self._mutex:
                    self._calls.discard(call)
        return "", True

    def cancel(self) -> None:
        """End the running call, and each one that begins later."""
        with self._mutex:
            self._cancelled = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def _why(self, error: Exception) -> tuple[str, bool]:
        code = error.code() if isinstance(error, grpc.Call) else None
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            reached = code is grpc.StatusCode.DEADLINE_EXCEEDED
            return f"the kubelet did not answer on {self.path}: {text_of(error)}", reached
        return f"the kubelet refused the registration: {text_of(error)}", True
