# SPDX-License-Identifier: Apache-2.0
"""Servers on unix sockets: what is on the disk before, between and after."""

import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from dra_driver.errors import Fatal
from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.sockets import (
    PATH_LIMIT_BYTES,
    Handler,
    SocketServer,
    service,
    text_of,
    unary,
)

HANG_SECONDS = 300


def naming(name: str) -> Handler:
    return unary(lambda _request, _context: pb.PluginInfo(name=name), pb.InfoRequest)


def server(path: Path, handler: Handler) -> SocketServer:
    return SocketServer(path, [service("a.Service", {"Ask": handler})], workers=2, name="x")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ask(path: Path) -> str:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
        call = channel.unary_unary(
            "/a.Service/Ask",
            request_serializer=pb.InfoRequest.SerializeToString,
            response_deserializer=pb.PluginInfo.FromString,
        )
        answer: Any = call(pb.InfoRequest(), timeout=HANG_SECONDS)
        name: str = answer.name
        return name


def test_the_socket_is_there_from_start_to_stop_and_nothing_beside_it(root: Path) -> None:
    path = root / "plugins" / "dra.sock"
    one = server(path, naming("one"))
    assert not one.is_there()
    one.start()
    assert one.is_there()
    assert names_in(path.parent) == ["dra.sock"]
    assert ask(path) == "one"
    one.stop(0)
    assert not one.is_there()
    assert names_in(path.parent) == []


def test_only_this_user_may_connect(root: Path) -> None:
    path = root / "plugins" / "dra.sock"
    before = os.umask(0)  # the most careless one
    try:
        one = server(path, naming("one"))
        one.start()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
    one.stop(0)


def test_what_a_killed_process_left_is_replaced(root: Path) -> None:
    path = root / "dra.sock"
    for left in (path, root / server(path, naming("one"))._bound.name):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(left))
    one = server(path, naming("one"))
    one.start()
    assert ask(path) == "one"
    assert names_in(root) == ["dra.sock"]
    one.stop(0)


def test_a_successor_keeps_its_socket_when_its_predecessor_ends(root: Path) -> None:
    path = root / "dra.sock"
    first, second = server(path, naming("first")), server(path, naming("second"))
    first.start()
    second.start()
    assert not first.is_there()
    assert not first.ensure()
    first.stop(0)
    assert ask(path) == "second"
    second.stop(0)
    assert names_in(root) == []


def test_ensure_makes_a_removed_socket_anew(root: Path) -> None:
    path = root / "plugins" / "dra.sock"
    one = server(path, naming("one"))
    assert not one.ensure()
    one.start()
    assert not one.ensure()
    path.unlink()
    path.parent.rmdir()
    assert one.ensure()
    assert ask(path) == "one"
    one.stop(0)
    assert not one.ensure()
    assert names_in(path.parent) == []


def test_ensure_lets_calls_by_the_old_socket_end(root: Path) -> None:
    begun, go_on = Event(), Event()

    def slow_at_first(_request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(HANG_SECONDS)
        return pb.PluginInfo(name="alive" if context.is_active() else "cancelled")

    path = root / "dra.sock"
    one = server(path, unary(slow_at_first, pb.InfoRequest))
    one.start()
    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(ask, path)
        assert begun.wait(HANG_SECONDS)
        path.unlink()
        assert one.ensure()
        assert [ask(path) for _ in range(10)] == ["alive"] * 10
        go_on.set()
        assert old.result(HANG_SECONDS) == "alive"
    one.stop(0)


def test_a_start_that_failed_can_be_tried_again(root: Path) -> None:
    (root / "plugins").write_text("in the way")
    one = server(root / "plugins" / "dra.sock", naming("one"))
    with pytest.raises(Fatal) as refusal:
        one.start()
    assert str(refusal.value) == (
        f"cannot listen on {root}/plugins/dra.sock: [Errno 17] File exists: '{root}/plugins'; "
        f"the directory must exist, be writable, and be the kubelet's"
    )
    one.stop(0)
    (root / "plugins").unlink()
    one.start()
    assert ask(root / "plugins" / "dra.sock") == "one"
    one.stop(0)


def test_an_ensure_that_failed_is_tried_again(root: Path) -> None:
    path = root / "plugins" / "dra.sock"
    one = server(path, naming("one"))
    one.start()
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    with pytest.raises(Fatal, match="cannot listen on"):
        one.ensure()
    path.parent.unlink()
    assert one.ensure()
    assert ask(path) == "one"
    one.stop(0)


def test_the_longest_path_that_the_kernel_takes_works(root: Path) -> None:
    longest = root / ("x" * (PATH_LIMIT_BYTES - len(str(root)) - 1))
    one = server(longest, naming("one"))
    one.start()
    assert ask(longest) == "one"
    one.stop(0)
    with pytest.raises(Fatal) as refusal:
        server(longest.with_name(longest.name + "x"), naming("one"))
    assert str(refusal.value) == (
        f"socket path {longest}x is longer than 107 bytes; "
        f"shorten --driver-name, --plugins-dir or --registry-dir"
    )


def test_the_text_of_an_error_is_one_line(root: Path) -> None:
    with pytest.raises(grpc.RpcError) as error:
        ask(root / "nobody.sock")
    text = text_of(error.value)
    assert text.startswith("UNAVAILABLE: ")
    assert "\n" not in text
    assert text_of(grpc.RpcError("plain")) == "plain"
