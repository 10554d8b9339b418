# SPDX-License-Identifier: Apache-2.0
"""Lines of a stream, and the thread that ends it; the rest is in test_http.py."""

import threading
from threading import Event

from dra_driver.kube.connection import Connection
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.kube.watch import _break_on_stop, read_event, read_lines
from dra_driver.testing.fake_api import FakeApi, WatchLine

WATCH = Exchange(
    ApiCall("watch", "nodes"), "GET", "/api/v1/nodes", {"watch": "1", "resourceVersion": "1"}
)


def test_lines_that_arrived_together_are_told_apart(api: FakeApi) -> None:
    api.faults.add(WatchLine(b'{"a":1}\n\n{"b":2}\r\n{"c":'), verb="watch")
    transport, stop = Transport(Connection(api.url)), Event()
    lines = read_lines(transport.open_watch(WATCH, read_timeout_seconds=60), stop)
    assert [next(lines), next(lines)] == [b'{"a":1}', b'{"b":2}\r']
    stop.set()
    assert [line for line in lines if b'"c"' not in line] == []
    transport.close()


def test_a_stream_that_ended_by_itself_need_not_be_stopped(api: FakeApi) -> None:
    transport, stop, done = Transport(Connection(api.url)), Event(), Event()
    response = transport.open_watch(WATCH, read_timeout_seconds=60)
    response.close()
    stop.set()
    _break_on_stop(response, stop, done)
    transport.close()


def test_the_stopper_ends_with_its_stream(api: FakeApi) -> None:
    transport = Transport(Connection(api.url))
    response = transport.open_watch(WATCH, read_timeout_seconds=60)
    before = set(threading.enumerate())
    api.put("nodes", {"metadata": {"name": "node-2"}})
    lines = read_lines(response, Event())
    next(lines)
    started = set(threading.enumerate()) - before
    (stopper,) = [thread for thread in started if thread.name == "watch-stopper"]
    lines.close()  # type: ignore[attr-defined]  # typed as an Iterator, it is a generator
    stopper.join(60)
    assert not stopper.is_alive()
    transport.close()


def test_an_event_is_read_around_opaque_content() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"c"},"spec":{"opaque":{"parameters":{"a":"\\ud800"}}}}}'
    assert read_event(ApiCall("watch", "resourceclaims"), line) == (
        "ADDED",
        {"metadata": {"name": "c"}, "spec": {"opaque": {"parameters": None}}},
    )
