# SPDX-License-Identifier: Apache-2.0
"""A vendor's device plugin, as far as a kubelet can tell: it registers a resource and lists devices until it is ended.

    python tests/e2e/device_plugin_server.py FOLDER RESOURCE DEVICE…

Its socket has the name of the resource. It registers again when the kubelet has deleted that socket. The file `<socket>.json` in
/run/device-plugin (a kubelet that starts empties FOLDER) may say more; it is read again ten times a second:

    {"unhealthy": ["GPU-1"]}    these are listed as Unhealthy
    {"devices": ["GPU-1"]}      these are listed, instead of those of the command line
    {"fail": "out of order"}    Allocate fails
    {"delay": 20}               Allocate answers after so many seconds

What the kubelet asks is printed, one JSON document a line. The messages are written by hand, field by field: the driver itself
speaks another protocol.
"""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

VERSION = "v1beta1"
CONTROL = Path("/run/device-plugin")
PAUSE_SECONDS = 0.1


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited protobuf field; its number is below 16."""
    content = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    head = bytes([value & 127 | 128]) if value > 127 else bytes([value])
    return head + _varint(value >> 7) if value > 127 else head


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message that has no others."""
    while message:
        number, length, at, shift = message[0] >> 3, 0, 1, 0
        while True:
            length |= (message[at] & 127) << shift
            at, shift, last = at + 1, shift + 7, message[at] < 128
            if last:
                break
        yield number, message[at : at + length]
        message = message[at + length :]


def device(name: str, health: str) -> bytes:
    """One device of a ListAndWatchResponse."""
    return field(1, field(1, name) + field(2, health))


def say(**what: object) -> None:
    """A line for who reads the log."""
    print(json.dumps({"time": time.time(), **what}), flush=True)


class Plugin:
    """The plugin's side of the API."""

    def __init__(self, folder: Path, resource: str, devices: tuple[str, ...]) -> None:
        self.resource = resource
        self.socket = folder / f"testbed-{resource.replace('/', '-')}.sock"
        self._kubelet = folder / "kubelet.sock"
        self._control = CONTROL / f"{self.socket.name}.json"
        self._devices = devices

    def told(self) -> dict[str, Any]:
        """What the control file says."""
        try:
            return dict(json.loads(self._control.read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def listed(self) -> bytes:
        """The devices and their health."""
        told = self.told()
        ill = told.get("unhealthy", ())
        names = told.get("devices", self._devices)
        return b"".join(device(name, "Unhealthy" if name in ill else "Healthy") for name in names)

    def options(self, _request: bytes, _context: Any) -> bytes:
        """No preferred allocation, no call before a container's start."""
        return b""

    def list_and_watch(self, _request: bytes, context: Any) -> Iterator[bytes]:
        """The devices, at once and after each change."""
        sent: bytes | None = None
        while context.is_active():
            now = self.listed()
            if now != sent:
                say(call="ListAndWatch", bytes=len(now))
                yield now
                sent = now
            time.sleep(PAUSE_SECONDS)
        say(call="ListAndWatch", ended=True)

    def allocate(self, request: bytes, context: Any) -> bytes:
        """A variable with the devices, for each container."""
        asked = [[name.decode() for _, name in fields(part)] for _, part in fields(request)]
        say(call="Allocate", resource=self.resource, devices=asked)
        told = self.told()
        time.sleep(told.get("delay", 0))
        if "fail" in told:
            context.abort(grpc.StatusCode.INTERNAL, told["fail"])
        key = self.resource.upper().translate(str.maketrans("./-", "___"))
        entries = (field(1, field(1, key) + field(2, ",".join(names))) for names in asked)
        return b"".join(field(1, entry) for entry in entries)

    def serve(self) -> None:
        """Serve and register, again and again, each time until the socket is gone."""
        self.socket.unlink(missing_ok=True)
        methods = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self.options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self.list_and_watch),
            "Allocate": grpc.unary_unary_rpc_method_handler(self.allocate),
        }
        handler = grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", methods)
        server = grpc.server(ThreadPoolExecutor(8), handlers=[handler])
        server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        self._register()
        while self.socket.exists():
            time.sleep(PAUSE_SECONDS)
        server.stop(0).wait()

    def _register(self) -> None:
        request = field(1, VERSION) + field(2, self.socket.name) + field(3, self.resource)
        while self.socket.exists():
            try:
                with grpc.insecure_channel(f"unix:{self._kubelet}") as channel:
                    register = channel.unary_unary(f"/{VERSION}.Registration/Register")
                    register(request, timeout=30)
            except grpc.RpcError:
                time.sleep(PAUSE_SECONDS)  # no kubelet serves at the moment
            else:
                say(registered=self.resource)
                return

    def main(self) -> None:
        """Until the process is ended."""
        while True:
            self.serve()


if __name__ == "__main__":
    Plugin(Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])).main()
