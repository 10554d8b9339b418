# SPDX-License-Identifier: Apache-2.0
"""The list of units that the streams of a resource send."""

from threading import Event, Thread

from dra_driver.model.ids import UnitId
from dra_driver.model.plugin import ListedUnit
from dra_driver.services.plugin.offer import UnitFeed

DEADLINE = 300  # seconds, against hanging only
WELL, ILL = (ListedUnit(UnitId("GPU-0"), healthy=one) for one in (True, False))


def test_a_new_list_has_a_new_version_and_the_same_list_has_none() -> None:
    feed = UnitFeed()
    begun, units = feed.snapshot()
    assert units == ()
    assert feed.set((WELL,))
    first, units = feed.snapshot()
    assert units == (WELL,)
    assert not feed.set((WELL,))
    assert feed.snapshot() == (first, (WELL,))
    assert feed.set((ILL,))
    second, units = feed.snapshot()
    assert units == (ILL,)
    assert begun < first < second


def test_who_waits_hears_of_a_list_that_he_does_not_have() -> None:
    feed = UnitFeed()
    begun, _ = feed.snapshot()
    feed.set((WELL,))
    version, _ = feed.snapshot()
    assert feed.wait(begun, DEADLINE)
    assert not feed.wait(version, 0)


def test_a_wait_ends_with_the_change() -> None:
    feed = UnitFeed()
    version, _ = feed.snapshot()
    heard: list[bool] = []
    begun = Event()

    def wait() -> None:
        begun.set()
        heard.append(feed.wait(version, DEADLINE))

    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(DEADLINE)
    feed.wake()  # without another list: the server ends its streams so
    waiting.join(DEADLINE)
    assert heard == [True]
    assert feed.snapshot()[1] == ()
