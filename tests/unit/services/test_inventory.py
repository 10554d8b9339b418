# SPDX-License-Identifier: Apache-2.0
"""Whatever a backend does, the last inventory that it told stays in force."""

from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.services.inventory import HANGS_SECONDS, RETRY_SECONDS, InventoryFeed
from tests.support.api_values import found_device

NOTHING = Inventory()
ONE = Inventory((found_device("gpu-0", "uuid-0"),))
TWO = Inventory((*ONE.devices, found_device("gpu-1", "uuid-1")))


class ScriptedBackend:
    """Answers one scan after the other; `news` is how often `watch` tells a change."""

    def __init__(self, *scans: object, news: int = 0, stop_after: bool = True) -> None:
        self.scans = list(scans)
        self.news = news
        self.stop_after = stop_after

    def scan(self) -> Inventory:
        found = self.scans.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def watch(self, stop: Event) -> Iterator[None]:
        for _ in range(self.news):
            yield
        if self.stop_after:
            stop.set()

    def configure(self, device: AllocatableDevice, config: DeviceConfig, /) -> None: ...

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
    feed = InventoryFeed(
        ScriptedBackend(Temporary("busy")), clock=iter([1.0, 5.0, 9.0, 9.0]).__next__
    )
    assert feed.current() == Inventory(scanned=False) != NOTHING
    with capture_logs():
        assert not feed.scan()
    assert feed.tried.is_set()
    assert feed.unknown() == (
        "the devices of this node are not known yet: no scan of the backend has succeeded for 8 s; see the log for the "
        "reason; without one, the scan hangs in the hardware"
    )
    with pytest.raises(Temporary, match=r"^the devices of this node are not known yet: "):
        feed.known()


def test_after_a_scan_the_devices_are_known():
    feed, _, _ = run(ONE)
    assert (feed.known(), feed.unknown()) == (ONE, "")


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
        (SystemExit("nvmlInit failed"), "scan_failed_unexpectedly"),
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
    assert not feed.current().scanned


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


class Clock:
    """Seconds that pass by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_age_is_that_of_the_last_look_that_succeeded_from_its_beginning():
    clock = Clock()

    class Slow(ScriptedBackend):
        def scan(self) -> Inventory:
            clock.now += 7.0
            return super().scan()

    feed = InventoryFeed(Slow(ONE, Temporary("busy"), ONE), clock=clock)
    feed.scan()
    assert feed.age() == 7.0
    with capture_logs():
        feed.scan()
    assert feed.age() == 14.0  # a look that failed says nothing
    clock.now += 50.0
    feed.scan()
    assert feed.age() == 7.0


def test_a_scan_that_hangs_is_told_once_and_its_end_too():
    clock = Clock()
    complaints: list[int] = []

    class Hanging(ScriptedBackend):
        def scan(self) -> Inventory:
            for seconds in (0.0, HANGS_SECONDS - 1, 1.0, 100.0):
                clock.now += seconds
                feed.complain("acme")
                complaints.append(len(logs))
            return super().scan()

    feed = InventoryFeed(Hanging(ONE, ONE), clock=clock)
    with capture_logs() as logs:
        feed.complain("acme")
        feed.scan()
        clock.now += 100.0
        feed.complain("acme")  # no scan runs
        feed.scan()
    assert complaints == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [line["event"] for line in logs] == ["scan_hangs", "scan_hangs_no_more"] * 2
    assert (logs[0]["backend"], logs[0]["seconds"]) == ("acme", HANGS_SECONDS)
    assert "dmesg" in logs[0]["next_step"]


def test_a_backend_without_news_is_looked_at_every_few_seconds():
    clock = Clock()
    feed = InventoryFeed(ScriptedBackend(ONE, TWO, ONE, TWO), clock=clock)
    ages: list[float] = []

    def wait(_stop: Event, seconds: float) -> bool:
        ages.append(feed.age())
        clock.now += seconds if len(ages) != 3 else seconds / 2
        return len(ages) > 4

    feed._wait = wait
    feed.scan()
    feed.look(Event())
    # The third time the last look was young enough: the next time is soon enough.
    assert ages == [0.0, 0.0, 0.0, 5.0, 0.0]
    assert feed.current() == TWO


def test_a_backend_is_asked_once_at_a_time():
    inside, go_on, asked = Event(), Event(), []

    class Hanging(ScriptedBackend):
        def scan(self) -> Inventory:
            asked.append(1)
            inside.set()
            assert go_on.wait(60)
            return ONE

    feed = InventoryFeed(Hanging())
    threads = [Thread(target=feed.scan, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert inside.wait(60)
    assert not feed.current().scanned  # nobody who asks waits for a scan
    assert feed.unknown()
    assert asked == [1]
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert asked == [1, 1]
