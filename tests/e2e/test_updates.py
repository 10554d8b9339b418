# SPDX-License-Identifier: Apache-2.0
"""What do pods notice when the driver is updated, rolled back and removed, by Helm?"""

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dra_driver import __version__
from hack.testbed.onenode import features
from hack.testbed.onenode.driver import DRIVER_NAME, TAG, Driver
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from hack.testbed.onenode.node_files import CDI_FOLDER
from hack.testbed.onenode.release import NAME, NAMESPACE, build_image
from tests.e2e.agreement import assert_agreement, published
from tests.e2e.story import Story, memory_at_least, request
from tests.e2e.successor import VERSION, write_successor

Object = dict[str, Any]
pytestmark = pytest.mark.real
NEXT = "testbed-next"
WORKERS = 2
PODS_IN_EACH_VERSION = 3  # of each worker, at least
# How the kubelet of 1.32 says that no driver is there at the moment.
ABSENT = ("not found in the list of registered DRA plugins", "no such file or directory")


@pytest.fixture
def both_versions(driver: Driver, tmp_path: Path) -> Iterator[Driver]:
    """The driver, with the image of its next version on the node; afterwards it is this version again."""
    source = write_successor(tmp_path)
    driver.cluster.import_image(build_image(tmp_path / "next.tar", version=NEXT, source=source))
    yield driver
    if driver.installed and _version(driver) != __version__:
        driver.release.upgrade(driver.values())


def _logged(driver: Driver, event: str) -> list[dict[str, object]]:
    [pod] = [pod for pod in driver.release.pods() if "deletionTimestamp" not in pod["metadata"]]
    return [line for line in driver.release.log_of(pod) if line["event"] == event]


def _version(driver: Driver) -> str:
    return str(_logged(driver, "starting")[0]["version"])


def _surges(driver: Driver) -> bool:
    """Do two drivers stand side by side during an update?"""
    minor = features.minor_of(driver.cluster.options.version)
    return features.feature("SeamlessDriverUpgrade").on(minor)


def _schema(driver: Driver) -> int:
    with closing(sqlite3.connect(f"file:{driver.state_file}?mode=ro", uri=True)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def _slices(driver: Driver) -> list[tuple[str, Object]]:
    """UID and spec of each slice. Not the version: a device of a pod that takes long to end has a taint for a moment."""
    items = driver.cluster.get("resourceslices")["items"]
    return [
        (item["metadata"]["uid"], item["spec"])
        for item in items
        if item["spec"]["driver"] == DRIVER_NAME
    ]


def _complaints(story: Story) -> list[str]:
    """Warnings about the story's pods; those that every pod start may bring are left out."""
    events = story.driver.cluster.get("events", "--namespace", story.namespace)["items"]
    harmless = ("MissingClusterDNS", "FailedScheduling", "FailedMount")
    return [
        f"{event['reason']}: {event['message']}"
        for event in events
        if event["type"] == "Warning" and event["reason"] not in harmless
    ]


def _run(story: Story, name: str, quantity: str = "40Gi") -> None:
    story.claim(name, request(cel=memory_at_least(quantity)))
    story.pod(name, name)
    story.wait_ready(name)
    story.assert_has_claimed(name, name)


class Worker:
    """Starts and ends pods with claims until it is told to stop."""

    def __init__(self, story: Story, name: str) -> None:
        self.story = story
        self.name = name
        self.waits: list[float] = []  # seconds from the pod's creation to Ready
        self.ends: list[float] = []  # seconds from its deletion to its end
        self.running = True

    def run(self, stop: Event) -> None:
        try:
            self._run(stop)
        finally:
            self.running = False

    def _run(self, stop: Event) -> None:
        while not stop.is_set():
            name = f"{self.name}-{len(self.waits)}"
            begun = time.monotonic()
            _run(self.story, name)
            self.waits.append(time.monotonic() - begun)
            begun = time.monotonic()
            self.story.delete_pod(name)
            self.ends.append(time.monotonic() - begun)

    def wait_more(self, pods: int) -> None:
        """Wait until it has been through so many more."""
        aim = len(self.ends) + pods
        wait_until(
            lambda: len(self.ends) >= aim or not self.running,
            f"{self.name}'s next pods",
            timeout_seconds=300,
        )


def _summary(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"


@pytest.mark.matrix
def test_pods_come_and_go_while_the_driver_is_updated_and_rolled_back(
    both_versions: Driver, story: Story, capsys: pytest.CaptureFixture[str]
) -> None:
    driver, stop = both_versions, Event()
    _run(story, "stays")
    first_schema, slices = _schema(driver), _slices(driver)
    workers = [Worker(story, f"worker-{number}") for number in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(worker.run, stop) for worker in workers]
        try:
            for worker in workers:
                worker.wait_more(PODS_IN_EACH_VERSION)
            driver.release.upgrade(driver.values(NEXT))
            assert _version(driver) == VERSION
            for worker in workers:
                worker.wait_more(PODS_IN_EACH_VERSION)
            driver.release.rollback()
            assert _version(driver) == __version__
            for worker in workers:
                worker.wait_more(PODS_IN_EACH_VERSION)
        finally:
            stop.set()
        for future in running:
            future.result(timeout=300)

    complaints = _complaints(story)
    if _surges(driver):
        assert complaints == []
        # Not even the pool's generation has changed.
        wait_until(lambda: _slices(driver) == slices, "the slices as before")
    else:
        # A pod that comes while no driver is there waits for the next one, and gets its device then.
        assert [text for text in complaints if not any(words in text for words in ABSENT)] == []
    story.assert_has_claimed("stays", "stays")
    assert story.restarts("stays") == 0
    assert _schema(driver) == first_schema + 1
    waits = [seconds for worker in workers for seconds in worker.waits]
    ends = [seconds for worker in workers for seconds in worker.ends]
    with capsys.disabled():
        print(
            f"\n{len(waits)} pods during A → B → A: to Ready {_summary(waits)}; to their end {_summary(ends)}"
        )


def test_what_one_version_prepared_the_other_one_releases(
    both_versions: Driver, story: Story
) -> None:
    driver = both_versions
    _run(story, "by-the-old")
    driver.release.upgrade(driver.values(NEXT))
    story.delete_pod("by-the-old")
    _run(story, "by-the-new")
    driver.release.rollback()
    story.assert_has_claimed("by-the-new", "by-the-new")
    story.delete_pod("by-the-new")
    assert_agreement(driver)


@pytest.mark.matrix
def test_removal_is_refused_while_a_claim_is_prepared_and_leaves_nothing_after(
    driver: Driver, make_story: Callable[..., Story]
) -> None:
    story = make_story()
    _run(story, "holder")
    with pytest.raises(TestBedError, match=f"{story.namespace}/holder"):
        driver.release.upgrade({**driver.values(), "cleanup": {"enabled": True}})
    story.assert_has_claimed("holder", "holder")
    story.delete_pod("holder")
    assert_agreement(driver)

    plugin_folder = driver.state_file.parent
    driver.release.upgrade({**driver.values(), "cleanup": {"enabled": True}})
    assert not plugin_folder.exists()
    assert list(driver.cluster.path_inside(Path(CDI_FOLDER)).iterdir()) == []
    assert published(driver) == {}
    driver.release.uninstall()
    driver.installed = False
    kinds = (
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings,deviceclasses"
    )
    selector = f"app.kubernetes.io/instance={NAME}"
    assert driver.cluster.kubectl("get", kinds, "--selector", selector, "-o", "name") == ""
    in_namespace = ("get", "all,roles,rolebindings,serviceaccounts", "--namespace", NAMESPACE)
    assert driver.cluster.kubectl(*in_namespace, "--selector", selector, "-o", "name") == ""
    registry = plugin_folder.parents[1] / "plugins_registry"
    assert [path.name for path in registry.iterdir()] == []

    driver.start()
    again = make_story(name="after-the-removal")
    _run(again, "holder")


@pytest.mark.needs("SeamlessDriverUpgrade")  # an older kubelet takes the slices away at once
def test_helm_uninstall_alone_keeps_what_a_running_pod_has(driver: Driver, story: Story) -> None:
    _run(story, "survivor")
    driver.release.uninstall()
    driver.installed = False
    story.assert_has_claimed("survivor", "survivor")
    driver.install(TAG)
    driver.ensure_running()
    story.assert_has_claimed("survivor", "survivor")
    story.delete_pod("survivor")
    assert_agreement(driver)
