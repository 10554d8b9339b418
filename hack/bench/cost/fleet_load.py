# SPDX-License-Identifier: Apache-2.0
"""Runs on the test bed's node: many nodes' publishers in one process, against one real API server.

    python fleet_load.py KUBECONFIG NODES WATCHING REST_SECONDS

Each node has the real publish service and the real client, with connections of its own. WATCHING of them watch as a
driver does; the others leave out the watch and nothing else. Bytes are what the kernel counts on the client's sockets:
TLS with its handshakes, without the headers of TCP and IP. Prints one JSON object.
"""

import json
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, ClassVar

import urllib3

from dra_driver.backends.base import BackendContext
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.kube import http
from dra_driver.kube.auth import connect
from dra_driver.kube.base import SliceEvent
from dra_driver.kube.connection import Connection
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.http import HttpKubeApi
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.model.ids import DriverName, NodeName, PoolName
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.publish import Publisher
from dra_driver.services.vanished import PublisherInputs

DRIVER = DriverName("gpu.dra-driver.dev")
PROFILE = "h100x8"
STARTERS = 16  # nodes that start at the same moment
RENEWERS = 50
TCP_INFO_BYTES = 256
SENT_AT, RECEIVED_AT = 200, 128  # tcpi_bytes_sent and tcpi_bytes_received in struct tcp_info
WAIT_SECONDS = 120.0
SETTLE_SECONDS = 5.0  # until the last watch is open


@dataclass(slots=True)
class Traffic:
    """What went over all connections, open and closed ones."""

    requests: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    sent: int = 0
    received: int = 0

    def since(self, before: "Traffic") -> dict[str, Any]:
        """The difference, as it is reported."""
        return {
            "requests": dict(self.requests - before.requests),
            "connections": self.connections - before.connections,
            "sent": self.sent - before.sent,
            "received": self.received - before.received,
        }


class CountedConnection(urllib3.connection.HTTPSConnection):
    """A connection that says what it carried."""

    mutex = Lock()
    closed = Traffic()
    alive: ClassVar[set["CountedConnection"]] = set()

    def connect(self) -> None:
        super().connect()
        with self.mutex:
            self.closed.connections += 1
            self.alive.add(self)

    def request(self, method: str, url: str, *arguments: Any, **named: Any) -> None:
        with self.mutex:
            self.closed.requests[_what(method, url)] += 1
        super().request(method, url, *arguments, **named)

    def close(self) -> None:
        with self.mutex:
            if self in self.alive:
                self.alive.discard(self)
                _add(self.closed, self.sock)
        super().close()

    @classmethod
    def traffic(cls) -> Traffic:
        """All of it, until now."""
        with cls.mutex:
            now = Traffic(
                Counter(cls.closed.requests),
                cls.closed.connections,
                cls.closed.sent,
                cls.closed.received,
            )
            for connection in cls.alive:
                _add(now, connection.sock)
        return now


def _add(traffic: Traffic, sock: Any) -> None:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    traffic.sent += struct.unpack_from("Q", info, SENT_AT)[0]
    traffic.received += struct.unpack_from("Q", info, RECEIVED_AT)[0]


def _what(method: str, url: str) -> str:
    path, _, query = url.partition("?")
    if "watch=1" in query:
        return "watch slices"
    if path.endswith("resourceslices"):
        return "create a slice" if method == "POST" else "list slices"
    if "/resourceslices/" in path:
        return f"{method} a slice"
    return "get the node" if "/nodes/" in path else "discover versions"


class WithoutWatch(HttpKubeApi):
    """Everything but the watch, which is over as soon as it begins."""

    def watch_slices(self, resource_version: str, stop: Event) -> Iterator[SliceEvent]:
        stop.set()
        yield SliceEvent("BOOKMARK", resource_version, None)


class FleetNode:
    """One node's driver, as far as it talks to the API server."""

    def __init__(self, name: str, connection: Connection, *, watches: bool) -> None:
        node = NodeName(name)
        kind = HttpKubeApi if watches else WithoutWatch
        self._api = kind(connection, driver=DRIVER, node=node)
        inventory = SimulatedBackend(BackendContext(node, SimulatedOptions(profile=PROFILE))).scan()
        inputs = PublisherInputs(lambda: inventory, frozenset, lambda _names: None)
        self._publisher = Publisher(self._api, inputs, place=NodePlace(DRIVER, PoolName(name)))
        self._watches = watches
        self._stop = Event()
        self._threads: list[Thread] = []
        self._version = ""

    def start(self) -> float:
        """List, publish what is missing, and watch; answers the seconds until everything was published."""
        begun = time.perf_counter()
        if self._watches:
            for run in (self._publisher.watch, self._publisher.run):
                self._threads.append(Thread(target=run, args=(self._stop,), daemon=True))
                self._threads[-1].start()
        else:
            self._publisher.watch(self._stop)
            self._publisher.step()
        if not self._publisher.published_once.wait(WAIT_SECONDS):
            raise SystemExit("a node could not publish")
        return time.perf_counter() - begun

    def end(self) -> None:
        """As when the process ends."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        self._api.close()

    def list_slices(self) -> None:
        """Where the next watch begins."""
        self._version = self._api.list_slices().resource_version

    def renew_watch(self) -> None:
        """One watch from its begin to its end."""
        for _ in self._api.watch_slices(self._version, Event()):
            pass


class ApiServer:
    """Its processor time, from the outside."""

    def __init__(self) -> None:
        self._stat = next(
            path / "stat"
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and (path / "comm").read_text().startswith("kube-apiserver")
        )

    def seconds(self) -> float:
        """Used until now."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


def _phase(server: ApiServer, act: Callable[[], Any]) -> dict[str, Any]:
    before, used, begun = CountedConnection.traffic(), server.seconds(), time.monotonic()
    answer = act()
    return {
        **CountedConnection.traffic().since(before),
        "server_seconds": server.seconds() - used,
        "seconds": time.monotonic() - begun,
        "times": answer if isinstance(answer, list) else [],
    }


def _make_nodes(connection: Connection, names: Iterable[str], workers: ThreadPoolExecutor) -> None:
    transport = Transport(connection)

    def make(name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        transport.request(
            Exchange(ApiCall("create", "nodes", name), "POST", "/api/v1/nodes", body=body)
        )

    list(workers.map(make, names))
    transport.close()


def main() -> None:
    """All phases, one after the other."""
    kubeconfig, nodes, watching, rest = sys.argv[1], *map(int, sys.argv[2:5])
    connection = connect(Path(kubeconfig))
    names = [f"fleet-{number:05}" for number in range(nodes)]
    workers = ThreadPoolExecutor(STARTERS)
    _make_nodes(connection, names, workers)
    urllib3.connectionpool.HTTPSConnectionPool.ConnectionCls = CountedConnection
    server = ApiServer()

    def fleet() -> list[FleetNode]:
        return [
            FleetNode(name, connection, watches=number < watching)
            for number, name in enumerate(names)
        ]

    def start(group: Iterable[FleetNode]) -> list[float]:
        times = list(workers.map(FleetNode.start, group))
        time.sleep(SETTLE_SECONDS)
        return times

    def rest_a_while() -> None:
        time.sleep(rest)

    def renew() -> None:
        list(workers.map(FleetNode.renew_watch, renewers))

    first, second = fleet(), fleet()
    found = {
        "start_watching": _phase(server, lambda: start(first[:watching])),
        "start_others": _phase(server, lambda: start(first[watching:])),
        "rest": _phase(server, rest_a_while),
    }
    for node in first:
        node.end()
    found["again_watching"] = _phase(server, lambda: start(second[:watching]))
    found["again_others"] = _phase(server, lambda: start(second[watching:]))
    for node in second:
        node.end()
    http.WATCH_SECONDS = (1, 1)
    renewers = [FleetNode(name, connection, watches=True) for name in names[:RENEWERS]]
    list(workers.map(FleetNode.list_slices, renewers))
    found["renewals"] = _phase(server, renew)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
