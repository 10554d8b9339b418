# SPDX-License-Identifier: Apache-2.0
"""When is the Node's condition True, when False, and when does the startup taint go?"""

from collections.abc import Iterator

import pytest

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.events import (
    ClaimPrepared,
    DriverEvent,
    NodeConditionWritten,
    Published,
    PublishFailed,
    StartupTaintRemoved,
)
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.slices import StoredSlice
from dra_driver.services.node_condition import NodeDoor, NodeReadiness, utc_now
from dra_driver.testing.builders import a_ref
from dra_driver.testing.fake_api import FakeApi, Object
from tests.support.api_values import published, slice_spec
from tests.support.local_node import ManualClock

DRIVER, NODE = DriverName("gpu.example.com"), NodeName("node-1")
TAINT = "startup.example.com/gpu"
OTHER = {"key": "other", "effect": "NoSchedule"}


class Node:
    """A Node at the fake API server, the slices that the server shows, and a clock."""

    def __init__(self, api: FakeApi, kube: HttpKubeApi) -> None:
        self.api = api
        self.clock = ManualClock()
        self.unknown = ""
        self.slices: list[StoredSlice] | DriverError = []
        self.reads = 0
        self.events: list[DriverEvent] = []
        self.woken = 0
        self.door = NodeDoor(self.read_slices, lambda: self.unknown, kube.own_node())
        self.readiness = self.made(writes=True, startup_taint=TAINT)

    def made(self, *, writes: bool, startup_taint: str = "") -> NodeReadiness:
        made = NodeReadiness(
            self.door,
            writes=writes,
            startup_taint=startup_taint,
            observe=self.events.append,
            clock=self.clock,
            now=self.now,
        )
        made.changed = self.wake
        return made

    def wake(self) -> None:
        self.woken += 1

    def now(self) -> str:
        minutes, seconds = divmod(int(self.clock()) - 1000, 60)
        return f"2026-01-02T03:{minutes:02}:{seconds:02}Z"

    def read_slices(self) -> list[StoredSlice]:
        self.reads += 1
        if isinstance(self.slices, DriverError):
            raise self.slices
        return self.slices

    def shows(self, devices: int) -> None:
        content = [published(f"gpu-{index}") for index in range(devices)]
        self.slices = [StoredSlice("s", "u", "1", slice_spec(NODE, 1, 1, content))]

    def publish(self, devices: int = 8) -> None:
        self.shows(devices)
        self.readiness(Published(devices, 1))

    def condition(self) -> Object | None:
        found = self.api.object("nodes", NODE).get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == "DevicesReady"), None)

    def said(self) -> tuple[str, str] | None:
        found = self.condition()
        return (found["status"], found["reason"]) if found else None

    def taints(self) -> list[str]:
        spec = self.api.object("nodes", NODE).get("spec", {})
        return [taint["key"] for taint in spec.get("taints", [])]

    def writes(self) -> int:
        return [request.verb for request in self.api.requests].count("patch")


@pytest.fixture
def node() -> Iterator[Node]:
    with FakeApi() as api:
        startup = {"key": TAINT, "effect": "NoSchedule"}
        api.put("nodes", {"metadata": {"name": NODE}, "spec": {"taints": [startup, OTHER]}})
        kube = HttpKubeApi(Connection(api.url), driver=DRIVER, node=NODE)
        yield Node(api, kube)
        kube.close()


def test_the_devices_are_ready_once_the_server_shows_them(node: Node) -> None:
    assert node.readiness.look() == 60.0
    assert node.said() == ("False", "Starting")
    assert node.taints() == [TAINT, "other"]
    node.publish()
    assert node.readiness.look() == 300.0
    assert node.condition() == {
        "type": "DevicesReady",
        "status": "True",
        "reason": "Published",
        "message": "8 devices published",
        "lastTransitionTime": "2026-01-02T03:00:00Z",
        "lastHeartbeatTime": "2026-01-02T03:00:00Z",
    }
    assert node.taints() == ["other"]
    assert node.events == [
        NodeConditionWritten(False, "Starting", "the devices have not been published yet"),
        NodeConditionWritten(True, "Published", "8 devices published"),
        StartupTaintRemoved(TAINT),
    ]


def test_what_was_written_and_is_not_shown_is_not_ready(node: Node) -> None:
    node.publish()
    node.shows(7)
    assert node.readiness.look() == 5.0
    assert node.said() == ("False", "SlicesIncomplete")
    assert node.taints() == [TAINT, "other"]
    node.shows(8)
    node.readiness.look()
    assert node.said() == ("True", "Published")


def test_while_nothing_changes_the_slices_are_not_read_and_the_condition_rarely_written(
    node: Node,
) -> None:
    node.publish()
    node.readiness.look()
    writes = node.writes()
    for _ in range(2):
        node.clock.sleep(149.0)
        node.readiness.look()
    assert (node.reads, node.writes()) == (1, writes)
    node.clock.sleep(2.0)
    node.readiness.look()
    assert (node.reads, node.writes()) == (1, writes + 1)
    found = node.condition()
    assert found is not None
    assert found["lastTransitionTime"] == "2026-01-02T03:00:00Z"
    assert found["lastHeartbeatTime"] == "2026-01-02T03:05:00Z"
    assert len(node.events) == 2


def test_a_node_without_devices_keeps_its_taint(node: Node) -> None:
    """An autoscaler would take it for ready, and pods would wait there."""
    node.publish(0)
    node.readiness.look()
    assert node.said() == ("False", "NoDevices")
    assert node.taints() == [TAINT, "other"]


def test_without_a_scan_the_reason_is_told(node: Node) -> None:
    node.unknown = "backend nvidia has not answered"
    node.publish()
    node.readiness.look()
    found = node.condition()
    assert found is not None
    assert (found["reason"], found["message"]) == ("DevicesUnknown", node.unknown)


def test_a_new_process_does_not_make_a_node_look_as_if_it_lost_its_devices(node: Node) -> None:
    node.publish()
    node.readiness.look()
    node.readiness = node.made(writes=True)
    node.readiness.look()
    node.clock.sleep(59.0)
    node.readiness.look()
    assert node.said() == ("True", "Published")
    node.clock.sleep(1.0)
    node.readiness.look()
    assert node.said() == ("False", "Starting")


def test_a_publication_that_goes_on_failing_is_told(node: Node) -> None:
    node.publish()
    node.readiness.look()
    for _ in range(3):
        node.readiness(PublishFailed("403", 30.0))
        node.readiness.look()
        assert node.said() == ("True", "Published")
        node.clock.sleep(25.0)
    node.readiness(PublishFailed("403", 30.0))
    node.readiness.look()
    assert node.said() == ("False", "PublishFailed")


def test_a_failure_that_is_not_told_again_has_passed(node: Node) -> None:
    """A publication that finds nothing to write ends without an event."""
    node.publish()
    node.readiness.look()
    node.readiness(PublishFailed("no answer", 1.0))
    node.readiness.look()
    node.clock.sleep(31.0)
    node.readiness.look()
    assert (node.said(), node.reads) == (("True", "Published"), 2)


def test_a_publication_during_the_look_is_looked_at_again(node: Node) -> None:
    node.publish()
    read = node.read_slices

    def read_slowly() -> list[StoredSlice]:
        found = read()
        if node.reads == 1:
            node.readiness(Published(8, 1))
        return found

    node.door = NodeDoor(read_slowly, lambda: "", node.door.node)
    node.readiness = node.made(writes=True)
    node.readiness(Published(8, 1))
    node.readiness.look()
    node.readiness.look()
    node.readiness.look()
    assert node.reads == 2


def test_a_list_of_the_device_plugin_counts_too(node: Node) -> None:
    node.readiness.took_list(4)
    node.readiness.look()
    assert (node.said(), node.reads) == (("True", "Listed"), 0)
    assert node.taints() == ["other"]
    node.readiness.took_list(0)
    node.clock.sleep(1.0)
    node.readiness.look()
    node.clock.sleep(60.0)
    node.readiness.look()
    assert node.said() == ("False", "Starting")


def test_the_taint_goes_without_the_condition_and_the_condition_is_written_without_a_taint(
    node: Node,
) -> None:
    node.readiness = node.made(writes=False, startup_taint=TAINT)
    node.publish()
    node.readiness.look()
    assert (node.said(), node.taints()) == (None, ["other"])
    node.api.put("nodes", {"metadata": {"name": NODE}, "spec": {"taints": [{"key": TAINT}]}})
    node.readiness = node.made(writes=True)
    node.publish()
    node.readiness.look()
    assert (node.said(), node.taints()) == (("True", "Published"), [TAINT])


def test_a_taint_that_somebody_else_removes_meanwhile_is_no_failure(node: Node) -> None:
    node.publish()
    node.api.put("nodes", {"metadata": {"name": NODE}, "spec": {"taints": []}})
    node.readiness.look()
    assert StartupTaintRemoved(TAINT) not in node.events


def test_an_api_server_that_does_not_answer_is_a_failure(node: Node) -> None:
    node.publish()
    node.slices = Temporary("no answer")
    with pytest.raises(Temporary):
        node.readiness.look()
    node.shows(8)
    node.readiness.look()
    assert node.said() == ("True", "Published")


def test_only_what_may_change_it_wakes_the_loop(node: Node) -> None:
    node.readiness(ClaimPrepared(a_ref(), 0.1))
    assert node.woken == 0
    node.readiness(Published(1, 1))
    node.readiness(PublishFailed("no", 1.0))
    node.readiness.took_list(1)
    assert node.woken == 3
    NodeReadiness(node.door, writes=True).took_list(1)


def test_the_time_is_written_as_the_api_writes_it() -> None:
    assert len(utc_now()) == len("2026-01-02T03:04:05Z")
    assert utc_now().endswith("Z")
