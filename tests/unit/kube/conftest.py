# SPDX-License-Identifier: Apache-2.0
"""A fake API server with the Node of these tests, a client for it, and time that passes when somebody sleeps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.testing.fake_api import FakeApi

DRIVER = DriverName("gpu.example.com")
NODE = NodeName("node-1")


@dataclass
class Time:
    """A clock that stands still but for sleeps."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def tls() -> Path:
    return Path(__file__).parent / "tls"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as server:
        server.put(
            "nodes",
            {"metadata": {"name": NODE}, "status": {"nodeInfo": {"kubeletVersion": "v1.37.1"}}},
        )
        yield server


@pytest.fixture
def make_kube(time: Time) -> Iterator[Callable[[Connection], HttpKubeApi]]:
    made: list[HttpKubeApi] = []

    def make(connection: Connection) -> HttpKubeApi:
        kube = HttpKubeApi(connection, driver=DRIVER, node=NODE, sleep=time.sleep, clock=time.clock)
        made.append(kube)
        return kube

    yield make
    for kube in made:
        kube.close()


@pytest.fixture
def kube(api: FakeApi, make_kube: Callable[[Connection], HttpKubeApi]) -> HttpKubeApi:
    return make_kube(Connection(api.url, source="this test"))
