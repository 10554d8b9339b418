# SPDX-License-Identifier: Apache-2.0
"""A stranger that comes while the driver runs: real sockets, pauses that the test ends."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.daemon.membership import WATCH_SECONDS, Membership
from dra_driver.errors import Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.server import KubeletSockets
from dra_driver.model.ids import DriverName
from dra_driver.node.peers import Peers

DRIVER = DriverName("gpu.dra-driver.dev")


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def member(root: Path) -> Membership:
    sockets = KubeletSockets(
        endpoint=root / "plugin" / "dra.sock", registration=root / "registry" / "reg.sock"
    )
    return Membership(Peers(root / "peers"), DRIVER, sockets, structlog.get_logger())


def registrar(path: Path, endpoint: Path) -> Registrar:
    return Registrar(path, driver=DRIVER, endpoint=endpoint, log=structlog.get_logger())


class Rounds:
    """Pauses between looks: before each look the next of these actions is done; then it is over."""

    def __init__(self, *actions) -> None:
        self.actions = list(actions)
        self.seconds: list[float] = []

    def __call__(self, _stop: Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        if not self.actions:
            return True
        self.actions.pop(0)()
        return False


def test_a_stranger_is_told_once_and_again_when_it_comes_back(root: Path) -> None:
    told: list[NodeEvent] = []
    path = root / "registry" / "other-reg.sock"
    first, second = (registrar(path, root / "plugin" / "dra.sock") for _ in range(2))
    rounds = Rounds(
        lambda: None,
        first.start,
        lambda: None,
        lambda: first.stop(0),
        second.start,
    )
    with capture_logs() as logs:
        # Its endpoint lies in our directory, but whoever serves it holds none of our locks.
        member(root).watch(Event(), told.append, wait=rounds)
    second.stop(0)
    assert [(event.type, event.reason) for event in told] == [("Warning", "ForeignPlugin")] * 2
    assert all(str(path) in event.message for event in told)
    assert [line["event"] for line in logs] == ["foreign_plugin"] * 2
    assert rounds.seconds == [WATCH_SECONDS] * 6


def test_an_event_that_cannot_be_written_is_logged_and_written_at_the_next_look(root: Path) -> None:
    told: list[NodeEvent] = []

    def refuses_once(event: NodeEvent) -> None:
        if not told:
            told.append(event)
            raise Temporary("the API server is away")
        told.append(event)

    stranger = registrar(root / "registry" / "other-reg.sock", root / "elsewhere.sock")
    rounds = Rounds(stranger.start, lambda: None, lambda: None)
    with capture_logs() as logs:
        member(root).watch(Event(), refuses_once, wait=rounds)
    stranger.stop(0)
    assert [event.reason for event in told] == ["ForeignPlugin"] * 2
    assert [line["event"] for line in logs] == [
        "foreign_plugin",
        "event_not_written",
        "foreign_plugin",
    ]
    assert len(rounds.seconds) == 4
