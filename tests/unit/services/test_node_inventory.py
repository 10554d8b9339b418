# SPDX-License-Identifier: Apache-2.0
"""Several backends: one that fails or hangs costs only itself."""

from collections.abc import Callable, Iterator, Mapping
from threading import Event

import pytest
from structlog.testing import capture_logs

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.services.inventory import HANGS_SECONDS, InventoryFeed
from dra_driver.services.node_inventory import COMPLAIN_SECONDS, NodeInventory
from dra_driver.testing.builders import a_device


class Machine:
    """A backend with these devices; it fails while it has an error."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.error: Exception | None = None
        self.hangs: Callable[[], None] = lambda: None

    def scan(self) -> Inventory:
        self.hangs()
        if self.error is not None:
            raise self.error
        return Inventory(tuple(a_device(name) for name in self.names))

    def watch(self, _stop: Event) -> Iterator[None]:
        yield from ()


class Node:
    """Two backends, and what was published before."""

    def __init__(self, **had: str) -> None:
        self.now = 100.0
        self.acme, self.other = Machine("a-0"), Machine("b-0")
        self.feeds = {
            name: InventoryFeed(machine, clock=lambda: self.now)  # type: ignore[arg-type]
            for name, machine in (("acme", self.acme), ("other", self.other))
        }
        self.had: Mapping[DeviceName, str] | Exception = {
            DeviceName(name.replace("_", "-")): backend for name, backend in had.items()
        }
        self.recalls = 0
        self.inventory = NodeInventory(self.feeds, recall=self.recall)

    def recall(self) -> Mapping[DeviceName, str]:
        self.recalls += 1
        if isinstance(self.had, Exception):
            raise self.had
        return self.had

    def scan(self, *names: str) -> None:
        with capture_logs():
            for name in names or self.feeds:
                self.feeds[name].scan()

    def names(self) -> list[str]:
        return [device.name for device in self.inventory.current().devices]


def test_the_devices_of_all_backends_are_the_nodes() -> None:
    node = Node()
    node.scan()
    assert node.names() == ["a-0", "b-0"]
    assert node.inventory.known() is node.inventory.current()
    assert [node.inventory.backend_of(DeviceName(name)) for name in ("b-0", "x")] == ["other", ""]


def test_a_backend_that_fails_keeps_its_last_devices_and_hinders_no_other() -> None:
    node = Node()
    node.scan()
    node.acme.error = Temporary("the library hangs")
    node.other.names = ("b-0", "b-1")
    node.now += 20
    node.scan()
    assert node.names() == ["a-0", "b-0", "b-1"]
    ages = [node.inventory.age(name) for name in ("acme", "other", "")]
    assert ages == [20.0, 0.0, 20.0]


def test_one_answer_is_enough_to_serve() -> None:
    node = Node(a_0="acme")
    assert "not known yet" in node.inventory.unknown()
    with pytest.raises(Temporary, match="the devices of this node are not known yet"):
        node.inventory.known()
    node.scan("other")
    assert node.inventory.unknown() == ""
    assert node.names() == ["b-0"]
    assert node.inventory.current().awaited() == ("a-0",)
    node.scan("acme")
    assert node.inventory.current().awaited() == ()


def test_a_name_stays_with_its_backend_over_a_restart_and_while_the_process_runs() -> None:
    node = Node(gpu_0="other")
    node.acme.names = node.other.names = ("gpu-0",)
    node.scan()
    assert [device.backend for device in node.inventory.current().devices] == ["other"]
    node.other.names = ()
    node.scan()
    assert node.names() == []
    assert node.recalls == 1


def test_a_record_that_cannot_be_read_is_read_later_and_told_once() -> None:
    node = Node()
    node.had = Permanent("the disk is broken")
    with capture_logs() as logs:
        node.scan("other")
        assert node.names() == node.names() == ["b-0"]
    assert [line["event"] for line in logs] == ["publication_not_recalled"]
    node.had = {DeviceName("a-0"): "acme"}
    assert node.inventory.current().awaited() == ("a-0",)


def test_the_record_counts_if_it_is_read_after_another_backend_took_the_name() -> None:
    node = Node()
    node.had = Permanent("the disk is broken")
    node.acme.names = node.other.names = ("gpu-0",)
    with capture_logs():
        node.scan()
        assert [device.backend for device in node.inventory.current().devices] == ["acme"]
    node.had = {DeviceName("gpu-0"): "other"}
    assert [device.backend for device in node.inventory.current().devices] == ["other"]
    node.scan()
    assert [device.backend for device in node.inventory.current().devices] == ["other"]


def test_a_record_without_a_backend_takes_no_name_away() -> None:
    node = Node()
    node.had = Permanent("the disk is broken")
    with capture_logs():
        node.scan("other")
        assert node.names() == ["b-0"]
    node.acme.names = ("b-0",)
    node.scan("acme")
    node.had = {DeviceName("b-0"): ""}
    assert [device.backend for device in node.inventory.current().devices] == ["other"]


def test_a_change_of_one_backend_is_told_to_all() -> None:
    node, told = Node(), list[str]()
    node.inventory.subscribe(lambda: told.append("changed"))
    node.scan()
    node.scan()
    assert told == ["changed"] * 2


def test_each_backend_has_an_age_of_its_own() -> None:
    node = Node()
    node.now += 5
    node.scan("acme")
    node.now += 2
    assert node.inventory.ages() == {"acme": 2.0, "other": 7.0}


def test_each_backend_has_threads_of_its_own() -> None:
    assert list(Node().inventory.loops()) == [
        "inventory-acme",
        "inventory-other",
        "looks-acme",
        "looks-other",
        "hanging-scans",
    ]


def test_a_scan_that_hangs_is_told_with_its_backend() -> None:
    node = Node()
    waits: list[float] = []

    def wait(_stop: Event, seconds: float) -> bool:
        waits.append(seconds)
        node.now += HANGS_SECONDS
        return len(waits) > 2

    inventory = NodeInventory(node.feeds, wait=wait)
    node.acme.hangs = lambda: inventory.loops()["hanging-scans"](Event())
    with capture_logs() as logs:
        node.feeds["acme"].scan()
    assert [line.get("backend") for line in logs] == ["acme", None]
    assert logs[0]["event"] == "scan_hangs"
    assert waits == [COMPLAIN_SECONDS] * 3


def test_the_start_waits_until_each_backend_was_tried() -> None:
    node = Node()
    node.acme.error = Temporary("busy")
    assert not node.inventory.tried_within(0.0)
    node.scan("acme")
    assert not node.inventory.tried_within(0.0)
    node.scan("other")
    assert node.inventory.tried_within(0.0)


def test_without_backends_the_node_is_known_to_have_no_devices() -> None:
    nothing = NodeInventory({})
    assert nothing.known() == Inventory()
    assert (nothing.unknown(), nothing.age("acme"), nothing.tried_within(0.0)) == ("", 0.0, True)
