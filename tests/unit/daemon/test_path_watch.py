# SPDX-License-Identifier: Apache-2.0
"""Through which API devices are offered, as the facts come and go."""

from collections.abc import Callable
from threading import Event

import pytest

from dra_driver.daemon.path_watch import LOOK_SECONDS, SERVED_SECONDS, PathWatch
from dra_driver.errors import Temporary
from dra_driver.kube.base import NotServed
from dra_driver.model.events import DriverEvent, PathChosen
from dra_driver.model.ids import DeviceName
from dra_driver.model.plugin import Path
from dra_driver.planning.path import LONGEST_WAIT_SECONDS, PathChoice, PathFacts
from dra_driver.testing.builders import an_inventory
from tests.support.local_node import ManualClock

WORKS = "the API server serves resource.k8s.io, and the kubelet has registered the driver"
WITHOUT = "the API server does not serve resource.k8s.io"
GPU_0, GPU_1 = DeviceName("gpu-0"), DeviceName("gpu-1")


class Watched:
    """A watch over facts that the test sets: `api` is raised by the API server, `kubelet` by a question for the kubelet's version."""

    def __init__(self, wish: Path | None = None) -> None:
        self.api: Exception | None = None
        self.asked = 0
        self.registered = False
        self.version = "v1.34.1"
        self.kubelet: Exception | None = None
        self.clock = ManualClock()
        self.events: list[DriverEvent] = []
        self.changes: list[Path | None] = []
        self.watch = PathWatch(
            wish,
            serves=self._serves,
            registered=lambda: self.registered,
            kubelet_version=self._version,
            observe=self.events.append,
            clock=self.clock,
        )
        self.watch.subscribe(lambda: self.changes.append(self.watch.choice.path))

    def _serves(self) -> None:
        self.asked += 1
        if self.api is not None:
            raise self.api

    def _version(self) -> str:
        if self.kubelet is not None:
            raise self.kubelet
        return self.version

    def look(self, after: float = 0.0) -> Path | None:
        self.clock.now += after
        return self.watch.look().path


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_before_the_first_look_nothing_is_known(watched: Watched) -> None:
    assert watched.watch.choice == PathChoice(None, "nothing is known yet")
    assert watched.watch.facts == PathFacts()
    assert watched.asked == 0


def test_where_dra_works_it_is_chosen_and_told_once(watched: Watched) -> None:
    assert watched.look() is None
    assert (watched.events, watched.changes) == ([], [])
    watched.registered = True
    assert watched.look(LOOK_SECONDS) is Path.DRA
    assert watched.look(LOOK_SECONDS) is Path.DRA
    assert watched.watch.choice == PathChoice(Path.DRA, WORKS)
    assert watched.events == [PathChosen("dra", WORKS)]
    assert watched.changes == [Path.DRA]
    assert watched.watch.facts == PathFacts(
        served=True,
        registered=True,
        kubelet_version="v1.34.1",
        registration_waited_seconds=2 * LOOK_SECONDS,
    )


def test_an_api_server_without_dra_is_no_silent_one(watched: Watched) -> None:
    watched.api = Temporary("connection refused")
    assert watched.look() is None
    watched.api = NotServed("no resource.k8s.io")
    assert watched.look(LOOK_SECONDS) is Path.DEVICE_PLUGIN
    assert watched.events == [PathChosen("device-plugin", WITHOUT)]


def test_the_api_server_is_asked_rarely_and_after_an_error_soon(watched: Watched) -> None:
    watched.api = NotServed("no resource.k8s.io")
    watched.look()
    watched.look(SERVED_SECONDS - 1)
    assert watched.asked == 1
    watched.api = Temporary("connection refused")
    # What it said before counts on.
    assert watched.look(1) is Path.DEVICE_PLUGIN
    assert watched.asked == 2
    watched.look(LOOK_SECONDS / 2)
    assert watched.asked == 2
    watched.api = None
    watched.registered = True
    assert watched.look(LOOK_SECONDS / 2) is Path.DRA
    assert watched.asked == 3
    assert [event.path for event in watched.events if isinstance(event, PathChosen)] == [
        "device-plugin",
        "dra",
    ]


def test_a_kubelet_that_never_calls_gets_the_device_plugin_api_until_it_calls(
    watched: Watched,
) -> None:
    assert watched.look(LONGEST_WAIT_SECONDS - 1) is None
    assert watched.look(1) is Path.DEVICE_PLUGIN
    watched.registered = True
    assert watched.look(LOOK_SECONDS) is Path.DRA
    assert watched.changes == [Path.DEVICE_PLUGIN, Path.DRA]


def test_a_kubelet_without_a_known_version_is_not_an_old_one(watched: Watched) -> None:
    watched.version = "v1.30.0"
    watched.kubelet = Temporary("connection refused")
    assert watched.look() is None
    assert watched.watch.facts.kubelet_version == ""
    watched.kubelet = None
    assert watched.look(LOOK_SECONDS) is Path.DEVICE_PLUGIN


def test_what_the_admin_says_counts_whatever_the_facts_are() -> None:
    watched = Watched(Path.DEVICE_PLUGIN)
    watched.registered = True
    assert watched.watch.wish is Path.DEVICE_PLUGIN
    assert watched.look() is Path.DEVICE_PLUGIN
    assert watched.events == [PathChosen("device-plugin", "the configuration says device-plugin")]


def test_the_loop_looks_until_it_is_stopped(watched: Watched) -> None:
    stop = Event()
    pauses: list[float] = []

    def wait(stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        watched.registered = True
        if len(pauses) == 2:
            stop.set()
        return True

    watched.watch.run(stop, wait=wait)
    assert pauses == [LOOK_SECONDS] * 2
    assert watched.changes == [Path.DRA]


def nobody() -> frozenset[DeviceName]:
    return frozenset()


def names(watched: Watched, claimed: Callable[[], frozenset[DeviceName]] = nobody) -> list[str]:
    return [one.name for one in watched.watch.for_dra(an_inventory(3), claimed).devices]


def test_devices_are_offered_by_claims_until_the_device_plugin_api_is_chosen(
    watched: Watched,
) -> None:
    def unasked() -> frozenset[DeviceName]:
        raise AssertionError("the state is not read for nothing")

    assert names(watched, unasked) == ["gpu-0", "gpu-1", "gpu-2"]
    watched.api = NotServed("no resource.k8s.io")
    watched.look()
    # Before anything is found out about single devices, all of them are kept from claims but those that claims own.
    assert names(watched) == []
    assert names(watched, lambda: frozenset({GPU_1})) == ["gpu-1"]


def test_single_devices_are_kept_from_claims_and_the_owned_stay(watched: Watched) -> None:
    watched.registered = True
    watched.look()
    watched.watch.keep_from_dra([GPU_0, GPU_1])
    assert names(watched) == ["gpu-2"]
    assert names(watched, lambda: frozenset({GPU_0})) == ["gpu-0", "gpu-2"]
    watched.watch.keep_from_dra([])
    assert names(watched) == ["gpu-0", "gpu-1", "gpu-2"]


def test_what_is_known_of_single_devices_counts_more_than_the_path_of_the_node(
    watched: Watched,
) -> None:
    watched.api = NotServed("no resource.k8s.io")
    watched.look()
    watched.watch.keep_from_dra([GPU_0])
    assert names(watched) == ["gpu-1", "gpu-2"]


def test_who_publishes_is_woken_only_when_other_devices_are_kept(watched: Watched) -> None:
    watched.watch.keep_from_dra([])  # from "nobody has looked" to "none"
    watched.watch.keep_from_dra([GPU_0])
    watched.watch.keep_from_dra({GPU_0})
    assert len(watched.changes) == 2
