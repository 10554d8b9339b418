# SPDX-License-Identifier: Apache-2.0
"""Whatever a backend does, the last inventory that it told stays in force."""

from collections.abc import Callable, Iterator
from threading import Event

import pytest
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.services.inventory import RETRY_SECONDS, InventoryFeed

NOTHING = Inventory()
ONE = Inventory((Device(DeviceName("gpu-0"), "uuid-0"),))
TWO = Inventory((*ONE.devices, Device(DeviceName("gpu-1"), "uuid-1")))


class ScriptedBackend:
    """Answers one scan after the other; `news` is how often `watch` tells a change."""

    def __init__(self, *scans: object, news: int = 0, stop_after: bool = True) -> None:
        self.scans = list(scans)
        self.news = news
        self.stop_after = stop_after

    def scan(self) -> Inventory:
        found = self.scans.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def watch(self, stop: Event) -> Iterator[None]:
        for _ in range(self.news):
            yield
        if self.stop_after:
            stop.set()

    def configure(self, device: Device, config: DeviceConfig, /) -> None: ...

    def reset(self, device: DeviceName, /) -> None: ...


def run(*scans: object, news: int = 0) -> tuple[InventoryFeed, list[Inventory], list[float]]:
    """Run a feed to the end of the script: the feed, what it told to its subscriber, and how long it paused."""
    told: list[Inventory] = []
    pauses: list[float] = []

    def wait(_stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        return False

    feed = InventoryFeed(ScriptedBackend(*scans, news=news), wait=wait)
    feed.subscribe(lambda: told.append(feed.current()))
    with capture_logs():
        feed.run(Event())
    return feed, told, pauses


def test_before_the_first_scan_there_is_no_inventory():
    with pytest.raises(Temporary, match=r"^the devices of this node are not known yet: "):
        InventoryFeed(ScriptedBackend()).current()


def test_a_scan_is_told_when_it_found_something_else():
    feed, told, pauses = run(ONE, ONE, TWO, ONE, news=3)
    assert feed.current() == ONE
    assert told == [ONE, TWO, ONE]
    assert pauses == []


def test_no_devices_is_an_answer_too():
    feed, told, _ = run(NOTHING)
    assert (feed.current(), told) == (NOTHING, [NOTHING])


def test_a_scan_that_fails_leaves_the_last_inventory_and_is_tried_again_after_growing_times():
    errors = [Temporary("busy")] * 4 + [OSError("ioctl")] * 2
    feed, told, pauses = run(ONE, *errors, TWO, news=1)
    assert pauses == [*RETRY_SECONDS, RETRY_SECONDS[-1]]
    assert told == [ONE, TWO]
    assert feed.current() == TWO


@pytest.mark.parametrize(
    ("found", "event"),
    [
        (Temporary("the library hangs"), "scan_failed"),
        (ZeroDivisionError("a fault of the backend"), "scan_failed_unexpectedly"),
        (None, "scan_failed_unexpectedly"),
        ([], "scan_failed_unexpectedly"),
    ],
)
def test_each_failed_scan_is_one_log_line_and_costs_nothing(found: object, event: str):
    feed = InventoryFeed(ScriptedBackend(ONE, found))
    assert feed.scan()
    with capture_logs() as logs:
        assert not feed.scan()
    assert [line["event"] for line in logs] == [event]
    assert feed.current() == ONE


def test_a_stop_ends_the_retries():
    stop = Event()

    def wait(_stop: Event, _seconds: float) -> bool:
        stop.set()
        return True

    feed = InventoryFeed(ScriptedBackend(Temporary("busy"), news=5), wait=wait)
    with capture_logs():
        feed.run(stop)
    with pytest.raises(Temporary):
        feed.current()


def test_a_watch_that_fails_is_left_to_the_guard():
    class Broken(ScriptedBackend):
        def watch(self, stop: Event) -> Iterator[None]:
            raise OSError("netlink")

    feed = InventoryFeed(Broken(ONE))
    with pytest.raises(OSError, match="netlink"):
        feed.run(Event())
    assert feed.current() == ONE


def test_a_backend_that_never_changes_keeps_its_thread_until_the_end():
    class Stopping(Event):
        """An event that is set as soon as somebody waits for it."""

        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout)
            self.set()
            return True

    waited: list[float | None] = []
    end: Callable[[], Event] = Stopping
    InventoryFeed(ScriptedBackend(ONE, stop_after=False)).run(end())
    assert waited == [None]
