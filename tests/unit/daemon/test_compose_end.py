# SPDX-License-Identifier: Apache-2.0
"""What the process gives up when it ends, and what only its death gives up."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from threading import enumerate as all_threads
from types import SimpleNamespace

import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.daemon import lifecycle
from dra_driver.daemon.compose import _close
from dra_driver.daemon.lifecycle import shutdown
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.model.events import WorkEnded
from dra_driver.testing.builders import a_claim
from tests.support.local_node import LocalNode

DEADLINE = 300  # seconds, against hanging only


class Recorded:
    """Stands where the dependencies, the leadership and the membership stand; what was given up is in `given_up`."""

    def __init__(self) -> None:
        self.given_up: list[str] = []
        self.store = self

    def close(self) -> None:
        self.given_up.append("state")

    def end(self) -> None:
        self.given_up.append("leader")

    def leave(self) -> None:
        self.given_up.append("peer")


def shut_down(node: LocalNode, recorded: Recorded) -> bool:
    """The end of a daemon whose executor is the node's."""
    log = structlog.get_logger()

    def nothing(*_arguments: object) -> None:
        pass

    daemon = SimpleNamespace(
        kubelet=SimpleNamespace(stop=nothing),
        http=None,
        supervisor=Supervisor(log, nothing),
        close_connections=nothing,
        stop_workers=nothing,
        unfinished=node.parts.executor.unfinished,
        close=partial(_close, recorded, recorded, recorded),
    )
    return shutdown(daemon, log)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    made = LocalNode(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "GRACE_SECONDS", 0.2)
    others = set(all_threads())  # those of other tests
    monkeypatch.setattr(lifecycle, "all_threads", lambda: set(all_threads()) - others)


def test_everything_is_given_up_when_nothing_is_at_work(node: LocalNode) -> None:
    found = Recorded()
    assert shut_down(node, found)
    assert found.given_up == ["state", "leader", "peer"]


def test_nothing_is_given_up_while_a_device_is_set_up(
    node: LocalNode, request: pytest.FixtureRequest
) -> None:
    go_on, said, found = Event(), Event(), Recorded()
    request.addfinalizer(go_on.set)

    def slow(lease) -> None:
        assert go_on.wait(DEADLINE)

    node.configure = slow
    node.told(WorkEnded, said)
    (ref,) = node.add(a_claim())
    node.prepare(ref, until=node.parts.clock())
    with capture_logs() as lines:
        assert not shut_down(node, found)
    assert found.given_up == []
    told = [line for line in lines if line["event"] == "work_goes_on"]
    assert [line["claims"] for line in told] == [str(ref)]
    go_on.set()
    assert said.wait(DEADLINE)
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
