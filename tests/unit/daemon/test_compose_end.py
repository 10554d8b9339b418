# SPDX-License-Identifier: Apache-2.0
"""What the process gives up when it ends, and what only its death gives up."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.daemon.compose import _close
from dra_driver.model.events import WorkEnded
from dra_driver.testing.builders import a_claim
from tests.support.local_node import LocalNode

DEADLINE = 300  # seconds, against hanging only


class Recorded:
    """Stands where the ground, the leadership and the membership stand; what was given up is in `given_up`."""

    def __init__(self, node: LocalNode) -> None:
        self.given_up: list[str] = []
        self.store = self
        self.log = structlog.get_logger()

    def close(self) -> None:
        self.given_up.append("state")

    def end(self) -> None:
        self.given_up.append("leader")

    def leave(self) -> None:
        self.given_up.append("peer")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    made = LocalNode(tmp_path)
    yield made
    made.close()


def test_everything_is_given_up_when_nothing_is_at_work(node: LocalNode) -> None:
    found = Recorded(node)
    _close(found, node.parts, found, found)
    assert found.given_up == ["state", "leader", "peer"]


def test_nothing_is_given_up_while_a_device_is_set_up(
    node: LocalNode, request: pytest.FixtureRequest
) -> None:
    go_on, said, found = Event(), Event(), Recorded(node)
    request.addfinalizer(go_on.set)

    def slow(_device, _config) -> None:
        assert go_on.wait(DEADLINE)

    node.configure = slow
    node.told(WorkEnded, said)
    (ref,) = node.add(a_claim())
    node.prepare(ref, until=node.parts.clock())
    with capture_logs() as lines:
        _close(found, node.parts, found, found)
    assert found.given_up == []
    assert [(line["event"], line["claims"]) for line in lines] == [("work_goes_on", str(ref))]
    go_on.set()
    assert said.wait(DEADLINE)
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
