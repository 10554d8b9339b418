# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of the device plugin API: the Registration service, and a client for each registered plugin.

Source: k8s.io/kubernetes 1.30 to 1.37, pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go, handler.go and client.go, with what they do
when connections end in an unlucky order.
"""

import re
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Protocol

import grpc

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.sockets import SocketServer, service, text_of, unary
from dra_driver.testing.kubelet_calls import OPTIONS

SOCKET_NAME = "kubelet.sock"
DIAL_SECONDS = 10.0
PRE_START_SECONDS = 30.0
_NAME = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?)/([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
)


class Manager(Protocol):
    """What the clients tell the device manager (ClientHandler in api.go)."""

    def connected(self, client: "Client", options: pb.DevicePluginOptions) -> str:
        """Return why the plugin is refused; empty if it is not."""

    def disconnected(self, client: "Client") -> None: ...

    def received(self, resource: str, devices: list[Any]) -> None: ...


class Client:
    """The connection to one socket of a plugin."""

    def __init__(self, resource: str, path: Path) -> None:
        self.resource = resource
        self.path = path
        self.abandoned = False  # the kubelet's process has ended
        self._is_connected = False
        self._channel = grpc.insecure_channel(f"unix:{path}", options=OPTIONS)

    def dial(self) -> pb.DevicePluginOptions:
        """Connect, and ask for the options. Raises grpc.RpcError or grpc.FutureTimeoutError."""
        grpc.channel_ready_future(self._channel).result(timeout=DIAL_SECONDS)
        self._is_connected = True
        options: pb.DevicePluginOptions = self.call(
            "GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions
        )
        return options

    def give_up(self) -> None:
        """Forget a connection that was not made."""
        self._channel.close()

    def call(self, method: str, request: Any, answer: Any, seconds: float | None = None) -> Any:
        """Call a method. As in the kubelet most calls have no deadline."""
        send = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return send(request, timeout=seconds)

    def watch(self, receive: Callable[[list[Any]], None]) -> None:
        """Receive lists until the stream ends (client.go, Run)."""
        send = self._channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )
        try:
            for response in send(pb.Empty()):
                if self.abandoned:
                    return
                receive(list(response.devices))
        except (
            grpc.RpcError,
            ValueError,
        ):  # ValueError: the channel was closed before the call began
            return

    def close(self) -> None:
        """Close the connection. One that is being made is made all the same (client.go, Disconnect)."""
        if self._is_connected:
            self._channel.close()


class Registration:
    """Serves kubelet.sock in `folder` from `start` to `stop`. `keeps_clients`: a resource may have several clients (1.37)."""

    def __init__(self, folder: Path, manager: Manager, *, keeps_clients: bool) -> None:
        self.refuses = ""
        self._folder = folder
        self._manager = manager
        self._keeps_clients = keeps_clients
        self._mutex = Lock()
        self._clients: dict[str, list[Client]] = {}
        self._threads: list[tuple[Client, Thread]] = []
        handler = service(
            "v1beta1.Registration", {"Register": unary(self.register, pb.RegisterRequest)}
        )
        self._server = SocketServer(
            folder / SOCKET_NAME, [handler], workers=4, name="device-registration"
        )

    def start(self) -> None:
        """Delete every socket in the folder, and serve (server.go, Start; manager.go, CleanupPluginDirectory)."""
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if path.is_socket():
                path.unlink()
        self._server.start()

    def stop(self) -> None:
        """End all connections."""
        with self._mutex:
            threads, self._threads = self._threads, []
            self._clients.clear()
        self._server.stop(0)
        for client, _ in threads:
            client.abandoned = True
            client.close()
        for _, thread in threads:
            thread.join()

    def register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        """Answer a Register call, after the plugin's socket was dialled."""
        name = _NAME.fullmatch(request.resource_name)
        if request.version != "v1beta1":
            error = (
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is ["v1beta1"]'
            )
        elif name is None or name[1] == "kubernetes.io" or name[1].endswith(".kubernetes.io"):
            error = f'the ResourceName "{request.resource_name}" is invalid'
        else:
            path = self._folder / request.endpoint
            error = self.refuses or self._connect(Client(request.resource_name, path))
        if error:
            context.abort(grpc.StatusCode.UNKNOWN, error)
        return pb.Empty()

    def _connect(self, client: Client) -> str:
        """Return why the plugin is not connected (handler.go, connectClient)."""
        with self._mutex:
            others = self._clients.get(client.resource, []) if self._keeps_clients else []
            self._clients[client.resource] = [*others, client]
        try:
            error = self._manager.connected(client, client.dial())
        except (grpc.RpcError, grpc.FutureTimeoutError) as failure:
            error = (
                f"failed to dial device plugin: {text_of(failure) or 'context deadline exceeded'}"
            )
        except ValueError:  # the channel was closed by the end of another stream
            error = "failed to get device plugin options: the client connection is closing"
        if error:
            self._forget(client)
            client.give_up()
            return error
        thread = Thread(target=self._run, args=(client,), daemon=True)
        with self._mutex:
            self._threads.append((client, thread))
        thread.start()
        return ""

    def _run(self, client: Client) -> None:
        """Receive lists until the stream ends; then disconnect the client that is registered by then (handler.go, runClient)."""
        client.watch(lambda devices: self._manager.received(client.resource, devices))
        with self._mutex:
            found = next(
                (
                    known
                    for known in self._clients.get(client.resource, ())
                    if self._is(known, client)
                ),
                None,
            )
        if found is not None and not client.abandoned:
            self._forget(found)
            found.close()
            self._manager.disconnected(found)

    def _forget(self, client: Client) -> None:
        """Forget the client and each other one with its path (handler.go, deregisterClient)."""
        with self._mutex:
            known = self._clients.get(client.resource, [])
            self._clients[client.resource] = [one for one in known if not self._is(one, client)]

    def _is(self, one: Client, other: Client) -> bool:
        # Before 1.37 the kubelet knows one client for each resource, whatever its path.
        return not self._keeps_clients or one.path == other.path
