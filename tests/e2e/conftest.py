# SPDX-License-Identifier: Apache-2.0
"""One real cluster for all tests, with the driver on its node; each test has a namespace of its own.

After each test the namespace is deleted and the node must agree with itself again: a test that
leaves something behind fails, whatever it was about. A test that is skipped here fails as well,
for nobody would miss it otherwise.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.testbed.onenode import build, preflight
from hack.testbed.onenode.cluster import Cluster, Options
from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.no_skips import pytest_runtest_makereport
from hack.testbed.onenode.selection import kubernetes_version, pytest_collection_modifyitems
from tests.e2e.agreement import assert_agreement
from tests.e2e.story import Story

# Hooks: pytest finds them by their names.
__all__ = ["pytest_collection_modifyitems", "pytest_runtest_makereport"]
PROFILE = "h100x8"
LOGS = pytest.StashKey[Path]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say where the logs of a failed run are."""
    if (logs := config.stash.get(LOGS, None)) is not None:
        terminalreporter.write_line(f"logs of the cluster: {logs}")


def _log_folder() -> Path:
    chosen = os.environ.get("E2E_LOGS")
    return (
        Path(chosen) if chosen else build.cache_folder() / "logs" / time.strftime("%Y%m%d-%H%M%S")
    )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that is Ready."""
    preflight.require()
    version = kubernetes_version()
    cluster = Cluster(build.build(version), Options(version=version))
    try:
        cluster.start()
        yield cluster
    except BaseException:
        request.config.stash[LOGS] = _log_folder()
        raise
    finally:
        if request.session.testsfailed:
            request.config.stash.setdefault(LOGS, _log_folder())
        cluster.stop(keep=request.config.stash.get(LOGS, None))


@pytest.fixture(scope="session")
def installed_driver(cluster: Cluster) -> Driver:
    """The driver of the cluster, by its image and chart; it may be away at the moment."""
    return Driver(cluster, profile=PROFILE)


@pytest.fixture
def driver(installed_driver: Driver) -> Iterator[Driver]:
    """A running driver; afterwards the node must agree with itself."""
    installed_driver.ensure_running()
    installed_driver.play(PROFILE)
    yield installed_driver
    installed_driver.ensure_running()
    assert_agreement(installed_driver)


@pytest.fixture
def make_story(driver: Driver, request: pytest.FixtureRequest) -> Iterator[Callable[..., Story]]:
    """Begin stories, each in a namespace of its own; they end with the test."""
    begun: list[Story] = []

    def make(labels: dict[str, str] | None = None, *, name: str = "") -> Story:
        words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
        story = Story(driver, name or f"{words[:50].strip('-')}-{len(begun)}", labels or {})
        begun.append(story)
        story.begin()
        return story

    yield make
    for story in begun:
        driver.ensure_running()
        story.end()


@pytest.fixture
def story(make_story: Callable[..., Story]) -> Story:
    """A namespace for claims and pods."""
    return make_story()
