# SPDX-License-Identifier: Apache-2.0
"""One extended resource at the kubelet: its socket, its registration, and when it must be registered again.

The plugin registers again when the kubelet is a new one, when the kubelet has left the ListAndWatch stream, and when somebody has
removed the socket. Each registration has a socket with a new name, and the old socket ends before. Both are needed
(k8s.io/kubernetes, pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go):

* Kubelets before 1.37 know one client for each resource. When the stream of an old client ends, `runClient` disconnects the client that
  registered last. So the old stream must end first. If the new registration is faster, the kubelet leaves the new stream, and the
  plugin registers once more.
* A kubelet 1.37 refuses a path that is still connected. Worse, it then forgets both clients of that path but not the path, and refuses
  the path until it restarts.
"""

import math
from collections.abc import Callable
from threading import Event

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import Fatal
from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.plugin.kubelet_socket import SocketIdentity
from dra_driver.kubelet.plugin.place import Place
from dra_driver.kubelet.plugin.service import THREADS, PluginService, PluginWork, UnitSource
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.model.ids import ResourceName

VERSION = "v1beta1"
NOT_YET = "the kubelet has not answered yet"
STREAM_SECONDS = 10.0
"""A kubelet opens its stream right after the registration. Without one after this time, it has forgotten the plugin."""
STEADY_SECONDS = 30.0
"""A stream that lasted so long is replaced at once; after a shorter one the plugin waits longer each time."""
_LONGEST_WAIT_SECONDS = 30.0


class Parts(Struct, frozen=True):
    """What all endpoints of a process share. `wake` is called when the kubelet has left a stream: then `look` has something to do."""

    place: Place
    work: PluginWork
    log: FilteringBoundLogger
    wake: Callable[[], None]
    clock: Callable[[], float]


class Endpoint:
    """Offers one resource to the kubelet. One thread calls the methods; any thread may read `reason`."""

    def __init__(self, resource: ResourceName, source: UnitSource, parts: Parts) -> None:
        self.source = source
        self.reason = NOT_YET
        self._resource = resource
        self._parts = parts
        self._kubelet_socket = parts.place.kubelet
        self._socket: _Socket | None = None
        self._kubelet: SocketIdentity | None = None
        self._registered_at: float | None = None
        self._failures = 0  # since the last stream that lasted
        self._due = 0.0  # when to register, if it is not registered
        self._logged = ""

    @property
    def has_list(self) -> bool:
        """Whether the kubelet knows the resource and reads its list. Any thread may ask."""
        socket = self._socket
        return not self.reason and socket is not None and socket.service.streams > 0

    def listen(self) -> None:
        """Make a socket, if there is none that listens. Raises Fatal."""
        if self._socket is None or not self._socket.server.is_there():
            self.close(0)
            self._socket = self._new_socket()

    def look(self) -> float:
        """Do what is due; returns when to look again at the latest, in seconds of the clock."""
        now = self._parts.clock()
        kubelet = self._kubelet_socket.identity()
        if kubelet != self._kubelet:
            self._kubelet, self._registered_at = kubelet, None
            self._failures, self._due = 0, now
        if kubelet is None:
            self._fails(
                f"no socket {self._kubelet_socket.path}: is the kubelet running, and is this its folder of device plugins?"
            )
            return math.inf
        lost = self._lost(now)
        if lost:
            self._lose(lost, now)
        if self._registered_at is None and now >= self._due:
            self._register()
        if self._registered_at is None:
            return self._due
        return self._registered_at + STREAM_SECONDS if self._waits_for_stream() else math.inf

    def close(self, grace_seconds: float) -> None:
        """End the streams and the socket. Running calls have `grace_seconds` to end."""
        old, self._socket = self._socket, None
        if old is not None:
            old.service.end()
            old.server.stop(grace_seconds)

    def _new_socket(self) -> "_Socket":
        """A socket with a new name that listens."""
        left = Event()

        def stream_ended() -> None:
            left.set()
            self._parts.wake()

        parts = self._parts
        service = PluginService(
            self._resource, self.source, parts.work, parts.log, stream_ended=stream_ended
        )
        path = parts.place.new_path(self._resource)
        server = SocketServer(path, [service.handler()], workers=THREADS, name="device-plugin")
        server.start()
        return _Socket(server, service, left)

    def _waits_for_stream(self) -> bool:
        return self._socket is not None and not self._socket.service.streams

    def _lost(self, now: float) -> str:
        """Why a registration does not count any more; empty if it does, or if there is none."""
        if self._registered_at is None:
            return ""
        if self._socket is None or not self._socket.server.is_there():
            return "somebody removed the socket"
        if self._socket.service.streams:
            return ""
        if self._socket.left.is_set():
            return "the kubelet has left the stream"
        late = now >= self._registered_at + STREAM_SECONDS
        return "the kubelet has opened no stream" if late else ""

    def _lose(self, lost: str, now: float) -> None:
        if self._registered_at is not None and now >= self._registered_at + STEADY_SECONDS:
            self._failures = 0
        self._registered_at = None
        self._due = now + self._wait_seconds()
        self._failures += 1
        self._fails(f"{lost}; the driver registers again")

    def _register(self) -> None:
        try:
            if self._socket is not None and self._socket.used:
                self.close(0)
            self.listen()
        except Fatal as error:
            failed = str(error)
        else:
            failed = self._call()
        now = self._parts.clock()  # a call may take long
        if failed:
            self._failures += 1
            self._due = now + self._wait_seconds()
            self._fails(failed)
            return
        self._registered_at = now
        self.reason = self._logged = ""
        self._parts.log.info("plugin_registered", resource=self._resource)

    def _call(self) -> str:
        if self._socket is None:
            return NOT_YET
        # A call that found no kubelet leaves the path as new as it was.
        request = pb.RegisterRequest(
            version=VERSION,
            endpoint=self._socket.server.path.name,
            resource_name=self._resource,
            options=self._socket.service.options(),
        )
        failed, reached = self._kubelet_socket.register(request)
        self._socket.used = reached
        return failed

    def _wait_seconds(self) -> float:
        """0 s for the first time, then 1 s, 2 s, 4 s and so on."""
        if not self._failures:
            return 0.0
        return min(2.0 ** min(self._failures - 1, 10), _LONGEST_WAIT_SECONDS)

    def _fails(self, reason: str) -> None:
        self.reason = reason
        if reason != self._logged:
            self._logged = reason
            self._parts.log.warning("plugin_not_registered", resource=self._resource, reason=reason)


class _Socket(Struct):
    """A socket of an endpoint. `left`: a stream has ended. `used`: the kubelet may know its path."""

    server: SocketServer
    service: PluginService
    left: Event
    used: bool = False
