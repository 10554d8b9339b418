# SPDX-License-Identifier: Apache-2.0
"""A vendor's device plugin, as far as a kubelet can tell: it registers a resource and lists healthy devices until it is ended.

    python tests/e2e/device_plugin_server.py FOLDER RESOURCE DEVICE…

The messages are written by hand, field by field: the driver itself speaks another protocol.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import grpc

VERSION = "v1beta1"


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited protobuf field; short ones only."""
    content = content.encode() if isinstance(content, str) else content
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def main(folder: Path, resource: str, *devices: str) -> None:
    """Serve, register, stay."""
    socket = folder / "testbed-plugin.sock"
    socket.unlink(missing_ok=True)
    listed = b"".join(field(1, field(1, device) + field(2, "Healthy")) for device in devices)

    def options(_request: bytes, _context: Any) -> bytes:
        return b""

    def list_and_watch(_request: bytes, _context: Any) -> Iterator[bytes]:
        yield listed
        Event().wait()

    methods = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(options),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
    }
    handler = grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", methods)
    server = grpc.server(ThreadPoolExecutor(4), handlers=[handler])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    with grpc.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
        register = channel.unary_unary(f"/{VERSION}.Registration/Register")
        register(field(1, VERSION) + field(2, socket.name) + field(3, resource), timeout=30)
    print("registered", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
