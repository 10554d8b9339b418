# SPDX-License-Identifier: Apache-2.0
"""A resource that somebody wrote into the status of the node is told once, with the command that removes it."""

from collections.abc import Collection, Mapping
from threading import Event
from typing import Any

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.services.stale_capacity import LOOK_SECONDS, StaleCapacity
from dra_driver.testing.builders import A_POOL

LEFT = {"example.com/dongle": "4"}


class Node:
    def __init__(self) -> None:
        self.capacity: Mapping[str, Any] = LEFT
        self.allocatable: Mapping[str, Any] = LEFT
        self.served: Collection[str] | None = ()
        self.error: DriverError | None = None
        self.events: list[NodeEvent] = []
        self.watch = StaleCapacity(A_POOL, self._amounts, lambda: self.served, self.events.append)

    def _amounts(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        if self.error is not None:
            raise self.error
        return self.capacity, self.allocatable

    def looks(self, times: int) -> int:
        for _ in range(times):
            self.watch.look()
        return len(self.events)


def test_it_is_told_when_two_looks_have_found_it() -> None:
    node = Node()
    assert [node.looks(1) for _ in range(3)] == [0, 1, 1]
    assert node.events[0].message.endswith(
        """To remove it: kubectl patch node node-1 --subresource=status --type=json -p '[{"op": "remove", "path": "/status/capacity/"""
        """example.com~1dongle"}, {"op": "remove", "path": "/status/allocatable/example.com~1dongle"}]'"""
    )
    node.capacity = {}
    node.looks(1)
    node.capacity, node.allocatable = LEFT, {}
    assert node.looks(2) == 2
    assert "allocatable" not in node.events[1].message


def test_a_name_that_could_be_a_command_is_told_without_one() -> None:
    node = Node()
    node.capacity = node.allocatable = {"a.b/c'; touch owned; '\n": "4"}
    node.looks(2)
    assert node.events[0].message == (
        "a.b/c'; touch owned; '\\n is in the status of node node-1, and no device plugin serves it: it is no name of an extended resource, "
        "so no pod can ask for it. Find out who wrote it, and remove it by hand"
    )


def test_what_is_not_known_is_not_told() -> None:
    node = Node()
    node.served = None
    assert node.looks(3) == 0
    node.served, node.error = (), Temporary("away")
    assert node.looks(3) == 0
    node.error = None
    assert node.looks(2) == 1
    assert node.looks(1) == 1


def test_it_looks_rarely() -> None:
    node, stop, pauses = Node(), Event(), list[float]()

    def wait(_stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > 2

    node.watch.run(stop, wait=wait)
    assert (pauses, len(node.events)) == ([LOOK_SECONDS] * 3, 1)
